package ledger

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/alloc"
)

// world is a cluster in which everything is done as agents, kubelets and schedulers do it, in a random order.
type world struct {
	t      *testing.T
	random *rand.Rand
	l      *Ledger
	now    time.Time
	nodes  map[string][]v1alpha1.NodeGPU
	gone   map[string]bool
	pods   map[types.UID]*corev1.Pod
	// given is what a pod has or is about to have, until it has ended; held is what agents hold, by node.
	given  map[types.UID]v1alpha1.PodAssignment
	places map[types.UID]string
	held   map[string]map[types.UID]v1alpha1.PodAssignment
	others map[string][]v1alpha1.GPUHeld
	made   int
	// placed, refused and twice count.
	placed, refused int
}

func newWorld(t *testing.T, seed uint64, policy string) *world {
	w := &world{
		t: t, random: rand.New(rand.NewPCG(seed, 5)), l: newLedger(t, policy), now: time.Unix(1000, 0), nodes: map[string][]v1alpha1.NodeGPU{}, gone: map[string]bool{},
		pods: map[types.UID]*corev1.Pod{}, given: map[types.UID]v1alpha1.PodAssignment{}, places: map[types.UID]string{},
		held: map[string]map[types.UID]v1alpha1.PodAssignment{}, others: map[string][]v1alpha1.GPUHeld{},
	}
	for i := range 5 {
		name := fmt.Sprint("n", i)
		w.nodes[name], w.held[name] = gpus(name, 1+i%4, uint64(16+8*(i%3))*gib), map[types.UID]v1alpha1.PodAssignment{}
		w.node(name)
	}
	return w
}

// object is a node as the API server has it.
func (w *world) object(name string) *corev1.Node {
	if w.gone[name] {
		return nil
	}
	held := &v1alpha1.NodeHeld{GPUs: w.others[name]}
	for _, uid := range slices.Sorted(maps.Keys(w.held[name])) {
		held.Shares = append(held.Shares, heldFor(w.held[name][uid])...)
	}
	return nodeOf(w.t, name, w.nodes[name], held)
}

func (w *world) node(name string) { w.l.SetNode(name, w.object(name)) }

// share asks for something at random.
func (w *world) share(name string) v1alpha1.ShareRequired {
	switch w.random.IntN(5) {
	case 0:
		return whole(name, 1+w.random.IntN(2))
	case 1:
		s := ask(name, 1, 0, w.random.IntN(60))
		s.SetAmount(v1alpha1.PartOf(1, uint64(2+w.random.IntN(4))))
		return s
	}
	return ask(name, 1+w.random.IntN(2), uint64(1+w.random.IntN(20))*gib, w.random.IntN(60))
}

func (w *world) step() {
	node := fmt.Sprint("n", w.random.IntN(len(w.nodes)))
	uids := slices.Sorted(maps.Keys(w.pods))
	var uid types.UID
	if len(uids) > 0 {
		uid = uids[w.random.IntN(len(uids))]
	}
	switch what := w.random.IntN(20); {
	case what < 6 || len(uids) == 0:
		w.made++
		shares := []v1alpha1.ShareRequired{w.share("a")}
		for _, name := range []string{"b", "c"}[:w.random.IntN(3)] {
			shares = append(shares, w.share(name))
		}
		p := podOf(w.t, fmt.Sprint("uid", w.made), shares...)
		w.pods[p.UID] = p
		w.l.SetPod(p.UID, p)
		w.place(p)
	case what < 8:
		w.place(w.pods[uid])
	case what < 10:
		w.see(uid)
	case what == 10:
		if w.pods[uid].Spec.NodeName == "" && w.l.Undo(uid) {
			delete(w.given, uid)
			delete(w.places, uid)
		}
	case what < 13:
		delete(w.pods, uid)
		delete(w.given, uid)
		delete(w.places, uid)
		w.l.SetPod(uid, nil)
	case what < 15: // the agent gives what its pods have
		for uid, a := range w.given {
			if w.places[uid] == node {
				w.held[node][uid] = a
			}
		}
		w.node(node)
	case what < 17: // the agent takes back what no pod has
		for uid := range w.held[node] {
			if !w.has(uid, node) {
				delete(w.held[node], uid)
			}
		}
		w.node(node)
	case what == 17:
		w.other(node)
	case what == 18:
		w.gone[node] = !w.gone[node]
		w.node(node)
	default:
		w.now = w.now.Add(time.Duration(w.random.IntN(10)) * time.Second)
		w.l.Advance(w.now)
	}
}

// has reports whether a pod has or is about to have shares of a node.
func (w *world) has(uid types.UID, node string) bool {
	_, there := w.given[uid]
	return there && w.places[uid] == node
}

// other has somebody else have a part of a GPU of which the agent gives nothing to pods, or nobody.
func (w *world) other(node string) {
	w.others[node] = nil
	g := w.nodes[node][0]
	if used := w.use(node)[g.UUID]; used.tenants == 0 && w.random.IntN(2) == 0 {
		w.others[node] = []v1alpha1.GPUHeld{{UUID: g.UUID, Memory: g.Memory / 4, Cores: 10, Tenants: 1}}
	}
	w.node(node)
}

// place asks for a pod and reserves at random among the nodes on which it fits.
func (w *world) place(p *corev1.Pod) {
	names := slices.Sorted(maps.Keys(w.nodes))
	all, err := w.l.Filter(p, names)
	scores, wrong := w.l.Prioritise(p, names)
	if err := errors.Join(err, wrong); err != nil {
		w.t.Fatal(err)
	}
	if _, there := w.given[p.UID]; there {
		return
	}
	request, err := v1alpha1.ParsePodRequest(p.Annotations[v1alpha1.RequestAnnotation])
	if err != nil {
		w.t.Fatal(err)
	}
	var fitting []string
	for i, name := range names {
		use := w.use(name)
		want := !w.gone[name] && w.fits(w.nodes[name], use, request.Shares)
		if got := all[i].Kind == Fits; got != want {
			w.t.Fatalf("%+v on node %s with %+v: %+v, want %v", request.Shares, name, use, all[i], want)
		}
		if want {
			fitting = append(fitting, name)
		} else if scores[i] != 0 {
			w.t.Fatalf("node %s, on which the pod does not fit, has score %d", name, scores[i])
		}
	}
	if len(fitting) == 0 {
		w.refused++
		if _, err := w.l.Reserve(p, names[0]); !errors.Is(err, ErrTaken) {
			w.t.Fatalf("reserved where nothing fits: %v", err)
		}
		return
	}
	node := fitting[w.random.IntN(len(fitting))]
	a, err := w.l.Reserve(p, node)
	if err != nil {
		w.t.Fatal(err)
	}
	if again, err := w.l.Reserve(p, node); err != nil || text(w.t, again.Text) != text(w.t, a.Text) {
		w.t.Fatalf("reserved again: %+v, %v", again, err)
	}
	if err := a.Answers(string(p.UID), &request); err != nil {
		w.t.Fatal(err)
	}
	w.placed++
	w.given[p.UID], w.places[p.UID] = a, node
}

// see has a pod be seen on its node.
func (w *world) see(uid types.UID) {
	if a, ok := w.given[uid]; ok && w.pods[uid].Spec.NodeName == "" {
		w.pods[uid] = bound(w.t, w.pods[uid], w.places[uid], a)
		w.l.SetPod(uid, w.pods[uid])
	}
}

// use is what is given of GPUs.
type use struct {
	memory         uint64
	cores, tenants int
}

// use is what pods and agents have of a node's GPUs. A fence makes a GPU full.
func (w *world) use(node string) map[string]use {
	all := map[string]use{}
	count := func(a v1alpha1.PodAssignment) {
		for _, s := range a.Shares {
			for _, g := range s.GPUs {
				u := all[g.UUID]
				u.memory, u.tenants = u.memory+g.Memory, u.tenants+1
				if s.Whole {
					u.cores += 100
				} else {
					u.cores += g.Cores
				}
				all[g.UUID] = u
			}
		}
	}
	for uid, a := range w.given {
		if w.places[uid] == node {
			count(a)
		}
	}
	for uid, a := range w.held[node] {
		if w.gone[node] {
			break
		}
		if !w.has(uid, node) {
			count(a)
		}
	}
	for _, g := range w.others[node] {
		u := all[g.UUID]
		all[g.UUID] = use{u.memory + g.Memory, u.cores + g.Cores, u.tenants + g.Tenants}
	}
	for _, f := range w.l.Fences() {
		if f.Node == node {
			u := all[f.UUID]
			u.memory, u.tenants = 1<<60, max(1, u.tenants)
			all[f.UUID] = u
		}
	}
	return all
}

// fits tries every choice of GPUs for shares.
func (w *world) fits(gpus []v1alpha1.NodeGPU, used map[string]use, shares []v1alpha1.ShareRequired) bool {
	if len(shares) == 0 {
		return true
	}
	s := &shares[0]
	var choose func(from, left int) bool
	choose = func(from, left int) bool {
		if left == 0 {
			return w.fits(gpus, used, shares[1:])
		}
		for i := from; i < len(gpus); i++ {
			g := &gpus[i]
			before := used[g.UUID]
			after, ok := before.with(g, s)
			if !ok {
				continue
			}
			used[g.UUID] = after
			done := choose(i+1, left-1)
			used[g.UUID] = before
			if done {
				return true
			}
		}
		return false
	}
	return choose(0, s.GPUs)
}

// with is what is given of a GPU after one more share.
func (u use) with(g *v1alpha1.NodeGPU, s *v1alpha1.ShareRequired) (use, bool) {
	if s.Whole {
		return use{g.Memory, 100, 1}, u.tenants == 0
	}
	memory := s.Amount().Of(g.Memory)
	if memory <= g.ContextBytes || memory > g.Memory || u.memory > g.Memory-memory || u.cores+s.Cores > 100 {
		return u, false
	}
	return use{u.memory + memory, u.cores + s.Cores, u.tenants + 1}, true
}

// Whatever happens, in whatever order the ledger hears of it: a pod fits exactly where trying everything finds a place,
// nothing is given twice, and the ledger is what one would be that is made anew.
func TestRandomWorlds(t *testing.T) {
	placed, refused := 0, 0
	for seed := range uint64(6) {
		w := newWorld(t, seed, alloc.PolicyNames()[seed%2])
		for i := range 600 {
			w.step()
			for name, gpus := range w.nodes {
				used := w.use(name)
				for _, g := range gpus {
					if u := used[g.UUID]; u.memory < 1<<60 && (u.memory > g.Memory || u.cores > 100) {
						t.Fatalf("seed %d, step %d: %+v is given of GPU %s with %d bytes", seed, i, u, g.UUID, g.Memory)
					}
				}
			}
			if i%10 == 0 {
				check(t, w.l)
			}
		}
		w.orders()
		placed, refused = placed+w.placed, refused+w.refused
	}
	if placed < 150 || refused < 100 {
		t.Errorf("%d pods were placed and %d refused: the worlds tell little", placed, refused)
	}
}

// orders compares ledgers that hear of the same objects in other orders.
func (w *world) orders() {
	for uid := range w.pods {
		if w.l.Undo(uid) {
			delete(w.given, uid)
		}
	}
	w.l.Advance(w.now.Add(2 * grace))
	for range 4 {
		made := newLedger(w.t, alloc.DefaultPolicy)
		var tell []func()
		for name := range w.nodes {
			tell = append(tell, func() { made.SetNode(name, w.object(name)) })
		}
		for uid, p := range w.pods {
			tell = append(tell, func() { made.SetPod(uid, p) })
		}
		w.random.Shuffle(len(tell), func(i, j int) { tell[i], tell[j] = tell[j], tell[i] })
		for _, one := range tell {
			one()
			if w.random.IntN(3) == 0 {
				made.Inventory()
			}
		}
		made.Advance(w.now)
		made.Advance(w.now.Add(2 * grace))
		if text := w.l.Difference(made); text != "" {
			w.t.Fatalf("in another order: %s", text)
		}
	}
}
