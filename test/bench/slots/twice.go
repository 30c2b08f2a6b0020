package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/divvy-gpu/divvy/test/bench/measurement"
	"github.com/divvy-gpu/divvy/test/bench/plane"
)

const (
	twice = "slots.twice"
	// wholeBinds is how many pods a whole run binds.
	wholeBinds = 20000
	// siegeNodes are as many as keep every GPU wanted by several.
	siegeNodes = 16
	// pace is the time between two looks at the cluster.
	pace = 50 * time.Millisecond
	// siegeLimit bounds how long no pod is bound, and how long it takes to find rest.
	siegeLimit = 2 * time.Minute
)

// siege is a cluster under load and faults.
type siege struct {
	*cluster
	rand    *rand.Rand // of the load
	front   *plane.Front
	service *service
	agents  *agents
	track   *track
	kinds   []kind
	made    int
	frozen  string // the extender that is stopped
	met     map[string]int
	starts  starts
	working sync.WaitGroup
	cancel  context.CancelFunc

	// moved is when a pod was bound last, of bound.
	moved time.Time
	bound int
}

// measureTwice binds pods while extender, scheduler, agents and the API server fail at random, and counts what is given twice or
// without an assignment.
func measureTwice(ctx context.Context, o options) (rows []measurement.Row, err error) {
	if o.seed == 0 {
		o.seed = rand.Uint64N(1 << 32)
	}
	o.Say("seed %d", o.seed)
	s, err := besiege(ctx, o)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.lift()) }()
	for _, step := range []func(context.Context) error{s.start, s.all, s.drain, s.refill} {
		if err := step(ctx); err != nil {
			s.tellLogs()
			return nil, errors.Join(fmt.Errorf("seed %d: %w", o.seed, err), s.record.wrong())
		}
	}
	return s.rows(), nil
}

func (s *siege) rows() []measurement.Row {
	s.record.mutex.Lock()
	defer s.record.mutex.Unlock()
	var kinds []string
	sum := 0
	for _, name := range slices.Sorted(maps.Keys(s.met)) {
		kinds = append(kinds, fmt.Sprintf("%s %d", name, s.met[name]))
		sum += s.met[name]
	}
	on := fmt.Sprintf("%d pods bound among %d faults", s.record.bound, sum)
	note := fmt.Sprintf("%d nodes of %d GPUs; %d pods waited on their nodes for containers of pods that were deleted by force; afterwards every GPU was given whole; %s",
		len(s.fleet), len(s.fleet[0].gpus), s.agents.waits(), strings.Join(kinds, ", "))
	rows := []measurement.Row{
		target.Less(twice, on+": GPUs given twice, in bytes, cores or whole", "times", 0, []float64{float64(s.record.twice)}, note),
		target.Less(twice, on+": pods bound without an assignment", "pods", 0, []float64{float64(s.record.unassigned)}, ""),
	}
	for i := range rows {
		rows[i].Command += fmt.Sprintf(" SEED=%d", s.seed)
	}
	return rows
}

// besiege makes the cluster, and starts nothing that places pods.
func besiege(ctx context.Context, o options) (*siege, error) {
	fleet, err := fleetOf(siegeNodes)
	if err != nil {
		return nil, err
	}
	c, err := open(ctx, o, fleet)
	if err != nil {
		return nil, err
	}
	source := func(stream uint64) *rand.Rand { return rand.New(rand.NewPCG(o.seed, stream)) } //nolint:gosec // to be repeated
	s := &siege{cluster: c, rand: source(1), met: map[string]int{}, moved: time.Now(), starts: starts{begins: map[string]bool{}}}
	s.agents, s.track = newAgents(c, source(2)), &track{Rand: source(3), gap: 40}
	if o.binds < wholeBinds {
		s.track.gap = 10
	}
	if s.kinds, err = siegeKinds(); err == nil {
		s.front, err = plane.NewFront(c.Process(plane.APIServer).URL(), followsPods)
	}
	if err != nil {
		return nil, errors.Join(err, c.close())
	}
	return s, nil
}

// lift ends everything.
func (s *siege) lift() error {
	s.thaw()
	if s.cancel != nil {
		s.cancel()
	}
	s.starts.group.Wait()
	s.working.Wait()
	if s.service != nil {
		s.service.close()
	}
	s.front.Close()
	return s.close()
}

// start starts the agents and whatever places pods, and waits until they answer.
func (s *siege) start(ctx context.Context) (err error) {
	working, cancel := context.WithCancel(ctx)
	s.cancel = cancel
	s.working.Go(func() { s.agents.run(working) })
	if s.service, err = serve(working, s.ready); err != nil {
		return err
	}
	if err := s.connect(ctx); err != nil {
		return err
	}
	s.keep(working)
	s.starts.group.Wait()
	return s.Alive()
}

// all binds as many pods as are wanted.
func (s *siege) all(ctx context.Context) error {
	ticker := time.NewTicker(pace)
	defer ticker.Stop()
	told := 0
	for begun := time.Now(); s.bound < s.binds; {
		if err := s.step(ctx); err != nil {
			return err
		}
		if s.bound >= told+500 {
			told = s.bound
			s.Say("%d bound after %.0f s; faults: %v", s.bound, time.Since(begun).Seconds(), s.met)
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return s.track.finish(ctx, s)
}

// step looks at the cluster, makes and ends pods, and goes on with the faults.
func (s *siege) step(ctx context.Context) error {
	pods := s.look()
	if time.Since(s.moved) > siegeLimit {
		return fmt.Errorf("%d pods were bound, and then none for %v", s.bound, siegeLimit)
	}
	most := len(s.fleet) * len(s.fleet[0].gpus) * 3
	if len(pods) < most {
		if err := s.makeSome(ctx, 6); err != nil {
			return err
		}
	}
	if len(pods) > most*3/4 {
		if err := s.endSome(ctx, pods, 1+s.rand.IntN(9)); err != nil {
			return err
		}
	}
	s.keep(ctx)
	return s.track.step(ctx, s)
}

// look returns the pods that there are, in the order of their names.
func (s *siege) look() []*corev1.Pod {
	s.record.mutex.Lock()
	defer s.record.mutex.Unlock()
	if s.record.bound > s.bound {
		s.bound, s.moved = s.record.bound, time.Now()
	}
	return slices.SortedFunc(maps.Values(s.record.pods), func(a, b *corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
}

// makeSome makes pods of several kinds at once.
func (s *siege) makeSome(ctx context.Context, n int) error {
	pods := make([]*corev1.Pod, n)
	for i := range pods {
		s.made++
		pods[i] = s.kinds[s.rand.IntN(len(s.kinds))].one("siege", s.made)
	}
	return each(ctx, n, func(ctx context.Context, i int) error {
		_, err := s.client.CoreV1().Pods(namespace).Create(ctx, pods[i], metav1.CreateOptions{})
		return ofServer(err)
	})
}

// endSome ends some pods, bound or not: most are deleted by force, some end by themselves before.
func (s *siege) endSome(ctx context.Context, pods []*corev1.Pod, n int) error {
	chosen, itself := make([]*corev1.Pod, n), make([]bool, n)
	for i := range chosen {
		chosen[i], itself[i] = pods[s.rand.IntN(len(pods))], s.rand.IntN(4) == 0
	}
	return each(ctx, n, func(ctx context.Context, i int) error {
		if itself[i] && chosen[i].Spec.NodeName != "" && !ended(chosen[i]) {
			done := chosen[i].DeepCopy()
			done.Status.Phase = corev1.PodSucceeded
			_, err := s.client.CoreV1().Pods(namespace).UpdateStatus(ctx, done, metav1.UpdateOptions{})
			return ofServer(err)
		}
		return s.remove(ctx, chosen[i].Name)
	})
}

// remove deletes a pod by force.
func (s *siege) remove(ctx context.Context, name string) error {
	now := int64(0)
	return ofServer(s.client.CoreV1().Pods(namespace).Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: &now}))
}

// ofServer is an error that is not to be expected of a server that is started anew while objects come and go.
func ofServer(err error) error {
	var status apierrors.APIStatus
	if err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) || !errors.As(err, &status) {
		return nil
	}
	if code := status.Status().Code; code >= 500 || code == 429 || code == 403 || code == 401 {
		return nil // it begins
	}
	return err
}

// drain ends bound pods until each that waits has got a node, and then all.
func (s *siege) drain(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, siegeLimit, errTimeUp)
	defer cancel()
	ticker := time.NewTicker(pace)
	defer ticker.Stop()
	for {
		pods := s.look()
		waits := 0
		if err := each(ctx, len(pods), func(ctx context.Context, i int) error {
			if pods[i].Spec.NodeName == "" {
				return nil
			}
			return s.remove(ctx, pods[i].Name)
		}); err != nil {
			return err
		}
		for _, pod := range pods {
			if pod.Spec.NodeName == "" {
				waits++
			}
		}
		if len(pods) == 0 {
			return nil
		}
		s.keep(ctx)
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return fmt.Errorf("wait until each pod has got a node, %d wait (%s): %w", waits, s.reasons(), context.Cause(ctx))
		}
	}
}

// refill has each GPU of the cluster given whole: what anybody leaked would be missing.
func (s *siege) refill(ctx context.Context) error {
	whole, err := kindOf("whole", wholeGPUs(1))
	if err != nil {
		return err
	}
	o, err := s.round(ctx, false, len(s.fleet)*len(s.fleet[0].gpus), whole.one)
	if err == nil && o.bound < o.all {
		err = fmt.Errorf("after all that %d of %d GPUs can be given whole: %s", o.bound, o.all, s.reasons())
	}
	return err
}

// tellLogs tells the end of what the extenders say. A program that was started anew has begun its log anew.
func (s *siege) tellLogs() {
	for _, name := range extenders {
		text, err := os.ReadFile(s.file(name + ".log"))
		if err != nil {
			s.Say("%v", err)
			continue
		}
		lines := strings.Split(strings.TrimSpace(string(text)), "\n")
		s.Say("%s:\n%s", name, strings.Join(lines[max(0, len(lines)-40):], "\n"))
	}
}

// reasons are why pods wait, each once.
func (s *siege) reasons() string {
	var all []string
	for _, pod := range s.look() {
		for _, condition := range pod.Status.Conditions {
			if condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse && pod.Spec.NodeName == "" {
				all = append(all, condition.Message)
			}
		}
	}
	slices.Sort(all)
	return strings.Join(slices.Compact(all), "; ")
}
