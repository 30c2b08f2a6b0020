package replay

import (
	"container/heap"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/divvy-gpu/divvy/internal/alloc"
	"github.com/divvy-gpu/divvy/internal/queue"
	"github.com/divvy-gpu/divvy/internal/queue/simulation"
)

// QueueOptions say how a trace is replayed with queues.
type QueueOptions struct {
	Policy   string
	Seed     int64
	Progress func(percent int)
}

// Run replays arrivals and ends in the time of the trace. Pods wait until they fit and their queue lets them start; pods that
// end for others come back and run from the beginning.
func (t *QueuedTrace) Run(ctx context.Context, o QueueOptions) (QueueResult, error) {
	q, err := t.begin(o)
	if err != nil {
		return QueueResult{}, err
	}
	for i, all := 0, 2*len(q.order); ; i++ {
		if i&63 == 0 && ctx.Err() != nil {
			return QueueResult{}, fmt.Errorf("replay: %w", ctx.Err())
		}
		at, ok := q.next()
		if !ok {
			return q.result(o), nil
		}
		q.step(at)
		if o.Progress != nil {
			o.Progress(min(99, i*100/all))
		}
	}
}

// queued is the state of a replay with queues.
type queued struct {
	trace   *QueuedTrace
	cluster *simulation.Cluster
	measure measurer
	// order is the pods by arrival, of which those before at have come; base is when the first does.
	order  []*QueuedPod
	at     int
	base   time.Duration
	now    time.Time
	stays  map[string]*stay
	ends   ends
	curves []*curve
	totals map[string]*QueueTotal
}

// stay is a pod or gang that has come and not ended.
type stay struct {
	pod              *QueuedPod
	runs, began      bool
	came, since, end time.Time
}

// start is the time at which a replay begins: that of the first arrival.
var start = time.Unix(0, 0).UTC()

func (t *QueuedTrace) begin(o QueueOptions) (*queued, error) {
	if len(t.Pods) == 0 {
		return nil, fmt.Errorf("%w: there are no pods", ErrOptions)
	}
	q := &queued{trace: t, measure: newMeasurer(t.Nodes), now: start, stays: map[string]*stay{}, totals: map[string]*QueueTotal{}}
	if err := q.measure.serves(t.Queues); err != nil {
		return nil, err
	}
	policy, err := alloc.PolicyNamed(o.Policy)
	if err != nil {
		return nil, err
	}
	order := make([]int, len(t.Nodes))
	for i := range order {
		order[i] = i
	}
	nodes := (&Trace{Nodes: t.Nodes}).clone(order)
	if q.cluster, err = simulation.New(nodes, policy.Seeded(uint64(o.Seed)), start); err != nil {
		return nil, err
	}
	q.cluster.SetQueues(t.Queues)
	q.cluster.Started, q.cluster.Gave = q.started, q.gave
	for i := range t.Pods {
		q.order = append(q.order, &t.Pods[i])
	}
	slices.SortStableFunc(q.order, func(a, b *QueuedPod) int { return int(max(-1, min(1, a.Arrives-b.Arrives))) })
	q.base = q.order[0].Arrives
	q.draw()
	return q, nil
}

// next is when something happens again.
func (q *queued) next() (time.Time, bool) {
	for len(q.ends) > 0 && !q.ends[0].holds() {
		heap.Pop(&q.ends)
	}
	next := q.cluster.Next()
	sooner := func(at time.Time) {
		if next.IsZero() || at.Before(next) {
			next = at
		}
	}
	if len(q.ends) > 0 {
		sooner(q.ends[0].at)
	}
	if q.at < len(q.order) {
		sooner(q.arrival())
	}
	return next, !next.IsZero()
}

// arrival is when the next pod comes.
func (q *queued) arrival() time.Time { return start.Add(q.order[q.at].Arrives - q.base) }

// step does all that happens at a time.
func (q *queued) step(at time.Time) {
	q.now = at
	q.cluster.Pass(at)
	for len(q.ends) > 0 && !q.ends[0].at.After(at) {
		if e, ok := heap.Pop(&q.ends).(end); ok && e.holds() {
			q.cluster.End(e.stay.pod.Name)
			delete(q.stays, e.stay.pod.Name)
		}
	}
	for q.at < len(q.order) && !q.arrival().After(at) {
		q.arrive(q.order[q.at])
		q.at++
	}
	q.cluster.Step(at)
	q.look()
}

func (q *queued) arrive(p *QueuedPod) {
	w := simulation.Workload{
		ID: p.Name, Queue: p.Queue, Quota: p.Quota, Priority: p.Priority, Size: p.Members, Minimum: p.Minimum,
		Pod: alloc.Pod{CPU: p.Request.CPU, HostMemory: p.Request.HostMemory},
	}
	if p.Request.Count > 0 {
		r := p.Request
		r.CPU, r.HostMemory = 0, 0
		w.Pod.Claims = [][]alloc.Request{{r}}
		w.Charge = q.measure.asked(p)
	} else {
		w.Queue = "" // queues have GPUs, and nothing else
	}
	w.Held = func(a alloc.Assignment) queue.Charge { return q.measure.held(p, a) }
	w.Line = fmt.Sprintf("%s %s %d %d %d %+v", w.Queue, p.Quota, p.Priority, p.Members, p.Minimum, p.Request)
	q.stays[p.Name] = &stay{pod: p, came: q.now}
	q.total(p).Arrived += p.Members
	q.cluster.Arrive(w)
}

// started notes that a pod or gang has begun to run.
func (q *queued) started(id string) {
	s := q.stays[id]
	s.runs, s.since, s.end = true, q.now, time.Time{}
	t := q.total(s.pod)
	if !s.began {
		s.began = true
		t.Started += s.pod.Members
		t.waits(q.now.Sub(s.came), s.pod.Members)
	}
	if s.pod.Runs < Forever-q.now.Sub(start) {
		s.end = q.now.Add(s.pod.Runs)
		heap.Push(&q.ends, end{at: s.end, stay: s})
	}
}

// gave notes that pods were told to end for others.
func (q *queued) gave(id string, pods int) {
	s := q.stays[id]
	t := q.total(s.pod)
	t.EndedForOthers += pods
	one := q.measure.asked(s.pod)
	t.Lost += q.now.Sub(s.since).Hours() * float64(pods) * float64(one.GPUs) / 1000
	if q.cluster.Running(id) == 0 {
		s.runs = false
	}
}

func (q *queued) total(p *QueuedPod) *QueueTotal {
	name := p.Queue
	if p.Request.Count == 0 {
		name = ""
	}
	if q.totals[name] == nil {
		q.totals[name] = &QueueTotal{Queue: name}
	}
	return q.totals[name]
}

// end is when a pod ends, if it is not ended for others before.
type end struct {
	at   time.Time
	stay *stay
}

func (e end) holds() bool { return e.stay.runs && e.stay.end.Equal(e.at) }

// ends is a heap of ends, the next one first, of those at one time the first by name.
type ends []end

func (e ends) Len() int { return len(e) }
func (e ends) Less(i, j int) bool {
	if c := e[i].at.Compare(e[j].at); c != 0 {
		return c < 0
	}
	return e[i].stay.pod.Name < e[j].stay.pod.Name
}
func (e ends) Swap(i, j int) { e[i], e[j] = e[j], e[i] }

// Push implements heap.Interface.
func (e *ends) Push(x any) {
	if one, ok := x.(end); ok {
		*e = append(*e, one)
	}
}

// Pop implements heap.Interface.
func (e *ends) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}
