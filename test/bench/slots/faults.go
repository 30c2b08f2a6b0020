package main

import (
	"context"
	"math/rand/v2"
	"slices"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/test/bench/plane"
)

// fault is one that begins and ends. Without over it ends at the next look; without end nothing is to be repaired.
type fault struct {
	name  string
	begin func(ctx context.Context, s *siege, t *track) error
	over  func(s *siege, t *track) bool
	end   func(ctx context.Context, s *siege, t *track) error
}

// faultLimit bounds a fault that nobody ends.
const faultLimit = 30 * time.Second

// track is a sequence of faults, one after the other. All have their turn before the first comes again.
type track struct {
	*rand.Rand
	// gap is how many pods are bound between the end of one fault and the beginning of the next.
	gap   int
	queue []fault
	now   *fault
	// began and ended are when the fault began, and at how many bound pods the last one ended.
	began time.Time
	ended int
	// amount is what the fault drew at its beginning.
	amount int
	// leader was it then.
	leader string
}

// step ends the fault that there is once it is over, and begins the next.
func (t *track) step(ctx context.Context, s *siege) error {
	switch {
	case t.now != nil && (t.now.over == nil || t.now.over(s, t) || time.Since(t.began) > faultLimit):
		return t.finish(ctx, s)
	case t.now == nil && s.bound-t.ended >= t.gap:
		if len(t.queue) == 0 {
			t.queue = append(append(ofPrograms(), ofCluster()...), troubled()...)
			t.Shuffle(len(t.queue), func(i, k int) { t.queue[i], t.queue[k] = t.queue[k], t.queue[i] })
		}
		next := t.queue[0]
		t.now, t.began, t.queue, t.amount, t.leader = &next, time.Now(), t.queue[1:], t.Int(), s.service.leader()
		s.met[next.name]++
		return next.begin(ctx, s, t)
	}
	return nil
}

// finish ends the fault that there is.
func (t *track) finish(ctx context.Context, s *siege) (err error) {
	if t.now != nil && t.now.end != nil {
		err = t.now.end(ctx, s, t)
	}
	t.now, t.ended = nil, s.bound
	return err
}

// leading is the extender that leads, or any.
func (t *track) leading() string {
	if t.leader != "" {
		return t.leader
	}
	return extenders[t.amount%len(extenders)]
}

// lasts ends a fault after a time between a tenth and all of this.
func lasts(most time.Duration) func(*siege, *track) bool {
	return func(_ *siege, t *track) bool {
		return time.Since(t.began) > most/10+time.Duration(t.amount)%(most*9/10)
	}
}

// ofPrograms are the faults of extenders and schedulers.
func ofPrograms() []fault {
	thaw := func(_ context.Context, s *siege, _ *track) error { s.thaw(); return nil }
	freeze := func(_ context.Context, s *siege, t *track) error { s.freeze(t.leading()); return nil }
	kill := func(name func(t *track) string) func(context.Context, *siege, *track) error {
		return func(_ context.Context, s *siege, t *track) error {
			if p := s.Process(name(t)); p != nil {
				p.Kill()
			}
			return nil
		}
	}
	return []fault{
		{name: "leading extender killed", begin: kill((*track).leading)},
		{name: "extender killed", begin: kill(func(t *track) string { return extenders[t.amount%len(extenders)] })},
		{name: "extender told to end", begin: func(_ context.Context, s *siege, t *track) error {
			if p := s.Process(t.leading()); p != nil {
				_ = p.Signal(syscall.SIGTERM) // it may be dead
			}
			return nil
		}},
		{name: "extender stopped until another leads", begin: freeze, end: thaw, over: func(s *siege, t *track) bool {
			leader := s.service.leader()
			return leader != "" && leader != t.leading()
		}},
		{name: "extender stopped for a moment", begin: freeze, over: lasts(1500 * time.Millisecond), end: thaw},
		{name: "scheduler killed", begin: kill(func(*track) string { return schedulerProgram })},
		{
			name: "two schedulers", over: lasts(4 * time.Second), end: func(_ context.Context, s *siege, _ *track) error { s.Forget(second); return nil },
			begin: func(ctx context.Context, s *siege, _ *track) error {
				s.keepOne(ctx, second, func(ctx context.Context) error { return s.startScheduler(ctx, second, s.service.url(), s.troubled()) })
				return nil
			},
		},
	}
}

// ofCluster are the faults of agents, nodes, pods and the API server.
func ofCluster() []fault {
	some := func(s *siege, t *track) (names []string) {
		for i := range s.fleet {
			if (t.amount>>i)&1 == 1 {
				names = append(names, s.fleet[i].name)
			}
		}
		return names
	}
	return []fault{
		{
			name: "agents away", over: lasts(12 * time.Second),
			begin: func(_ context.Context, s *siege, t *track) error { s.agents.silence(some(s, t), true); return nil },
			end:   func(_ context.Context, s *siege, t *track) error { s.agents.silence(some(s, t), false); return nil },
		},
		{name: "API server restarted", begin: func(ctx context.Context, s *siege, _ *track) error { return s.Restart(ctx, plane.APIServer) }},
		{name: "node lost", begin: loseNode, over: lasts(2 * time.Second), end: nodeBack},
		{name: "GPU lost", begin: setGPU("it fell off the bus"), over: lasts(2 * time.Second), end: setGPU("")},
		{name: "pods deleted while binding", begin: deleteAtOnce},
		{name: "pods changed while binding", begin: changeAtOnce},
	}
}

// enough is how many requests meet a trouble, at most.
const enough = 100

// troubled are the troubles on the way to the API server.
func troubled() (all []fault) {
	over := lasts(2 * time.Second)
	met := 0
	for _, kind := range plane.Troubles {
		all = append(all, fault{
			name: "API server " + string(kind),
			begin: func(_ context.Context, s *siege, _ *track) error {
				met = s.front.Met()
				s.front.Set(kind)
				return nil
			},
			over: func(s *siege, t *track) bool { return s.front.Met()-met >= enough || over(s, t) },
			end:  func(_ context.Context, s *siege, _ *track) error { s.front.Set(plane.Calm); return nil },
		})
	}
	return all
}

func loseNode(ctx context.Context, s *siege, t *track) error {
	return ofServer(s.client.CoreV1().Nodes().Delete(ctx, s.fleet[t.amount%len(s.fleet)].name, metav1.DeleteOptions{}))
}

// nodeBack ends the pods of the node that was lost, and brings it back. In half of the cases the node is back first.
func nodeBack(ctx context.Context, s *siege, t *track) error {
	m := &s.fleet[t.amount%len(s.fleet)]
	first := t.amount/len(s.fleet)%2 == 0
	if first {
		if err := ofServer(s.addNode(ctx, m)); err != nil {
			return err
		}
	}
	for _, pod := range s.look() {
		if pod.Spec.NodeName == m.name {
			if err := s.remove(ctx, pod.Name); err != nil {
				return err
			}
		}
	}
	if first {
		return nil
	}
	return ofServer(s.addNode(ctx, m))
}

// setGPU has an agent say that a GPU has a fault, or that it has none.
func setGPU(fault string) func(ctx context.Context, s *siege, t *track) error {
	return func(ctx context.Context, s *siege, t *track) error {
		m := &s.fleet[t.amount%len(s.fleet)]
		gpus := slices.Clone(m.gpus)
		gpus[t.amount/len(s.fleet)%len(gpus)].Fault = fault
		text, err := v1alpha1.NodeGPUs{GPUs: gpus}.Text()
		if err != nil {
			return err
		}
		return ofServer(s.annotate(ctx, m.name, v1alpha1.GPUsAnnotation, text))
	}
}

// deleteAtOnce makes pods and deletes them while they are placed.
func deleteAtOnce(ctx context.Context, s *siege, t *track) error {
	from := s.made
	if err := s.makeSome(ctx, 12); err != nil {
		return err
	}
	return each(ctx, 12, func(ctx context.Context, i int) error {
		for _, k := range s.kinds {
			if err := s.remove(ctx, k.one("siege", from+1+(i+t.amount)%12).Name); err != nil {
				return err
			}
		}
		return nil
	})
}

// changeAtOnce has pods ask for something else while they are placed. Who has a node by then is not changed: the API server would
// take a change of the annotation that nobody would take note of.
func changeAtOnce(ctx context.Context, s *siege, t *track) error {
	if err := s.makeSome(ctx, 12); err != nil {
		return err
	}
	var pending []*corev1.Pod
	for _, pod := range s.look() {
		if _, asks := pod.Annotations[v1alpha1.RequestAnnotation]; asks && pod.Spec.NodeName == "" && len(pod.Spec.Containers) == 1 {
			pending = append(pending, pod)
		}
	}
	return each(ctx, min(len(pending), 30), func(ctx context.Context, i int) error {
		pod := pending[i].DeepCopy() // with its revision: a bound one has another
		pod.Annotations[v1alpha1.RequestAnnotation] = s.kinds[(t.amount+i)%4].pod.Annotations[v1alpha1.RequestAnnotation]
		_, err := s.client.CoreV1().Pods(namespace).Update(ctx, pod, metav1.UpdateOptions{})
		return ofServer(err)
	})
}
