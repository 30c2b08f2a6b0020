package ledger

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/alloc"
)

// large is a ledger with so many nodes of 8 GPUs, on which pods were placed until that part of the GPUs is given.
func large(t testing.TB, nodes int, part float64) (l *Ledger, names []string, placed int) {
	t.Helper()
	l = newLedger(t, alloc.DefaultPolicy)
	for i := range nodes {
		name := fmt.Sprint("n", i)
		names = append(names, name)
		l.SetNode(name, nodeOf(t, name, gpus(name, 8, 40*gib), &v1alpha1.NodeHeld{}))
	}
	random := rand.New(rand.NewPCG(1, 1))
	for free := float64(nodes*8) * part; free > 0; placed++ {
		p := mixed(t, random, fmt.Sprint("uid", placed))
		l.SetPod(p.UID, p)
		scores, err := l.Prioritise(p, names)
		if err != nil {
			t.Fatal(err)
		}
		for i, s := range scores {
			if s != MostScore {
				continue
			}
			a, err := l.Reserve(p, names[i])
			if err != nil {
				t.Fatal(err)
			}
			l.SetPod(p.UID, bound(t, p, names[i], a))
			for _, s := range a.Shares {
				for _, g := range s.GPUs {
					free -= float64(g.Memory) / (40 * gib)
				}
			}
			break
		}
	}
	return l, names, placed
}

// mixed asks for one of a few things, as deployments do.
func mixed(t testing.TB, random *rand.Rand, uid string) *corev1.Pod {
	switch random.IntN(10) {
	case 0:
		return podOf(t, uid, whole("main", 1))
	case 1:
		return podOf(t, uid, whole("main", 8))
	case 2:
		return podOf(t, uid, ask("main", 1, 4*gib, 10), ask("side", 1, 2*gib, 0))
	case 3:
		return podOf(t, uid, ask("main", 2, 20*gib, 50))
	}
	return podOf(t, uid, ask("main", 1, uint64(1+random.IntN(4))*5*gib, 10*random.IntN(3)))
}

// BenchmarkFilter asks for the filter's answer about every node, each time after a pod was placed.
func BenchmarkFilter(b *testing.B) {
	for _, nodes := range []int{1000, 5000} {
		l, names, placed := large(b, nodes, 0.5)
		random := rand.New(rand.NewPCG(2, 2))
		var longest []time.Duration
		b.Run(fmt.Sprint(nodes), func(b *testing.B) {
			longest = longest[:0]
			for b.Loop() {
				b.StopTimer()
				placed++
				p := mixed(b, random, fmt.Sprint("uid", placed))
				l.SetPod(p.UID, p)
				b.StartTimer()
				start := time.Now()
				all, err := l.Filter(p, names)
				if err != nil {
					b.Fatal(err)
				}
				longest = append(longest, time.Since(start))
				b.StopTimer()
				for i, v := range all {
					if v.Kind == Fits {
						if _, err := l.Reserve(p, names[i]); err != nil {
							b.Fatal(err)
						}
						break
					}
				}
				l.SetPod(p.UID, nil)
				b.StartTimer()
			}
			b.ReportMetric(p99(longest), "p99-ms")
		})
	}
}

func p99(all []time.Duration) float64 {
	slices.Sort(all)
	return float64(all[len(all)*99/100].Microseconds()) / 1000
}

// BenchmarkPlace places a pod from its arrival until it is seen on its node, and ends it.
func BenchmarkPlace(b *testing.B) {
	for _, nodes := range []int{1000, 5000} {
		l, names, placed := large(b, nodes, 0.5)
		random := rand.New(rand.NewPCG(3, 3))
		b.Run(fmt.Sprint(nodes), func(b *testing.B) {
			for b.Loop() {
				placed++
				p := mixed(b, random, fmt.Sprint("uid", placed))
				l.SetPod(p.UID, p)
				if _, err := l.Filter(p, names); err != nil {
					b.Fatal(err)
				}
				scores, err := l.Prioritise(p, names)
				if err != nil {
					b.Fatal(err)
				}
				for i, s := range scores {
					if s == MostScore {
						a, err := l.Reserve(p, names[i])
						if err != nil {
							b.Fatal(err)
						}
						l.SetPod(p.UID, bound(b, p, names[i], a))
						break
					}
				}
				l.SetPod(p.UID, nil)
			}
		})
	}
}

// BenchmarkStart has a ledger hear of 20,000 pods with shares and 20,000 others on 5,000 nodes, as after a restart.
func BenchmarkStart(b *testing.B) {
	const nodes, pods = 5000, 20000
	var machines []*corev1.Node
	var all []*corev1.Pod
	for i := range nodes {
		name := fmt.Sprint("n", i)
		held := &v1alpha1.NodeHeld{}
		for k := range pods / nodes {
			a := v1alpha1.PodAssignment{Pod: fmt.Sprintf("uid%d-%d", i, k), Shares: []v1alpha1.ShareAssigned{{
				Name: "main", Containers: []string{"main"}, Config: sharing, GPUs: []v1alpha1.GPUAssigned{{UUID: gpuOf(name, k), Memory: 10 * gib, Cores: 20}},
			}}}
			all = append(all, bound(b, podOf(b, a.Pod, ask("main", 1, 10*gib, 20)), name, a))
			plain := podOf(b, "plain"+a.Pod, ask("main", 1, gib, 0))
			plain.Annotations, plain.Spec.NodeName = nil, name
			all = append(all, plain)
			held.Shares = append(held.Shares, heldFor(a)...)
		}
		machines = append(machines, nodeOf(b, name, gpus(name, 8, 40*gib), held))
	}
	for b.Loop() {
		l := newLedger(b, alloc.DefaultPolicy)
		for _, n := range machines {
			l.SetNode(n.Name, n)
		}
		for _, p := range all {
			l.SetPod(p.UID, p)
		}
		if l.Inventory().Len() != nodes || len(l.Fences()) > 0 {
			b.Fatal("it is not what it was")
		}
	}
}
