package pool

import (
	"fmt"
	"math/rand"
	"os"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/dialect"
	"github.com/divvy-gpu/divvy/internal/topology"
	"github.com/divvy-gpu/divvy/test/bench/figure"
)

// pairsAsked is what a pod asks: so many pairs whose cards may be so far, with whole GPUs or with so many GiB of each.
type pairsAsked struct {
	count int
	reach v1alpha1.PairReach
	gib   int
}

// claim is what the webhook makes of it.
func (a pairsAsked) claim(t testing.TB, translator *dialect.Translator) resourcev1.ResourceClaimSpec {
	t.Helper()
	limits := corev1.ResourceList{v1alpha1.ResourcePairs: *resource.NewQuantity(int64(a.count), resource.DecimalSI)}
	if a.gib > 0 {
		limits[v1alpha1.ResourceMemory] = *resource.NewQuantity(int64(a.gib)<<30, resource.BinarySI)
	}
	pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{Limits: limits}}}}}
	pod.Annotations = map[string]string{v1alpha1.PairsFallbackAnnotation: string(a.reach)}
	made, err := translator.Translate(pod, dialect.Inventory{Sizes: []uint64{pairMemory}})
	if err != nil || len(made.Templates) != 1 {
		t.Fatalf("%+v becomes %d templates, %v", a, len(made.Templates), err)
	}
	return made.Templates[0].Spec.Spec
}

func plainTranslator(t testing.TB) *dialect.Translator {
	t.Helper()
	translator, err := dialect.NewTranslator([]byte("apiVersion: divvy.dev/v1alpha1\nkind: WebhookConfig\ndialects: {plain: {}}"))
	if err != nil {
		t.Fatal(err)
	}
	return translator
}

const pairMemory = 80 << 30

// paired is a recorded machine with what its devices have left, as the exhaustive search knows it: by the machine's own model
// and not by what is published.
type paired struct {
	host  *topology.Host
	free  []int // GiB of each GPU
	slots []int // of each card that is published; -1 for others
	held  map[string][]pairGiven
}

// pairGiven is a pair of a claim.
type pairGiven struct{ gpu, card, gib int }

// near is how far a card is from a GPU: 1 for one switch, 2 for one host bridge, 3 for one NUMA node, 4 for farther.
func (p *paired) near(gpu, card int) int {
	switch p.host.Between(p.host.GPUs[gpu].Device, p.host.NICs[card].Device).Kind {
	case topology.PIX, topology.PXB:
		return 1
	case topology.PHB:
		return 2
	case topology.NODE:
		return 3
	}
	return 4
}

// most tries every choice of GPUs and cards, and returns the most pairs that can be on one switch each while all are within
// reach; -1 where not all can be had.
func (p *paired) most(a pairsAsked) int {
	best := -1
	var try func(from, left, near int)
	try = func(from, left, near int) {
		if near+left <= best {
			return
		}
		if left == 0 {
			best = near
			return
		}
		for gpu := from; gpu+left <= len(p.free); gpu++ {
			if a.gib == 0 && p.free[gpu] < pairMemory>>30 || p.free[gpu] < a.gib {
				continue
			}
			for card := range p.slots {
				level := p.near(gpu, card)
				if p.slots[card] < 1 || level > a.reach.Levels() {
					continue
				}
				gain := 0
				if level == 1 {
					gain = 1
				}
				p.slots[card]--
				try(gpu+1, left-1, near+gain)
				p.slots[card]++
			}
		}
	}
	try(0, a.count, 0)
	return best
}

// take notes what a claim was given, and fails the test unless it is what was asked. It returns how many of the pairs are on
// one switch each.
func (p *paired) take(t testing.TB, name string, a pairsAsked, results []resourcev1.DeviceRequestAllocationResult) (near int) {
	t.Helper()
	given := make([]pairGiven, a.count)
	for i := range given {
		given[i] = pairGiven{-1, -1, a.gib}
	}
	for _, r := range results {
		pair, nic, ok := dialect.PairOf(r.Request)
		if !ok || pair >= a.count {
			t.Fatalf("a result is for request %s", r.Request)
		}
		if nic {
			given[pair].card = slices.IndexFunc(p.host.NICs, func(n topology.NIC) bool { return cardOf(&n, 0, 1).Name == r.Device })
		} else {
			given[pair].gpu = slices.IndexFunc(p.host.GPUs, func(g topology.GPU) bool { return Name(g.UUID, Shared) == r.Device })
		}
	}
	seen := map[int]bool{}
	for _, g := range given {
		if g.gpu < 0 || g.card < 0 || seen[g.gpu] {
			t.Fatalf("%+v got %+v", a, given)
		}
		seen[g.gpu] = true
		if g.gib == 0 {
			g.gib = pairMemory >> 30
		}
		p.free[g.gpu] -= g.gib
		p.slots[g.card]--
		if p.free[g.gpu] < 0 || p.slots[g.card] < 0 || p.near(g.gpu, g.card) > a.reach.Levels() {
			t.Fatalf("%+v got %+v, which is not free or too far", a, given)
		}
		if p.near(g.gpu, g.card) == 1 {
			near++
		}
		p.held[name] = append(p.held[name], g)
	}
	return near
}

func (p *paired) release(name string) {
	for _, g := range p.held[name] {
		p.free[g.gpu] += g.gib
		p.slots[g.card]++
	}
	delete(p.held, name)
}

// newPaired is the recorded host, of whose cards some are published with these slots; 0 leaves a card out.
func newPaired(t *testing.T, host *topology.Host, slots []int) (*paired, *scheduler) {
	t.Helper()
	p := &paired{host: host, held: map[string][]pairGiven{}}
	s := newScheduler(t, gpusOn(host, pairMemory))
	for range host.GPUs {
		p.free = append(p.free, pairMemory>>30)
	}
	for i := range host.NICs {
		p.slots = append(p.slots, slots[i])
		if slots[i] > 0 {
			s.withCards(cardOf(&host.NICs[i], i, slots[i]))
		}
	}
	return p.withClass(s), s
}

func (p *paired) withClass(s *scheduler) *paired {
	s.withCards()
	return p
}

// ask has Kubernetes' allocator place a claim, and compares with the exhaustive search. It returns how many pairs there are, and how
// many of those that can be on one switch are not.
func (p *paired) ask(t *testing.T, s *scheduler, translator *dialect.Translator, name string, a pairsAsked) (pairs, apart int) {
	t.Helper()
	want := p.most(a)
	devices := s.fits(name, want >= 0, a.claim(t, translator))
	if devices == nil {
		return 0, 0
	}
	near := p.take(t, name, a, s.held[name].Devices.Results)
	if near != want {
		t.Errorf("%s: of %+v %d are on one switch each, and %d could be", name, a, near, want)
	}
	return a.count, want - near
}

// many are slots that no test uses up.
func many(host *topology.Host) []int { return slices.Repeat([]int{64}, len(host.NICs)) }

// TestPairSwitch has Kubernetes' own allocator place pairs on a recorded host by our slices and the webhook's claims. DIVVY_LONG=pairs
// plays 1,000 random sequences, with less a part of them.
func TestPairSwitch(t *testing.T) {
	host := recorded(t, "a800x8")
	translator := plainTranslator(t)
	pairs, apart := 0, 0
	count := func(p, a int) { pairs, apart = pairs+p, apart+a }
	p, s := newPaired(t, host, many(host))
	for i := range 8 {
		count(p.ask(t, s, translator, fmt.Sprint(i), pairsAsked{count: 1, reach: v1alpha1.ReachStrict}))
	}
	p, s = newPaired(t, host, many(host))
	count(p.ask(t, s, translator, "all", pairsAsked{count: 8, reach: v1alpha1.ReachStrict}))
	if pairs != 16 {
		t.Errorf("%d pairs of 8 by one and one of 8 were placed", pairs)
	}
	sequences := 40
	if os.Getenv("DIVVY_LONG") == "pairs" {
		sequences = 1000
	}
	for seed := range sequences {
		count(playPairs(t, host, translator, int64(seed)))
	}
	figure.Tell(t, figure.Figure{ID: "pair.switch", Values: []float64{float64(apart)},
		Note: fmt.Sprintf("of %d pairs, placed by Kubernetes' allocator on the recorded host a800x8: 8 by one, one of 8, %d random sequences", pairs, sequences)})
}

// playPairs plays one random sequence of claims that come and go.
func playPairs(t *testing.T, host *topology.Host, translator *dialect.Translator, seed int64) (pairs, apart int) {
	t.Helper()
	random := rand.New(rand.NewSource(seed))
	slots, scarce := many(host), seed%2 == 0
	for i := range slots {
		if scarce {
			slots[i] = []int{0, 1, 1, 2, 2, 3, 64}[random.Intn(7)]
		}
	}
	p, s := newPaired(t, host, slots)
	reaches := v1alpha1.PairReaches()
	var there []string
	for step := range 10 {
		if len(there) > 0 && random.Intn(3) == 0 {
			i := random.Intn(len(there))
			s.release(there[i])
			p.release(there[i])
			there = slices.Delete(there, i, i+1)
			continue
		}
		a := pairsAsked{count: 1 + random.Intn(3), reach: reaches[random.Intn(len(reaches))], gib: []int{0, 10, 30, 60}[random.Intn(4)]}
		if a.reach == v1alpha1.ReachStrict && !scarce && random.Intn(4) == 0 {
			a.count = 4 + random.Intn(5) // where cards are scarce, Kubernetes' allocator takes seconds to give up so many
		}
		name := fmt.Sprint(seed, "-", step)
		n, far := p.ask(t, s, translator, name, a)
		if pairs, apart = pairs+n, apart+far; n > 0 {
			there = append(there, name)
		}
	}
	return pairs, apart
}
