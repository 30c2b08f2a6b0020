package faults

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/test/bench/measurement"
)

var (
	wanted = flag.Int("binds", 200, "pods to bind among faults")
	seed   = flag.Uint64("seed", 0, "seed of a run, 0 for a new one")
	out    = flag.String("out", "", "file to merge the figure of a whole run into")
)

const (
	// whole is how many pods a whole run binds. Only its figure is kept.
	whole = 20000
	// pace is the time between two looks at the cluster.
	pace = 50 * time.Millisecond
	// restEvery is how many pods are bound between two checks at rest.
	restEvery = 1000
	// restLimit bounds how long contradictions may last after the last fault.
	restLimit = 90 * time.Second
)

// run is a cluster under load and faults.
type run struct {
	*world
	rand   *rand.Rand
	load   *load
	record *record
	tracks []*track

	pods []*corev1.Pod // at the last look
	// bound is how many pods had got a node at the last look, rested how many at the last rest. moved is when one got its node
	// last.
	bound, rested int
	moved         time.Time
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
		nodes, gpus = 16, 8
	}
	source := func(stream uint64) *rand.Rand { return rand.New(rand.NewPCG(number, stream)) } //nolint:gosec // to be repeated
	w := newWorld(t, nodes, gpus)
	r := &run{
		world: w, rand: source(1), load: &load{Rand: source(2)}, record: newRecord(w.capacities()), lostNode: -1, met: map[string]int{}, moved: time.Now(),
		tracks: tracks(*wanted, source),
	}
	w.must(w.StartScheduler(t.Context()))
	r.record.follow(t.Context(), w.client)
	w.start()
	r.all()
	r.figure(number)
}

// all binds as many pods as are wanted, and ends them.
func (r *run) all() {
	r.t.Helper()
	ticker := time.NewTicker(pace)
	defer ticker.Stop()
	for begun := time.Now(); r.bound < *wanted; <-ticker.C {
		r.step()
		if r.bound-r.rested >= restEvery {
			r.rest()
			r.t.Logf("%d bound after %.0f s; faults: %v", r.bound, time.Since(begun).Seconds(), r.met)
		}
		if time.Since(r.moved) > restLimit {
			r.t.Fatalf("%d pods were bound, and then none for %v\n%s", r.bound, restLimit, r.logs())
		}
	}
	r.rest()
	r.drain()
	r.t.Logf("%d bound; %d changes of claims, %d gaps; faults: %v", r.bound, r.record.revisions, r.record.gaps, r.met)
}

// figure keeps how many contradictions a whole run found.
func (r *run) figure(number uint64) {
	r.t.Helper()
	if *out == "" || *wanted < whole {
		return
	}
	row := measurement.Of("sched.faults_twice", "contradictions", 0, measurement.Lower, fmt.Sprintf("make test-faults SEED=%d", number), float64(len(r.record.found())))
	row.Case = fmt.Sprintf("%d pods bound among %d faults", r.bound, sum(r.met))
	var kinds []string
	for _, name := range slices.Sorted(maps.Keys(r.met)) {
		kinds = append(kinds, fmt.Sprintf("%s %d", name, r.met[name]))
	}
	row.Note = fmt.Sprintf("%d nodes of %d GPUs, %d changes of claims; %s", r.nodes, r.gpus, r.record.revisions, strings.Join(kinds, ", "))
	r.must(measurement.Merge(*out, []measurement.Row{row}))
}

func sum(counts map[string]int) (all int) {
	for _, n := range counts {
		all += n
	}
	return all
}

// step looks at the cluster, makes and ends pods, and goes on with the faults.
func (r *run) step() {
	r.t.Helper()
	r.look()
	most := r.nodes * r.gpus * 3
	if len(r.pods) < most {
		r.makeSome(4)
	}
	if len(r.pods) > most*3/4 {
		r.end(1 + r.rand.IntN(6))
	}
	r.keep()
	for _, t := range r.tracks {
		t.step(r)
	}
}

// makeSome makes pods of several kinds at once.
func (r *run) makeSome(kinds int) {
	r.t.Helper()
	failed := make([]error, kinds)
	var group sync.WaitGroup
	for i := range kinds {
		b := r.load.next()
		group.Go(func() { failed[i] = r.make(b) })
	}
	group.Wait()
	r.must(errors.Join(failed...))
}

// look sees who is bound, and whether anything was wrong at any time.
func (r *run) look() {
	r.t.Helper()
	r.right()
	r.pods = r.record.there()
	r.bound, r.moved = r.record.progress()
}

// right ends the test at the first contradiction.
func (r *run) right() {
	r.t.Helper()
	if wrong := r.record.found(); len(wrong) > 0 {
		r.t.Fatalf("%d contradictions after %d binds:\n%s\n%s", len(wrong), r.bound, strings.Join(wrong[:min(20, len(wrong))], "\n"), r.logs())
	}
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
		one := r.pods[r.rand.IntN(len(r.pods))]
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

// rest ends all faults and waits until pods and claims agree. Pods that are refused for good are tried again and again, with
// claims that come and go, so they end before.
func (r *run) rest() {
	r.t.Helper()
	for _, t := range r.tracks {
		t.finish(r)
	}
	r.look()
	var names []string
	for _, p := range r.pods {
		if p.Labels[mayWait] == refused {
			names = append(names, p.Name)
		}
	}
	r.must(r.remove(names))
	rested := false
	defer func() {
		if !rested { // what became of them says more than what they are
			r.record.judge()
			r.t.Logf("contradictions so far:\n%s", strings.Join(r.record.found(), "\n"))
		}
	}()
	var p *picture
	r.until("the cluster is at rest", restLimit, func() (bool, string) {
		r.keep()
		r.look()
		var err error
		p, err = r.picture(r.t.Context())
		r.must(err)
		if faults := p.restless(); len(faults) > 0 {
			return false, fmt.Sprintf("%d contradictions: %s", len(faults), strings.Join(faults[:min(8, len(faults))], "; "))
		}
		if !r.record.knows(p) {
			return false, "the checker is behind"
		}
		return r.agrees()
	})
	rested = true
	r.record.judge()
	r.look()
	r.rested = r.bound
	r.sweep(p)
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
func (r *run) sweep(p *picture) {
	r.t.Helper()
	used := map[string]bool{}
	for i := range r.pods {
		for _, reference := range r.pods[i].Spec.ResourceClaims {
			if reference.ResourceClaimName != nil {
				used[*reference.ResourceClaimName] = true
			}
		}
	}
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
			switch p := r.pods[i]; {
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
	p, err := r.picture(r.t.Context())
	r.must(err)
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
	w.until("a pod is bound after all that", said, func() (bool, string) {
		w.keep()
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
