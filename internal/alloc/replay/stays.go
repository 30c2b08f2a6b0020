package replay

import (
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/alloc"
	"github.com/divvy-gpu/divvy/internal/queue"
)

// Stay is what a replay with queues knows of a pod beside what it asks.
type Stay struct {
	// Queue is empty for a pod that no queue has.
	Queue    string
	Quota    v1alpha1.Quota
	Priority int32
	// Arrives is when it comes, from the start of the trace, and Runs how long it runs from when it starts: [Forever], or 0
	// and more.
	Arrives, Runs time.Duration
	// Members is how many pods like it come as one gang, and Minimum how many of them must run together; both are 1 of a
	// single pod.
	Members, Minimum int
}

// Forever is the run time of a pod that is there until the replay ends.
const Forever = time.Duration(math.MaxInt64)

// Bounds of what is read of a stay.
const (
	mostSeconds  = 1 << 31
	mostPriority = 1_000_000_000
)

// QueuedPod is an arrival of a replay with queues.
type QueuedPod struct {
	Pod
	Stay
}

// QueuedTrace is a cluster, its queues and the pods that come. Replays do not change it.
type QueuedTrace struct {
	Nodes  []alloc.Node
	Pods   []QueuedPod
	Queues []queue.Spec
}

// ReadQueuedPods reads arrivals as [ReadPods] does, with their times and queues. A pod is in the queue that the column queue
// names, else in that of its namespace where its name is NAMESPACE/NAME.
func ReadQueuedPods(file string, r io.Reader, nodes []alloc.Node, queues []queue.Spec) ([]QueuedPod, error) {
	tree := queue.NewTree(queues)
	var pods []QueuedPod
	err := readPods(file, r, nodes, func(t *table, openb bool, pod Pod) error {
		stay, err := t.stay(openb, tree, &pod)
		pods = append(pods, QueuedPod{pod, stay})
		return err
	})
	if err != nil {
		return nil, err
	}
	return pods, nil
}

func (t *table) stay(openb bool, tree *queue.Tree, pod *Pod) (Stay, error) {
	s := Stay{Queue: strings.Clone(t.text("queue")), Members: 1, Minimum: 1}
	if _, ok := tree.Find(s.Queue); s.Queue != "" && !ok {
		return s, t.fault("queue", fmt.Errorf("there is no queue %q", s.Queue))
	}
	if namespace, _, ok := strings.Cut(pod.Name, "/"); ok && s.Queue == "" {
		s.Queue = tree.Name(tree.Of(namespace))
	}
	var err error
	if s.Quota, err = v1alpha1.ParseQuota(t.text("quota")); err != nil {
		return s, t.fault("quota", err)
	}
	priority, err := t.optional("priority", mostPriority, 0)
	if err != nil {
		return s, err
	}
	s.Priority = int32(priority)
	if openb {
		err = t.openbTimes(&s)
		return s, err
	}
	if s.Arrives, err = t.seconds("arrival_s"); err != nil {
		return s, err
	}
	if s.Runs = Forever; t.text("runtime_s") != "" {
		if s.Runs, err = t.seconds("runtime_s"); err != nil {
			return s, err
		}
	}
	err = t.gang(&s)
	return s, err
}

// openbTimes reads the times of the openb format: a pod runs from when it was scheduled to when it was deleted.
func (t *table) openbTimes(s *Stay) error {
	var err error
	if s.Arrives, err = t.seconds("creation_time"); err != nil {
		return err
	}
	if s.Runs = Forever; t.text("deletion_time") == "" {
		return nil
	}
	began := s.Arrives
	if t.text("scheduled_time") != "" {
		if began, err = t.seconds("scheduled_time"); err != nil {
			return err
		}
	}
	ended, err := t.seconds("deletion_time")
	if err == nil && ended < began {
		err = t.fault("deletion_time", errors.New("is before the pod began to run"))
	}
	s.Runs = ended - began
	return err
}

func (t *table) gang(s *Stay) error {
	members, err := t.optional("members", v1alpha1.MostGangMembers, 1)
	if err != nil {
		return err
	}
	minimum, err := t.optional("minimum", v1alpha1.MostGangMembers, members)
	switch {
	case err != nil:
		return err
	case members < 1:
		return t.fault("members", errors.New("0: give 1 or more"))
	case minimum < 1 || minimum > members:
		return t.fault("minimum", fmt.Errorf("%d of %d members: give 1 to %d", minimum, members, members))
	}
	s.Members, s.Minimum = int(members), int(minimum)
	return nil
}

// optional is a whole number from 0 to most, or what counts where the column is empty.
func (t *table) optional(column string, most, otherwise int64) (int64, error) {
	if t.text(column) == "" {
		return otherwise, nil
	}
	return t.number(column, most)
}

func (t *table) seconds(column string) (time.Duration, error) {
	if _, ok := t.column[column]; !ok {
		return 0, t.at(1, column, errors.New("the column is missing: a replay with queues needs times"))
	}
	n, err := t.number(column, mostSeconds)
	return time.Duration(n) * time.Second, err
}

// Part is how much of the pods without a queue one queue is dealt.
type Part struct {
	Queue string
	// Weight is 1 or more.
	Weight int64
}

// Deal gives pods for GPUs that no queue has to queues, in proportion to weights. Which queue a pod gets depends on its name
// alone. An unknown queue is an error that wraps [ErrOptions].
func (t *QueuedTrace) Deal(parts []Part) error {
	sum := int64(0)
	for _, p := range parts {
		known := slices.ContainsFunc(t.Queues, func(s queue.Spec) bool { return s.Name == p.Queue })
		if !known || p.Weight < 1 || p.Weight > v1alpha1.MaxQueueWeight {
			return fmt.Errorf("%w: pods for queue %q in proportion to %d: name a queue of the file, and 1 to %d", ErrOptions, p.Queue, p.Weight, v1alpha1.MaxQueueWeight)
		}
		sum += p.Weight
	}
	for i := range t.Pods {
		pod := &t.Pods[i]
		if pod.Queue != "" || pod.Request.Count == 0 || sum == 0 {
			continue
		}
		h := fnv.New64a()
		_, _ = io.WriteString(h, pod.Name) // a hash takes everything
		at := int64(h.Sum64() % uint64(sum))
		for _, p := range parts {
			if at -= p.Weight; at < 0 {
				pod.Queue = p.Queue
				break
			}
		}
	}
	return nil
}

// InQueues is how many pods for GPUs are in a queue.
func (t *QueuedTrace) InQueues() (n int) {
	for i := range t.Pods {
		if t.Pods[i].Queue != "" && t.Pods[i].Request.Count > 0 {
			n++
		}
	}
	return n
}
