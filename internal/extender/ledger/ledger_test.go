package ledger

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/alloc"
)

const (
	gib   = 1 << 30
	grace = 30 * time.Second
)

func newLedger(t testing.TB, policy string) *Ledger {
	t.Helper()
	p, err := alloc.PolicyNamed(policy)
	if err != nil {
		t.Fatal(err)
	}
	l, err := New(Config{Policy: p, Grace: grace})
	if err != nil {
		t.Fatal(err)
	}
	l.Advance(time.Unix(1000, 0))
	return l
}

// gpus are so many of one size for a node, two on each NUMA node.
func gpus(node string, count int, memory uint64) (all []v1alpha1.NodeGPU) {
	for i := range count {
		all = append(all, v1alpha1.NodeGPU{
			UUID: gpuOf(node, i), Index: i, Model: "NVIDIA A100-SXM4-40GB", Memory: memory, ContextBytes: gib / 2, NUMANode: i / 2,
			Architecture: "ampere", Slots: v1alpha1.SlotsPerGPU,
		})
	}
	return all
}

// gpuOf is the UUID of a node's GPU. Nodes are named n0, n1 and so on.
func gpuOf(node string, i int) string { return fmt.Sprintf("GPU-%s-%d", node[1:], i) }

func nodeOf(t testing.TB, name string, all []v1alpha1.NodeGPU, held *v1alpha1.NodeHeld) *corev1.Node {
	t.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{}}}
	n.Status.Allocatable = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("64"), corev1.ResourceMemory: resource.MustParse("512Gi")}
	n.Annotations[v1alpha1.GPUsAnnotation] = text(t, v1alpha1.NodeGPUs{GPUs: all}.Text)
	if held == nil {
		held = &v1alpha1.NodeHeld{}
	}
	n.Annotations[v1alpha1.HeldAnnotation] = text(t, held.Text)
	return n
}

func text(t testing.TB, write func() (string, error)) string {
	t.Helper()
	s, err := write()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

var sharing = &v1alpha1.ShareConfig{Policy: v1alpha1.PolicyWeighted, Weight: 1, Class: v1alpha1.ClassOnline, Backend: v1alpha1.BackendSlice}

// ask is a share of some GPUs for the container of the same name.
func ask(name string, count int, memory uint64, cores int) v1alpha1.ShareRequired {
	return v1alpha1.ShareRequired{Name: name, Containers: []string{name}, GPUs: count, Memory: memory, Cores: cores, Config: sharing}
}

func whole(name string, count int) v1alpha1.ShareRequired {
	return v1alpha1.ShareRequired{Name: name, Containers: []string{name}, GPUs: count, Whole: true}
}

// podOf is a pod that waits.
func podOf(t testing.TB, uid string, shares ...v1alpha1.ShareRequired) *corev1.Pod {
	t.Helper()
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "pod-" + uid, UID: types.UID(uid), Annotations: map[string]string{
		v1alpha1.RequestAnnotation: text(t, v1alpha1.PodRequest{Shares: shares}.Text),
	}}}
	p.Spec.Containers = []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("2"), corev1.ResourceMemory: resource.MustParse("4Gi"),
	}}}}
	return p
}

// bound is a pod as it is once it has a node.
func bound(t testing.TB, p *corev1.Pod, node string, a v1alpha1.PodAssignment) *corev1.Pod {
	t.Helper()
	p = p.DeepCopy()
	p.Spec.NodeName = node
	p.Annotations[v1alpha1.AssignmentAnnotation] = text(t, a.Text)
	return p
}

// place reserves a place for a pod and has it bound.
func place(t testing.TB, l *Ledger, p *corev1.Pod, node string) (*corev1.Pod, v1alpha1.PodAssignment) {
	t.Helper()
	l.SetPod(p.UID, p)
	a, err := l.Reserve(p, node)
	if err != nil {
		t.Fatal(err)
	}
	p = bound(t, p, node, a)
	l.SetPod(p.UID, p)
	return p, a
}

// heldFor is what an agent holds for an assignment.
func heldFor(a v1alpha1.PodAssignment) (all []v1alpha1.ShareHeld) {
	for _, s := range a.Shares {
		h := v1alpha1.ShareHeld{Pod: a.Pod, Name: s.Name, GPUs: slices.Clone(s.GPUs), Whole: s.Whole}
		for i := range h.GPUs {
			if s.Whole {
				h.GPUs[i].Cores = 100
			}
		}
		all = append(all, h)
	}
	return all
}

// gpu is a GPU as the inventory has it.
func gpu(t testing.TB, l *Ledger, node string, i int) alloc.GPU {
	t.Helper()
	at, ok := l.Inventory().Position(node)
	if !ok {
		t.Fatalf("there is no node %s", node)
	}
	return l.Inventory().Node(at).GPUs[i]
}

func verdicts(t testing.TB, l *Ledger, p *corev1.Pod, nodes ...string) []Verdict {
	t.Helper()
	all, err := l.Filter(p, nodes)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func kindsOf(all []Verdict) (kinds []Kind) {
	for _, v := range all {
		kinds = append(kinds, v.Kind)
	}
	return kinds
}

// check compares a ledger with one that is made anew of the same objects.
func check(t testing.TB, l *Ledger) {
	t.Helper()
	anew, err := l.Rebuilt()
	if err != nil {
		t.Fatal(err)
	}
	if text := l.Difference(anew); text != "" {
		t.Fatalf("a ledger made anew differs: %s", text)
	}
	if a, b := l.Fences(), anew.Fences(); fmt.Sprint(fenceNames(a)) != fmt.Sprint(fenceNames(b)) {
		t.Fatalf("fences %+v, and anew %+v", a, b)
	}
}

func fenceNames(all []Fence) (names []string) {
	for _, f := range all {
		names = append(names, f.Node+" "+f.UUID)
	}
	return names
}

// A share counts once from the moment it is reserved, whoever tells of it, until nobody does.
func TestShareCountsOnce(t *testing.T) {
	l := newLedger(t, alloc.DefaultPolicy)
	all := gpus("n0", 1, 40*gib)
	l.SetNode("n0", nodeOf(t, "n0", all, nil))
	p := podOf(t, "a", ask("main", 1, 10*gib, 30))
	l.SetPod("a", p)
	a, err := l.Reserve(p, "n0")
	if err != nil {
		t.Fatal(err)
	}
	counts := func(when string, memory uint64, cores, tenants int) {
		t.Helper()
		if g := gpu(t, l, "n0", 0); g.Granted != memory || g.Cores != cores || g.Tenants != tenants || g.Fence != "" {
			t.Fatalf("%s: %d bytes, %d cores, %d tenants, fence %q", when, g.Granted, g.Cores, g.Tenants, g.Fence)
		}
		check(t, l)
	}
	counts("reserved", 10*gib, 30, 1)
	held := &v1alpha1.NodeHeld{Shares: heldFor(a)}
	l.SetNode("n0", nodeOf(t, "n0", all, held))
	counts("reserved and held", 10*gib, 30, 1)
	if !l.Bound("a") || !l.Reservations()[0].Bound {
		t.Error("the binding is not noted")
	}
	seen := bound(t, p, "n0", a)
	l.SetPod("a", seen)
	counts("bound and held", 10*gib, 30, 1)
	if l.Bound("a") || len(l.Reservations()) != 0 || l.Undo("a") {
		t.Error("a pod that was seen with its node is still reserved for")
	}
	seen.Status.Phase = corev1.PodSucceeded
	l.SetPod("a", seen)
	counts("ended and held", 10*gib, 30, 1)
	l.SetPod("a", nil)
	counts("gone and held", 10*gib, 30, 1)
	l.SetNode("n0", nodeOf(t, "n0", all, &v1alpha1.NodeHeld{}))
	counts("gone and let go", 0, 0, 0)
	if text := fmt.Sprint(l.pods, l.disputed, l.nodes["n0"].strangers); text != "map[] map[] map[]" {
		t.Errorf("left over: %s", text)
	}
}

// What an agent holds and no pod says counts at once, and fences its GPUs when the grace has passed, until it ends.
func TestDisputesFence(t *testing.T) {
	l := newLedger(t, alloc.DefaultPolicy)
	all := gpus("n0", 2, 40*gib)
	l.SetNode("n0", nodeOf(t, "n0", all, nil))
	p, a := place(t, l, podOf(t, "a", ask("main", 1, 10*gib, 0)), "n0")
	other := slices.IndexFunc(all, func(g v1alpha1.NodeGPU) bool { return g.UUID != a.Shares[0].GPUs[0].UUID })
	wrong := a
	wrong.Shares = slices.Clone(a.Shares)
	wrong.Shares[0].GPUs = []v1alpha1.GPUAssigned{{UUID: all[other].UUID, Memory: 12 * gib}}
	l.SetNode("n0", nodeOf(t, "n0", all, &v1alpha1.NodeHeld{Shares: heldFor(wrong)}))
	if g := gpu(t, l, "n0", other); g.Granted != 12*gib || g.Fence != "" {
		t.Errorf("%d bytes of the other GPU count, fence %q", g.Granted, g.Fence)
	}
	start := time.Unix(1000, 0)
	if due := l.Advance(start.Add(time.Second)); !due.Equal(start.Add(grace)) {
		t.Errorf("due at %v", due)
	}
	if len(l.Fences()) != 0 {
		t.Error("fenced before the grace")
	}
	also := append(heldFor(wrong), v1alpha1.ShareHeld{Pod: "z", Name: "main", GPUs: []v1alpha1.GPUAssigned{{UUID: all[other].UUID, Memory: gib}}})
	l.SetNode("n0", nodeOf(t, "n0", all, &v1alpha1.NodeHeld{Shares: also})) // the first one goes on
	l.SetNode("n0", nodeOf(t, "n0", all, &v1alpha1.NodeHeld{Shares: heldFor(wrong)}))
	if due := l.Advance(start.Add(grace)); !due.IsZero() {
		t.Errorf("due again at %v", due)
	}
	check(t, l)
	fences := l.Fences()
	if len(fences) != 2 || !slices.Equal(fences[0].Pods, []string{"a"}) || !strings.Contains(fences[0].Reason, `share "main" of pod a`) || fences[0].Kind != FencedDiffering {
		t.Fatalf("%+v", fences)
	}
	if v := verdicts(t, l, podOf(t, "b", ask("main", 1, gib, 0)), "n0"); v[0].Kind != Fenced {
		t.Errorf("%+v", v)
	}
	l.SetNode("n0", nodeOf(t, "n0", all, &v1alpha1.NodeHeld{Shares: heldFor(a)}))
	if fences := l.Fences(); len(fences) != 0 || gpu(t, l, "n0", other).Granted != 0 {
		t.Errorf("%+v", fences)
	}
	// A forged assignment is no reason to forget what the agent holds.
	forged := p.DeepCopy()
	forged.Annotations[v1alpha1.AssignmentAnnotation] = strings.Replace(p.Annotations[v1alpha1.AssignmentAnnotation], `"pod":"a"`, `"pod":"b"`, 1)
	l.SetPod("a", forged)
	if g := gpu(t, l, "n0", slices.IndexFunc(all, func(g v1alpha1.NodeGPU) bool { return g.UUID == a.Shares[0].GPUs[0].UUID })); g.Granted != 10*gib {
		t.Errorf("%d bytes count", g.Granted)
	}
	l.Advance(start.Add(3 * grace))
	if fences := l.Fences(); len(fences) != 1 || fences[0].Kind != FencedUnclaimed {
		t.Errorf("%+v", fences)
	}
	check(t, l)
}

// A GPU of which more is given than there is takes no more shares, until that has ended.
func TestGivenTwiceFences(t *testing.T) {
	l := newLedger(t, alloc.DefaultPolicy)
	all := gpus("n0", 1, 40*gib)
	l.SetNode("n0", nodeOf(t, "n0", all, nil))
	_, a := place(t, l, podOf(t, "a", whole("main", 1)), "n0")
	b := podOf(t, "b", ask("main", 1, gib, 0))
	given := v1alpha1.PodAssignment{Pod: "b", Shares: []v1alpha1.ShareAssigned{{Name: "main", Containers: []string{"main"}, Config: sharing, GPUs: []v1alpha1.GPUAssigned{{UUID: all[0].UUID, Memory: gib}}}}}
	l.SetPod("b", bound(t, b, "n0", given))
	if fences := l.Fences(); len(fences) != 1 || !slices.Equal(fences[0].Pods, []string{"a", "b"}) || fences[0].Kind != FencedExceeded || a.Shares[0].GPUs[0].Memory != 40*gib {
		t.Errorf("%+v, %+v", fences, a)
	}
	check(t, l)
	l.SetPod("a", nil)
	if fences := l.Fences(); len(fences) != 0 {
		t.Errorf("%+v", fences)
	}
	check(t, l)
}

// What others hold leaves a GPU the less, and nothing where they share it in another way.
func TestOthersHold(t *testing.T) {
	l := newLedger(t, alloc.DefaultPolicy)
	all := gpus("n0", 2, 40*gib)
	held := &v1alpha1.NodeHeld{GPUs: []v1alpha1.GPUHeld{
		{UUID: all[0].UUID, Memory: 35 * gib, Cores: 20, Tenants: 2, Form: v1alpha1.BackendSlice},
		{UUID: all[1].UUID, Memory: gib, Tenants: 1, Form: v1alpha1.BackendMPS},
	}}
	l.SetNode("n0", nodeOf(t, "n0", all, held))
	for memory, want := range map[uint64]Kind{5 * gib: Fits, 6 * gib: Full, 41 * gib: Never} {
		if v := verdicts(t, l, podOf(t, "a", ask("main", 1, memory, 80)), "n0"); v[0].Kind != want {
			t.Errorf("%d bytes: %+v", memory, v)
		}
	}
	if v := verdicts(t, l, podOf(t, "a", ask("main", 1, gib, 81)), "n0"); v[0].Kind != Full || v[0].Text != "too few cores left" {
		t.Errorf("%+v", v)
	}
	for _, p := range []*corev1.Pod{podOf(t, "a", whole("main", 1)), podOf(t, "a", ask("main", 2, gib, 0))} {
		if v := verdicts(t, l, p, "n0"); v[0].Kind != Full {
			t.Errorf("%+v", v)
		}
	}
	check(t, l)
}

// Every node is answered for, with what can be done about it.
func TestVerdicts(t *testing.T) {
	l := newLedger(t, alloc.DefaultPolicy)
	ill := gpus("n1", 1, 40*gib)
	ill[0].Fault = "it fell off the bus"
	l.SetNode("n0", nodeOf(t, "n0", gpus("n0", 1, 40*gib), nil))
	l.SetNode("n1", nodeOf(t, "n1", ill, nil))
	l.SetNode("n2", nodeOf(t, "n2", gpus("n2", 1, 8*gib), nil))
	plain, newer := nodeOf(t, "n3", nil, nil), nodeOf(t, "n4", gpus("n4", 1, 40*gib), nil)
	delete(plain.Annotations, v1alpha1.GPUsAnnotation)
	newer.Annotations[v1alpha1.HeldAnnotation] = `{"version":9}`
	l.SetNode("n3", plain)
	l.SetNode("n4", newer)
	l.SetNode("n5", nodeOf(t, "n5", gpus("n5", 1, 40*gib), nil))
	place(t, l, podOf(t, "a", ask("main", 1, 35*gib, 0)), "n5")
	asking := podOf(t, "b", ask("main", 1, 10*gib, 0))
	nodes := []string{"n9", "n5", "n4", "n3", "n2", "n1", "n0"}
	all := verdicts(t, l, asking, nodes...)
	if want := []Kind{Unknown, Full, Unreadable, Unknown, Never, Sick, Fits}; !slices.Equal(kindsOf(all), want) {
		t.Errorf("%+v, want %v", all, want)
	}
	for i, v := range all {
		if (v.Text == "") != (v.Kind == Fits) || strings.Contains(v.Text, "\n") {
			t.Errorf("node %s: %q", nodes[i], v.Text)
		}
	}
	if fences := l.Fences(); len(fences) != 1 || fences[0].Node != "n4" || fences[0].UUID != "" || fences[0].Kind != FencedUnreadable || !strings.Contains(fences[0].Reason, "version 9") {
		t.Errorf("%+v", fences)
	}
	// The scheduler counts processors and memory. It is believed where it asks about a node that seems to have too few.
	asking.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse("90")
	if v := verdicts(t, l, asking, "n0", "n5"); v[0].Kind != Fits || v[1].Kind != Full {
		t.Errorf("%+v", v)
	}
	if _, err := l.Reserve(asking, "n0"); err != nil {
		t.Error(err)
	}
	check(t, l)
	if v := verdicts(t, l, asking, "n0", "n5"); v[0].Kind != Fits || v[1].Kind != Full {
		t.Errorf("reserved: %+v", v)
	}
	l.SetNode("n0", nil)
	if v := verdicts(t, l, podOf(t, "c", ask("main", 1, gib, 0)), "n0"); v[0].Kind != Unknown {
		t.Errorf("%+v", v)
	}
	check(t, l)
}

// Pods that ask for nothing, or for what cannot be read, are errors.
func TestInvalidPods(t *testing.T) {
	l := newLedger(t, alloc.DefaultPolicy)
	l.SetNode("n0", nodeOf(t, "n0", gpus("n0", 2, 40*gib), nil))
	none, garbled, model := podOf(t, "a", ask("main", 1, gib, 0)), podOf(t, "b", ask("main", 1, gib, 0)), podOf(t, "c", ask("main", 1, gib, 0))
	delete(none.Annotations, v1alpha1.RequestAnnotation)
	garbled.Annotations[v1alpha1.RequestAnnotation] += "x"
	model.Annotations[v1alpha1.ModelsAnnotation] = ";"
	selector := ask("main", 1, gib, 0)
	selector.Selectors = []string{"device.nothing("}
	for name, p := range map[string]*corev1.Pod{
		"no request": none, "garbled": garbled, "models": model, "selector": podOf(t, "d", selector), "too many GPUs": podOf(t, "e", ask("main", 17, gib, 0)),
	} {
		l.SetPod(p.UID, p)
		_, filtered := l.Filter(p, []string{"n0"})
		_, scored := l.Prioritise(p, []string{"n0"})
		_, reserved := l.Reserve(p, "n0")
		for _, err := range []error{filtered, scored, reserved} {
			if !errors.Is(err, ErrPod) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	check(t, l)
}
