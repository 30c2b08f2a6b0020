package faults

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

var (
	wanted = flag.Int("binds", 100, "pods to bind among faults")
	seed   = flag.Uint64("seed", 0, "seed of a run, 0 for a new one")
)

const (
	// pace is the time between two looks at the cluster.
	pace = 100 * time.Millisecond
	// gap is how many pods are bound between two faults, restEvery between two checks at rest.
	gap, restEvery = 12, 500
	// restLimit bounds how long contradictions may last after the last fault.
	restLimit = 90 * time.Second
	// faultLimit bounds a fault that nobody ends.
	faultLimit = 15 * time.Second
)

// run is a cluster under load and faults.
type run struct {
	*world
	rand *rand.Rand
	load *load
	has  capacities

	pods  []corev1.Pod // at the last look
	bound map[types.UID]bool
	// moved is when one was bound last.
	moved time.Time
	// last and rested are how many were bound at the last fault and at the last rest.
	last, rested int
	queue        []fault
	now          *fault
	began        time.Time
	// lostNode is -1 while none is lost.
	lostNode int
	met      map[string]int
}

// Pods are bound while everything that the scheduler stands on fails at random, and nothing is given twice.
func TestFaults(t *testing.T) {
	number := *seed
	if number == 0 {
		number = rand.Uint64N(1 << 32)
	}
	t.Logf("seed %d", number)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("this was seed %d", number)
		}
	})
	nodes, gpus := 12, 4
	if *wanted > 1000 {
		nodes, gpus = 40, 8
	}
	source := rand.New(rand.NewPCG(number, 1)) //nolint:gosec // to be repeated
	w := newWorld(t, nodes, gpus)
	r := &run{
		world: w, rand: source, load: &load{Rand: rand.New(rand.NewPCG(number, 2))}, //nolint:gosec // to be repeated
		has: w.capacities(), bound: map[types.UID]bool{}, lostNode: -1, met: map[string]int{}, moved: time.Now(),
	}
	w.must(w.StartScheduler(t.Context()))
	w.start()
	ticker := time.NewTicker(pace)
	defer ticker.Stop()
	for begun := time.Now(); len(r.bound) < *wanted; <-ticker.C {
		r.step()
		if len(r.bound)-r.rested >= restEvery {
			r.rest()
			t.Logf("%d bound after %.0f s; faults: %v", len(r.bound), time.Since(begun).Seconds(), r.met)
		}
		if time.Since(r.moved) > restLimit {
			t.Fatalf("%d pods were bound, and then none for %v\n%s", len(r.bound), restLimit, w.logs())
		}
	}
	r.rest()
	r.drain()
	t.Logf("%d bound; faults: %v", len(r.bound), r.met)
}

// step looks at the cluster, makes and ends pods, and goes on with the faults.
func (r *run) step() {
	r.t.Helper()
	r.look()
	most := r.nodes * r.gpus * 3
	for range 4 {
		if len(r.pods) < most {
			r.must(r.make(r.load.next()))
		}
	}
	if len(r.pods) > most*3/4 {
		r.end(1 + r.rand.IntN(6))
	}
	r.start()
	switch {
	case r.now != nil && (r.now.over == nil || r.now.over(r) || time.Since(r.began) > faultLimit):
		r.finish()
	case r.now == nil && len(r.bound)-r.last >= gap:
		r.begin()
	}
}

// look counts who was bound, and checks what is wrong at any time.
func (r *run) look() *picture {
	r.t.Helper()
	p, err := r.picture(r.t.Context())
	r.must(err)
	if faults := p.twice(r.has); len(faults) > 0 {
		r.t.Fatalf("given twice:\n%s\n%s", strings.Join(faults, "\n"), r.logs())
	}
	r.pods = p.pods
	for i := range p.pods {
		if uid := p.pods[i].UID; p.pods[i].Spec.NodeName != "" && !r.bound[uid] {
			r.bound[uid], r.moved = true, time.Now()
		}
	}
	return p
}

// make makes pods and what they need.
func (r *run) make(b batch) error {
	ctx := r.t.Context()
	for _, claim := range b.claims {
		if _, err := r.client.ResourceV1().ResourceClaims(namespace).Create(ctx, claim, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	for _, template := range b.templates {
		if _, err := r.client.ResourceV1().ResourceClaimTemplates(namespace).Create(ctx, template, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	for _, pod := range b.pods {
		if _, err := r.client.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	return nil
}

// end ends some pods, bound or not, and with a member its gang.
func (r *run) end(n int) {
	r.t.Helper()
	var names []string
	for range n {
		one := &r.pods[r.rand.IntN(len(r.pods))]
		names = append(names, one.Name)
		if gang := one.Labels[gangLabel]; gang != "" {
			for i := range r.pods {
				if r.pods[i].Labels[gangLabel] == gang {
					names = append(names, r.pods[i].Name)
				}
			}
		}
	}
	r.must(r.remove(names))
}

// remove ends pods at once, several at a time.
func (r *run) remove(names []string) error {
	now := int64(0)
	slices.Sort(names)
	names = slices.Compact(names)
	failed := make([]error, len(names))
	var group sync.WaitGroup
	room := make(chan struct{}, 16)
	for i := range names {
		room <- struct{}{}
		group.Go(func() {
			defer func() { <-room }()
			err := r.client.CoreV1().Pods(namespace).Delete(r.t.Context(), names[i], metav1.DeleteOptions{GracePeriodSeconds: &now})
			if err != nil && !apierrors.IsNotFound(err) {
				failed[i] = err
			}
		})
	}
	group.Wait()
	return errors.Join(failed...)
}

// begin begins the next fault. All faults have their turn before the first comes again.
func (r *run) begin() {
	if len(r.queue) == 0 {
		r.queue = slices.Clone(faults)
		r.rand.Shuffle(len(r.queue), func(i, k int) { r.queue[i], r.queue[k] = r.queue[k], r.queue[i] })
	}
	r.now, r.began, r.last = &r.queue[0], time.Now(), len(r.bound)
	r.queue = r.queue[1:]
	r.met[r.now.name]++
	r.t.Logf("%d bound; %s", len(r.bound), r.now.name)
	r.now.begin(r)
}

// finish ends the fault that there is.
func (r *run) finish() {
	if r.now != nil && r.now.end != nil {
		r.now.end(r)
	}
	r.now = nil
}

// rest ends all faults and waits until pods and claims agree.
func (r *run) rest() {
	r.t.Helper()
	r.finish()
	r.rested = len(r.bound)
	r.until("the cluster is at rest", restLimit, func() (bool, string) {
		r.start()
		if faults := r.look().restless(); len(faults) > 0 {
			return false, fmt.Sprintf("%d contradictions: %s", len(faults), strings.Join(faults[:min(8, len(faults))], "; "))
		}
		return r.agrees()
	})
	r.sweep()
}

// ledgerDifferences is what a scheduler finds different between its ledger and one made anew of the cluster's objects.
const ledgerDifferences = "divvy_scheduler_ledger_differences"

// agrees reports whether the leader's ledger is that of the cluster's objects.
func (r *run) agrees() (bool, string) {
	leader := r.leader()
	if leader == "" {
		return false, "nobody leads"
	}
	ctx, cancel := context.WithTimeout(r.t.Context(), 5*time.Second)
	defer cancel()
	text, err := r.Process(leader).Get(ctx, "/metrics")
	if err != nil {
		return false, err.Error()
	}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, ledgerDifferences+" ") {
			return strings.TrimSpace(line) == ledgerDifferences+" 0", line
		}
	}
	return false, "the scheduler does not tell " + ledgerDifferences
}

// sweep removes claims that were made by hand and that no pod names any more.
func (r *run) sweep() {
	r.t.Helper()
	used := map[string]bool{}
	for i := range r.pods {
		for _, reference := range r.pods[i].Spec.ResourceClaims {
			if reference.ResourceClaimName != nil {
				used[*reference.ResourceClaimName] = true
			}
		}
	}
	p, err := r.picture(r.t.Context())
	r.must(err)
	for i := range p.claims {
		if c := &p.claims[i]; len(c.OwnerReferences) == 0 && !used[c.Name] {
			r.must(r.client.ResourceV1().ResourceClaims(namespace).Delete(r.t.Context(), c.Name, metav1.DeleteOptions{}))
		}
	}
}

// drain ends pods until each that can get a node has got one, then all of them, and looks that nothing is left and new ones
// are bound.
func (r *run) drain() {
	r.t.Helper()
	r.until("every pod got a node", 2*restLimit, func() (bool, string) {
		r.look()
		var names, waits []string
		for i := range r.pods {
			switch p := &r.pods[i]; {
			case p.Spec.NodeName != "":
				names = append(names, p.Name)
			case p.Labels[mayWait] == "":
				waits = append(waits, fmt.Sprintf("%s: %v", p.Name, reasonOf(p)))
			}
		}
		r.must(r.remove(names))
		return len(waits) == 0, fmt.Sprintf("%d wait: %s", len(waits), strings.Join(waits[:min(5, len(waits))], "; "))
	})
	r.look()
	var names []string
	for i := range r.pods {
		if r.pods[i].Labels[mayWait] != "" && r.pods[i].Spec.NodeName != "" {
			r.t.Errorf("pod %s has a node", r.pods[i].Name)
		}
		names = append(names, r.pods[i].Name)
	}
	r.must(r.remove(names))
	r.rest()
	p := r.look()
	for i := range p.claims {
		if p.claims[i].Status.Allocation != nil {
			r.t.Errorf("claim %s has devices after all pods have ended", p.claims[i].Name)
		}
	}
	r.probe()
}

// probe looks that a pod is bound.
func (w *world) probe() {
	w.t.Helper()
	l := &load{Rand: rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 3))} //nolint:gosec // a name alone
	pod := l.described(fmt.Sprintf("probe-%d", time.Now().UnixNano()), share(1, 1, 1))
	pods := w.client.CoreV1().Pods(namespace)
	_, err := pods.Create(w.t.Context(), pod, metav1.CreateOptions{})
	w.must(err)
	w.until("a pod is bound after all that", 30*time.Second, func() (bool, string) {
		w.start()
		got, err := pods.Get(w.t.Context(), pod.Name, metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		return got.Spec.NodeName != "", reasonOf(got)
	})
	now := int64(0)
	w.must(pods.Delete(w.t.Context(), pod.Name, metav1.DeleteOptions{GracePeriodSeconds: &now}))
}

// reasonOf is why a pod waits, as it says itself.
func reasonOf(p *corev1.Pod) string {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return c.Message
		}
	}
	return ""
}

// replace makes a member anew of a gang that lost one, as a Job would.
func (r *run) replace(lost *corev1.Pod) error {
	b := batch{pods: []*corev1.Pod{r.load.described(r.load.name("again"), share(20, 10, 1))}}
	for _, name := range []string{v1alpha1.GangAnnotation, v1alpha1.GangSizeAnnotation} {
		b.pods[0].Annotations[name] = lost.Annotations[name]
	}
	b.pods[0].Labels[gangLabel], b.pods[0].Labels[lossLabel] = lost.Labels[gangLabel], "yes"
	return r.make(b)
}
