package ledger

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/alloc"
)

// Whatever annotations say, the ledger answers, says the same as one that is made anew, and gives no GPU twice by itself.
func FuzzAnnotations(f *testing.F) {
	all := gpus("n0", 3, 40*gib)
	request := text(f, v1alpha1.PodRequest{Shares: []v1alpha1.ShareRequired{ask("main", 1, 10*gib, 30), whole("all", 1)}}.Text)
	assignment := v1alpha1.PodAssignment{Pod: "a", Shares: []v1alpha1.ShareAssigned{
		{Name: "main", Containers: []string{"main"}, Config: sharing, GPUs: []v1alpha1.GPUAssigned{{UUID: all[0].UUID, Memory: 10 * gib, Cores: 30}}},
		{Name: "all", Containers: []string{"all"}, Whole: true, GPUs: []v1alpha1.GPUAssigned{{UUID: all[1].UUID, Memory: 40 * gib}}},
	}}
	held := v1alpha1.NodeHeld{
		GPUs:   []v1alpha1.GPUHeld{{UUID: all[2].UUID, Memory: 50 * gib, Cores: 130, Tenants: 3, Form: v1alpha1.BackendSlice}},
		Shares: heldFor(assignment),
	}
	gpusText := text(f, v1alpha1.NodeGPUs{GPUs: all}.Text)
	f.Add(gpusText, text(f, held.Text), request, text(f, assignment.Text), "A100", "least-capable")
	f.Add(gpusText, "", request, "", "", "T4")
	selecting := ask("main", 1, gib, 0)
	selecting.Selectors = []string{`device.attributes["divvy.dev"].numaNode == 0`}
	selecting.SetAmount(v1alpha1.PartOf(1, 3))
	f.Add(`{"version":1,"gpus":[]}`, `{"version":1,"gpus":[],"shares":[]}`, text(f, v1alpha1.PodRequest{Shares: []v1alpha1.ShareRequired{selecting}}.Text), "{}", ";", ";")
	f.Fuzz(func(t *testing.T, gpus, held, request, assignment, models, prefer string) {
		l := newLedger(t, alloc.DefaultPolicy)
		n := nodeOf(t, "n0", nil, nil)
		n.Annotations = map[string]string{v1alpha1.GPUsAnnotation: gpus, v1alpha1.HeldAnnotation: held}
		l.SetNode("n0", n)
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "a", Annotations: map[string]string{
			v1alpha1.RequestAnnotation: request, v1alpha1.AssignmentAnnotation: assignment, v1alpha1.ModelsAnnotation: models, v1alpha1.PreferAnnotation: prefer,
		}}}
		bound := p.DeepCopy()
		bound.Spec.NodeName = "n0"
		l.SetPod("a", bound)
		check(t, l)
		before := counted(l)
		for i := range 4 {
			waiting := p.DeepCopy()
			waiting.UID = types.UID(fmt.Sprint("w", i))
			l.SetPod(waiting.UID, waiting)
			verdicts, err := l.Filter(waiting, []string{"n0", "n1"})
			a, wrong := l.Reserve(waiting, "n0")
			if err == nil && (verdicts[0].Kind == Fits) != (wrong == nil) {
				t.Fatalf("%+v, and reserved: %v", verdicts, wrong)
			}
			if wrong != nil {
				if !errors.Is(wrong, ErrPod) && !errors.Is(wrong, ErrTaken) {
					t.Fatal(wrong)
				}
				break
			}
			if _, err := a.Text(); err != nil {
				t.Fatalf("the answer cannot be written: %v", err)
			}
		}
		check(t, l)
		for i, g := range counted(l) {
			if g.Granted > before[i].Granted && (g.Granted > g.Capacity || g.Cores > 100 || before[i].Fence != "") {
				t.Fatalf("given is %+v of what was %+v", g, before[i])
			}
		}
		l.Advance(l.now.Add(2 * grace))
		check(t, l)
		l.SetNode("n0", nil)
		l.SetPod("a", nil)
		for _, r := range l.Reservations() {
			l.Undo(r.Pod)
			l.SetPod(r.Pod, nil)
		}
		check(t, l)
	})
}

// counted are the GPUs of the first node as the inventory has them.
func counted(l *Ledger) []alloc.GPU {
	at, ok := l.Inventory().Position("n0")
	if !ok {
		return nil
	}
	return append([]alloc.GPU(nil), l.Inventory().Node(at).GPUs...)
}

// Amounts that nobody has, shares of GPUs that are not there and everything twice change nothing of that.
func TestNonsense(t *testing.T) {
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 9))
		amount := func() uint64 { return []uint64{1, gib, 39 * gib, 40 * gib, 1 << 62, 1<<63 - 1}[random.IntN(6)] }
		l := newLedger(t, alloc.DefaultPolicy)
		all := gpus("n0", random.IntN(20), amount())
		for i := range all {
			all[i].ContextBytes, all[i].Slots = amount()*uint64(random.IntN(2)), random.IntN(3)
			all[i].Architecture, all[i].NVLinkClique, all[i].DriverVersion = "x", "y", "no version"
		}
		given := func(uid string) v1alpha1.PodAssignment {
			a := v1alpha1.PodAssignment{Pod: uid}
			for _, name := range []string{"a", "b", "c"}[random.IntN(3):] {
				s := v1alpha1.ShareAssigned{Name: name, Containers: []string{name}, Whole: random.IntN(3) == 0}
				if !s.Whole {
					s.Config = sharing
				}
				for i := range 1 + random.IntN(3) {
					s.GPUs = append(s.GPUs, v1alpha1.GPUAssigned{UUID: gpuOf("n0", 7*i+random.IntN(7)), Memory: amount(), Cores: random.IntN(101)})
				}
				a.Shares = append(a.Shares, s)
			}
			return a
		}
		request := func(a v1alpha1.PodAssignment) (all []v1alpha1.ShareRequired) {
			for _, s := range a.Shares {
				all = append(all, v1alpha1.ShareRequired{Name: s.Name, Containers: s.Containers, GPUs: len(s.GPUs), Whole: s.Whole, Config: s.Config})
			}
			return all
		}
		held := &v1alpha1.NodeHeld{}
		for i := range random.IntN(4) {
			held.GPUs = append(held.GPUs, v1alpha1.GPUHeld{UUID: gpuOf("n0", i), Memory: amount(), Cores: random.IntN(10000), Tenants: 1 + random.IntN(9999), Form: v1alpha1.BackendMPS})
		}
		for i := range 12 {
			uid := fmt.Sprint("uid", i)
			a := given(uid)
			if random.IntN(2) == 0 {
				held.Shares = append(held.Shares, heldFor(given(uid))...)
			}
			p := podOf(t, uid, request(a)...)
			p.Spec.NodeName, p.Annotations[v1alpha1.AssignmentAnnotation] = "n0", text(t, a.Text)
			l.SetPod(p.UID, p)
			if i == 6 {
				l.SetNode("n0", nodeOf(t, "n0", all, held))
			}
			check(t, l)
			waiting := podOf(t, uid+"w", request(a)...)
			if _, err := l.Reserve(waiting, "n0"); err != nil && !errors.Is(err, ErrTaken) && !errors.Is(err, ErrPod) {
				t.Fatal(err)
			}
			check(t, l)
		}
		l.SetNode("n0", nodeOf(t, "n0", all, held))
		l.Advance(l.now.Add(2 * grace))
		check(t, l)
		l.SetNode("n0", nodeOf(t, "n0", gpus("n0", 2, 40*gib), nil))
		for i := range 12 {
			l.SetPod(types.UID(fmt.Sprint("uid", i)), nil)
			l.Undo(types.UID(fmt.Sprint("uid", i, "w")))
		}
		for i, g := range counted(l) {
			if g.Granted != 0 || g.Cores != 0 || g.Tenants != 0 || g.Fence != "" {
				t.Fatalf("seed %d: GPU %d has %+v, and everybody has gone", seed, i, g)
			}
		}
		check(t, l)
	}
}
