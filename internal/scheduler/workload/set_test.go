package workload

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/alloc"
	"github.com/divvy-gpu/divvy/internal/queue"
)

const model = "NVIDIA A100-SXM4-80GB"

// gangs are those that pods name in a label, all of whose members must be there.
type gangs struct{ minimum int }

func (g gangs) Gang(pod *corev1.Pod) (string, int, bool) {
	name := pod.Labels["gang"]
	return name, g.minimum, name != ""
}

var morning = time.Date(2026, 5, 4, 8, 0, 0, 0, time.UTC)

// pod is one that was created so many seconds after the first.
func podOf(namespace, name, queue string, second int) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: name, UID: types.UID(namespace + "/" + name), Labels: map[string]string{},
		CreationTimestamp: metav1.NewTime(morning.Add(time.Duration(second) * time.Second)),
	}}
	if queue != "" {
		p.Labels[v1alpha1.QueueLabel] = queue
	}
	return p
}

func gpus(n int64) []queue.Charge {
	return []queue.Charge{{Models: []string{model}, GPUs: 1000 * n, Cores: 100 * n, Memory: 80 << 10 * n}}
}

// department is a queue with a guarantee for one namespace.
func department(name string, guaranteed int64, namespaces ...string) queue.Spec {
	return queue.Spec{Name: name, QueueSpec: v1alpha1.QueueSpec{
		Namespaces: namespaces, Resources: []v1alpha1.QueueShare{{Guaranteed: v1alpha1.Written(fmt.Sprint(guaranteed))}},
	}}
}

func newSet(minimum int, specs ...queue.Spec) *Set {
	s := New(gangs{minimum})
	s.SetQueues(specs)
	s.SetCapacity(gpus(8))
	return s
}

func (s *Set) use(t *testing.T, name string) v1alpha1.QueueUse {
	t.Helper()
	s.Settle()
	all := s.Book.Standing(name)
	if len(all) != 1 {
		t.Fatalf("queue %s stands in %d dimensions", name, len(all))
	}
	return all[0]
}

// A pod counts in the queue that it names if its namespace may use it, else in that of its namespace: no name takes a pod out of
// its department.
func TestHome(t *testing.T) {
	s := newSet(1, department("a", 4, "a"), department("b", 4, "b"))
	for i, c := range []struct{ namespace, queue, home, may string }{
		{"a", "", "a", ""},
		{"a", "a", "a", ""},
		{"a", "b", "a", "no queue: queue b is not for pods of namespace a"},
		{"a", "nowhere", "a", "no queue: there is no queue nowhere"},
		{"c", "", "", ""},
		{"c", "a", "", "no queue: queue a is not for pods of namespace c"},
	} {
		p := podOf(c.namespace, fmt.Sprint("p", i), c.queue, i)
		s.SetPod(p)
		if got := s.QueueOf(p.UID); got != c.home {
			t.Errorf("a pod of namespace %s that names %q counts in %q, not in %q", c.namespace, c.queue, got, c.home)
		}
		err := s.May(p)
		if got := fmt.Sprint(err); err != nil && (got != c.may || !errors.Is(err, ErrQueue)) || err == nil && c.may != "" {
			t.Errorf("a pod of namespace %s that names %q: %v", c.namespace, c.queue, err)
		}
	}
}

// A claim counts once, for its first pod; after its pod it counts by itself until it is cleared.
func TestClaims(t *testing.T) {
	s := newSet(1, department("a", 4, "a"))
	one, two := podOf("a", "one", "", 0), podOf("a", "two", "", 1)
	s.SetClaim("a/c", Claim{Charges: gpus(2), Pods: []types.UID{one.UID, two.UID}}) // before its pods
	if got := s.use(t, "a").Used; got != 2000 {
		t.Errorf("a claim without a pod that is there counts %d", got)
	}
	s.SetPod(one)
	s.SetPod(two)
	if got := s.use(t, "a"); got.Used != 2000 {
		t.Errorf("a shared claim counts %d", got.Used)
	}
	s.RemovePod(one.UID)
	if got := s.use(t, "a").Used; got != 2000 || len(s.Claims(two.UID)) != 1 {
		t.Errorf("after its first pod it counts %d, and the second has %v", got, s.Claims(two.UID))
	}
	s.RemovePod(two.UID)
	if got := s.use(t, "a").Used; got != 2000 {
		t.Errorf("after its pods it counts %d", got)
	}
	s.SetClaim("a/c", Claim{})
	if got := s.use(t, "a").Used; got != 0 {
		t.Errorf("a claim that was cleared counts %d", got)
	}
}

// What is demanded of a gang is as many members as must run together, and nothing while they are not there.
func TestGangDemand(t *testing.T) {
	s := newSet(3, department("a", 4, "a"))
	for i := range 4 {
		p := podOf("a", fmt.Sprint("m", i), "", i)
		p.Labels["gang"] = "g"
		s.SetPod(p)
		s.Ask(p.UID, gpus(1))
		want := map[int]int64{2: 3000, 3: 3000}[i]
		if got := s.use(t, "a").Demand; got != want {
			t.Errorf("with %d of 3 members %d are demanded", i+1, got)
		}
	}
	s.SetClaim("a/0", Claim{Charges: gpus(1), Pods: []types.UID{"a/m0"}})
	if got := s.use(t, "a"); got.Demand != 3000 || got.Used != 1000 {
		t.Errorf("with one member placed: %+v", got)
	}
	other := podOf("a", "m9", "a", 9)
	other.Labels["gang"] = "g"
	s.SetPod(other)
	if err := s.May(other); !errors.Is(err, ErrQueue) {
		t.Errorf("members that name different queues may start: %v", err)
	}
}

// A plan moves what counts from the victims to the demander at once, and what it took is not taken back as long as nobody wants more.
func TestAgree(t *testing.T) {
	s := newSet(1, department("a", 4, "a"), department("b", 4, "b"))
	for i := range 8 {
		p := podOf("a", fmt.Sprint("p", i), "", i)
		p.Spec.NodeName = "n"
		s.SetPod(p)
		s.SetClaim("a/"+p.Name, Claim{Charges: gpus(1), Pods: []types.UID{p.UID}})
	}
	d := podOf("b", "d", "", 9)
	s.SetPod(d)
	s.Ask(d.UID, gpus(4))
	demander := s.Demander(s.ID(d.UID), gpus(4))
	if !s.MayTake(&demander) {
		t.Fatal("nobody may be a victim though a uses 8 of 4")
	}
	var ends []types.UID
	for i := range 4 {
		ends = append(ends, types.UID(fmt.Sprint("a/p", i)))
	}
	if refusal := s.Agree(s.ID(d.UID), gpus(4), ends, ends); refusal != nil {
		t.Fatal(refusal)
	}
	if a, b := s.use(t, "a"), s.use(t, "b"); a.Used != 4000 || b.Used != 4000 {
		t.Errorf("while the victims end a uses %d and b %d", a.Used, b.Used)
	}
	s.Drop(s.ID(d.UID))
	for i, uid := range ends {
		s.RemovePod(uid)
		s.SetClaim(fmt.Sprint("a/p", i), Claim{})
	}
	d.Spec.NodeName = "n"
	s.SetPod(d)
	s.SetClaim("b/d", Claim{Charges: gpus(4), Pods: []types.UID{d.UID}})
	took := func() int {
		view := View{Held: func(string) []alloc.Assignment { return []alloc.Assignment{{Name: "n"}} }, Budgets: func(*corev1.Pod) []int { return nil }}
		all, _ := s.Candidates(view)
		for i := range all {
			if all[i].ID == s.ID(d.UID) {
				return len(all[i].TookFrom)
			}
		}
		t.Fatal("the demander is no candidate")
		return 0
	}
	for i := range 4 { // their owner makes them again
		p := podOf("a", fmt.Sprint("q", i), "", 20+i)
		s.SetPod(p)
		s.Ask(p.UID, gpus(1))
	}
	if took() != 1 {
		t.Error("what came back to b may be taken by the victims that came back")
	}
	more := podOf("a", "more", "", 30)
	s.SetPod(more)
	s.Ask(more.UID, gpus(1))
	if took() != 0 {
		t.Error("a wants more than before, and may take nothing from b")
	}
}

// Whatever comes in whatever order, the book is as one that is told of the last state of everything.
func TestSameAsAnew(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // to be repeated
		specs := []queue.Spec{department("a", 3, "a"), department("b", 4, "b")}
		s := newSet(2, specs...)
		pods, asks := map[types.UID]*corev1.Pod{}, map[types.UID]int64{}
		type claim struct {
			n     int64
			users []types.UID
		}
		claims := map[string]claim{}
		for range 60 {
			name := fmt.Sprint("p", random.IntN(6))
			p := podOf([]string{"a", "b", "c"}[random.IntN(3)], name, []string{"", "a", "b", "x"}[random.IntN(4)], random.IntN(3))
			if random.IntN(3) == 0 {
				p.Labels["gang"] = "g"
			}
			if random.IntN(4) == 0 {
				p.Labels[v1alpha1.QuotaLabel] = string(v1alpha1.QuotaOpportunistic)
			}
			key := "a/" + name
			switch random.IntN(5) {
			case 0:
				s.RemovePod(p.UID)
				delete(pods, p.UID)
				delete(asks, p.UID)
			case 1:
				s.SetPod(p)
				pods[p.UID] = p
			case 2:
				if pods[p.UID] != nil {
					asks[p.UID] = int64(random.IntN(3))
					s.Ask(p.UID, charged(asks[p.UID]))
				}
			case 3:
				claims[key] = claim{int64(random.IntN(3)), []types.UID{p.UID, types.UID("b/" + name)}[:1+random.IntN(2)]}
				s.SetClaim(key, Claim{Charges: charged(claims[key].n), Pods: claims[key].users, Flies: random.IntN(2) == 0})
			case 4:
				s.SetQueues(specs[:1+random.IntN(2)])
				s.Settle()
				s.SetQueues(specs)
			}
			if random.IntN(3) == 0 {
				s.Settle()
			}
		}
		anew := newSet(2, specs...)
		for _, p := range pods {
			anew.SetPod(p)
		}
		for uid, n := range asks {
			anew.Ask(uid, charged(n))
		}
		for key, c := range claims {
			anew.SetClaim(key, Claim{Charges: charged(c.n), Pods: c.users})
		}
		for _, name := range []string{"a", "b"} {
			s.Settle()
			anew.Settle()
			got, want := s.Book.Standing(name), anew.Book.Standing(name)
			if !reflect.DeepEqual(got, want) {
				t.Fatalf("seed %d: queue %s stands at %+v, and anew at %+v", seed, name, got, want)
			}
			r1, w1 := s.Book.Counts(name)
			if r2, w2 := anew.Book.Counts(name); r1 != r2 || w1 != w2 {
				t.Fatalf("seed %d: queue %s has %d and %d, anew %d and %d", seed, name, r1, w1, r2, w2)
			}
		}
	}
}

func charged(n int64) []queue.Charge {
	if n == 0 {
		return nil
	}
	return gpus(n)
}
