package extender

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/alloc"
	"github.com/divvy-gpu/divvy/internal/extender/ledger"
)

// town is an API server, agents and a scheduler with their core, where each hears of the others after any time. Only the order of
// the events of one kind is kept.
type town struct {
	t      *testing.T
	random *rand.Rand
	core   *core
	now    time.Time
	names  []string

	gpus  map[string][]v1alpha1.NodeGPU
	nodes map[string]*corev1.Node
	pods  map[string]*corev1.Pod
	// told are the events that the core has not heard of.
	podEvents, nodeEvents []func()
	writes                []*write
	made, revision        int
	shapes                [][]v1alpha1.ShareRequired
	// held is what agents hold, by node and pod, and others what tenants have that are no pods.
	held   map[string]map[string]v1alpha1.PodAssignment
	others map[string][]v1alpha1.GPUHeld
	probes []*corev1.Pod
	bound  int
}

// write is a Binding that is under way.
type write struct {
	flight *flight
	pod    *corev1.Pod
	// done tells that the API server has done it, and refused that it never will.
	done, refused bool
}

const townGrace = 10 * time.Second

func newTown(t *testing.T, seed uint64, policy string) *town {
	p, err := alloc.PolicyNamed(policy)
	if err != nil {
		t.Fatal(err)
	}
	l, err := ledger.New(ledger.Config{Policy: p, Grace: townGrace})
	if err != nil {
		t.Fatal(err)
	}
	w := &town{
		t: t, random: rand.New(rand.NewPCG(seed, 8)), core: newCore(l), now: time.Unix(1e9, 0), gpus: map[string][]v1alpha1.NodeGPU{},
		nodes: map[string]*corev1.Node{}, pods: map[string]*corev1.Pod{}, held: map[string]map[string]v1alpha1.PodAssignment{}, others: map[string][]v1alpha1.GPUHeld{},
	}
	w.core.advance(w.now)
	part := func(name string, gpus int, memory uint64, cores int, containers ...string) v1alpha1.ShareRequired {
		return v1alpha1.ShareRequired{Name: name, Containers: append(containers, name), GPUs: gpus, Memory: memory * gib, Cores: cores, Config: weighted}
	}
	all := func(gpus int) v1alpha1.ShareRequired {
		return v1alpha1.ShareRequired{Name: "main", Containers: []string{"main"}, GPUs: gpus, Whole: true}
	}
	w.shapes = [][]v1alpha1.ShareRequired{
		{part("main", 1, 4, 30)}, {part("large", 1, 4, 30), part("small", 1, 1, 10)}, {part("main", 1, 2, 0, "first")}, {all(1)}, {part("main", 2, 3, 20)},
		{part("side", 1, 4, 20), part("main", 1, 8, 0, "first")}, {all(2)}, {all(1), part("beside", 1, 2, 0)},
	}
	for i, shares := range w.shapes {
		w.probes = append(w.probes, w.podOf(fmt.Sprint("probe", i), shares))
	}
	for i := range 3 {
		name := fmt.Sprint("n", i)
		w.names = append(w.names, name)
		for k := range 1 + i {
			w.gpus[name] = append(w.gpus[name], v1alpha1.NodeGPU{
				UUID: fmt.Sprintf("GPU-%d-%d", i, k), Index: k, Model: "A", Memory: uint64(16+8*(i%2)) * gib, ContextBytes: gib / 2, NUMANode: -1, Slots: v1alpha1.SlotsPerGPU * (i % 2),
			})
		}
		w.held[name] = map[string]v1alpha1.PodAssignment{}
		w.putNode(name)
	}
	return w
}

func (w *town) podOf(name string, shares []v1alpha1.ShareRequired) *corev1.Pod {
	text, err := v1alpha1.PodRequest{Shares: shares}.Text()
	if err != nil {
		w.t.Fatal(err)
	}
	pod := podOf(w.t, name, 1)
	pod.UID = types.UID(fmt.Sprintf("%s-%d", name, w.made))
	pod.Annotations[v1alpha1.RequestAnnotation] = text
	return pod
}

// putNode writes a node as its agent and its kubelet have it.
func (w *town) putNode(name string) {
	gpus, err := v1alpha1.NodeGPUs{GPUs: w.gpus[name]}.Text()
	if err != nil {
		w.t.Fatal(err)
	}
	held := v1alpha1.NodeHeld{GPUs: w.others[name]}
	for _, uid := range slices.Sorted(maps.Keys(w.held[name])) {
		for _, s := range w.held[name][uid].Shares {
			one := v1alpha1.ShareHeld{Pod: uid, Name: s.Name, GPUs: slices.Clone(s.GPUs), Whole: s.Whole}
			for i := range one.GPUs {
				if s.Whole {
					one.GPUs[i].Cores = v1alpha1.MaxCores
				}
			}
			held.Shares = append(held.Shares, one)
		}
	}
	text, err := held.Text()
	if err != nil {
		w.t.Fatal(err)
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{v1alpha1.GPUsAnnotation: gpus, v1alpha1.HeldAnnotation: text}}}
	node.Status.Allocatable = corev1.ResourceList{"cpu": *resource.NewQuantity(int64(8+w.random.IntN(2)), resource.DecimalSI), "memory": resource.MustParse("64Gi")}
	w.nodes[name] = node
	w.nodeEvents = append(w.nodeEvents, func() { w.core.setNode(trimNode(node)) })
}

// putPod writes a pod.
func (w *town) putPod(name string, how func(*corev1.Pod)) {
	pod := w.pods[name].DeepCopy()
	how(pod)
	w.revision++
	pod.ResourceVersion = strconv.Itoa(w.revision)
	w.pods[name] = pod
	w.podEvents = append(w.podEvents, func() { w.core.setPod(trimPod(pod)) })
}

func (w *town) step() {
	name := fmt.Sprint("p", w.random.IntN(12))
	node := w.names[w.random.IntN(len(w.names))]
	pod := w.pods[name]
	switch what := w.random.IntN(32); {
	case what < 6:
		w.hear(&w.podEvents, 1+w.random.IntN(6))
	case what < 9:
		w.hear(&w.nodeEvents, 1+w.random.IntN(4))
	case what < 12 && pod == nil:
		w.made++
		w.pods[name] = w.podOf(name, w.shapes[w.random.IntN(len(w.shapes))])
		w.putPod(name, func(*corev1.Pod) {})
	case what < 17:
		w.schedule(w.core.pod("default", name))
	case what < 21 && len(w.writes) > 0:
		w.serve(w.writes[w.random.IntN(len(w.writes))])
	case what < 23 && pod != nil && pod.Spec.NodeName != "":
		w.putPod(name, func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded })
	case what < 25 && pod != nil:
		delete(w.pods, name)
		w.podEvents = append(w.podEvents, func() { w.core.dropPod("default", name) })
	case what == 25 && pod != nil:
		w.putPod(name, func(p *corev1.Pod) { p.Labels = map[string]string{"a": "b"} })
	case what < 28:
		w.hold(node)
	case what == 28:
		w.others[node] = nil
		if g := w.gpus[node][0]; w.random.IntN(3) == 0 && len(w.held[node]) == 0 {
			w.others[node] = []v1alpha1.GPUHeld{{UUID: g.UUID, Memory: gib, Cores: 10, Tenants: 1, Form: v1alpha1.BackendSlice}}
		}
		w.putNode(node)
	case what == 29:
		g := &w.gpus[node][w.random.IntN(len(w.gpus[node]))]
		if g.Fault == "" && w.random.IntN(2) == 0 {
			g.Fault = "lost"
		} else {
			g.Fault = ""
		}
		w.putNode(node)
	case what == 30 && w.random.IntN(4) == 0:
		w.nodeEvents = append(w.nodeEvents, func() { w.core.dropNode(node) })
		w.putNode(node)
	case what == 31:
		w.now = w.now.Add(time.Duration(w.random.IntN(4)) * time.Second)
		w.core.advance(w.now)
		w.look()
	}
}

// hear tells the core of the next events of a kind.
func (w *town) hear(events *[]func(), n int) {
	for ; n > 0 && len(*events) > 0; n-- {
		(*events)[0]()
		*events = (*events)[1:]
	}
}

// schedule asks for a pod, and has its place reserved.
func (w *town) schedule(pod *corev1.Pod) {
	if pod == nil || pod.Spec.NodeName != "" {
		return
	}
	kept := w.core.preempt(question{pod, w.names})
	answer := w.core.filter(question{pod, w.names})
	if !slices.Equal(kept, answer.fits) {
		w.t.Errorf("others may be ended for %s on %q, and it fits on %q", pod.Name, kept, answer.fits)
	}
	if _, err := w.core.prioritise(question{pod, w.names}); err != nil {
		w.t.Fatal(err)
	}
	if len(answer.fits) == 0 {
		return
	}
	f, err := w.core.reserve(pod, answer.fits[w.random.IntN(len(answer.fits))], w.now)
	if err == nil && f != nil {
		w.writes = append(w.writes, &write{flight: f, pod: pod})
	}
}

// serve has the API server take a Binding, or answer it, or the answer be lost.
func (w *town) serve(b *write) {
	if !b.done && !b.refused && w.random.IntN(2) == 0 {
		pod := w.pods[b.pod.Name]
		if pod == nil || pod.UID != b.pod.UID || pod.Spec.NodeName != "" || pod.ResourceVersion != b.pod.ResourceVersion {
			b.refused = true
			return
		}
		b.done = true
		w.bound++
		w.putPod(b.pod.Name, func(p *corev1.Pod) {
			p.Spec.NodeName, p.Annotations[v1alpha1.AssignmentAnnotation] = b.flight.node, b.flight.assignment
		})
		return
	}
	o := isUnknown
	switch {
	case w.random.IntN(4) == 0 || !b.done && !b.refused:
		b.refused = true // the request is lost
	case b.done:
		o = isBound
	case b.refused:
		o = isNot
	}
	w.core.settle(b.flight, o, w.now)
	w.writes = slices.DeleteFunc(w.writes, func(a *write) bool { return a == b })
}

// look reads pods as the server does.
func (w *town) look() {
	for _, f := range w.core.due(w.now) {
		_, name := split(f.key)
		w.core.looked(f, f.outcomeOf(w.pods[name]), w.now)
	}
}

// hold has an agent begin to hold what its pods have, or let go of what none has, and tell so.
func (w *town) hold(node string) {
	has := map[string]v1alpha1.PodAssignment{}
	for _, pod := range w.pods {
		if pod.Spec.NodeName != node || ended(pod) {
			continue
		}
		a, err := v1alpha1.ParsePodAssignment(pod.Annotations[v1alpha1.AssignmentAnnotation])
		if err != nil {
			w.t.Fatal(err)
		}
		has[string(pod.UID)] = a
	}
	for _, uid := range slices.Sorted(maps.Keys(has)) {
		if w.random.IntN(2) == 0 {
			a := has[uid]
			if n := len(a.Shares); n > 1 && w.random.IntN(3) == 0 {
				a.Shares = slices.Clone(a.Shares[:n-1])
			}
			w.held[node][uid] = a
		}
	}
	for _, uid := range slices.Sorted(maps.Keys(w.held[node])) {
		if _, there := has[uid]; !there && w.random.IntN(2) == 0 {
			delete(w.held[node], uid)
		}
	}
	w.putNode(node)
}

// judge compares every answer with that of a ledger which is made anew.
func (w *town) judge(when string) {
	w.t.Helper()
	anew, err := w.core.ledger.Rebuilt()
	if err != nil {
		w.t.Fatal(err)
	}
	if text := w.core.ledger.Difference(anew); text != "" {
		w.t.Fatalf("%s: %s", when, text)
	}
	for _, probe := range w.probes {
		got, err := w.core.ledger.Filter(probe, w.names)
		want, wrong := anew.Filter(probe, w.names)
		if err != nil || wrong != nil {
			w.t.Fatal(err, wrong)
		}
		if !slices.Equal(got, want) {
			w.t.Fatalf("%s: %s is answered %+v, and anew %+v", when, probe.Name, got, want)
		}
	}
}

// settle ends everything, and has all be heard.
func (w *town) settle() {
	for len(w.writes) > 0 {
		w.serve(w.writes[0])
	}
	for _, name := range slices.Sorted(maps.Keys(w.pods)) {
		delete(w.pods, name)
		w.podEvents = append(w.podEvents, func() { w.core.dropPod("default", name) })
	}
	for _, name := range w.names {
		clear(w.held[name])
		w.others[name] = nil
		for i := range w.gpus[name] {
			w.gpus[name][i].Fault = ""
		}
		w.putNode(name)
	}
	w.hear(&w.podEvents, len(w.podEvents))
	w.hear(&w.nodeEvents, len(w.nodeEvents))
	for range 3 {
		w.now = w.now.Add(answeredBy)
		w.core.advance(w.now)
		w.look()
	}
}

// Whatever is heard when, each answer is that of a ledger that is made anew of the same, and nothing is left when all has ended.
func TestRandomTowns(t *testing.T) {
	bound := 0
	for seed := range uint64(8) {
		w := newTown(t, seed, alloc.PolicyNames()[seed%2])
		for round := range 6 {
			for i := range 150 {
				w.step()
				w.judge(fmt.Sprintf("seed %d, round %d, step %d", seed, round, i))
			}
			w.settle()
			w.judge("settled")
			answer := w.core.filter(question{w.probes[3], w.names})
			if len(answer.fits) != len(w.names) || w.core.unseen() != 0 || len(w.core.fences()) != 0 || len(w.core.ledger.Reservations()) != 0 {
				t.Fatalf("seed %d: a whole GPU is refused: %+v, %d bindings, fences %+v", seed, answer.refused, w.core.unseen(), w.core.fences())
			}
		}
		bound += w.bound
	}
	if bound < 60 {
		t.Errorf("%d pods were bound: the towns tell little", bound)
	}
}
