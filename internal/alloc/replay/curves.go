package replay

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/queue"
)

// QueueResult is one replay with queues.
type QueueResult struct {
	Policy string `json:"policy"`
	Seed   int64  `json:"seed"`
	// Seconds is how long it took in the time of the trace.
	Seconds float64 `json:"seconds"`
	// Distance is the greatest of those of all series.
	Distance float64       `json:"distance_points"`
	Totals   []QueueTotal  `json:"queues"`
	Series   []QueueSeries `json:"series"`
	// Notes are conditions of the queues, one line each.
	Notes []string `json:"notes,omitempty"`
}

// QueueTotal counts the pods of one queue, without those of its parts. That without a name has the pods of no queue, and those
// that ask for no GPU.
type QueueTotal struct {
	Queue   string `json:"queue"`
	Arrived int    `json:"arrived"`
	Started int    `json:"started"`
	// Waiting is how many have not run to their end when the replay ends, because they wait.
	Waiting int `json:"waiting"`
	// Waited is how long those that started had waited, in seconds: the mean, and the longest.
	Waited        float64 `json:"mean_wait_seconds"`
	LongestWaited float64 `json:"longest_wait_seconds"`
	// EndedForOthers counts pods that ended for others, a pod as often as that happened. Lost is what they had used until then,
	// in hours of a GPU: they begin anew.
	EndedForOthers int     `json:"ended_for_others"`
	Lost           float64 `json:"lost_gpu_hours"`
}

func (t *QueueTotal) waits(d time.Duration, pods int) {
	t.Waited += d.Seconds() * float64(pods)
	t.LongestWaited = max(t.LongestWaited, d.Seconds())
}

// QueueSeries is where a queue stands over time in one model and unit. Amounts are in GPUs, percent of a GPU or bytes.
type QueueSeries struct {
	Queue string             `json:"queue"`
	Model string             `json:"model,omitempty"`
	Unit  v1alpha1.QueueUnit `json:"unit"`
	// Used and Entitled are means over the replay. Distance is the mean distance between the two, in percent of all that there
	// is.
	Used     float64      `json:"mean_used"`
	Entitled float64      `json:"mean_entitled"`
	Distance float64      `json:"distance_points"`
	Points   []QueuePoint `json:"points"`

	depth int
}

// QueuePoint has the means of a part of the time.
type QueuePoint struct {
	// Seconds is when the part begins.
	Seconds    float64 `json:"seconds"`
	Guaranteed float64 `json:"guaranteed"`
	Entitled   float64 `json:"entitled"`
	Used       float64 `json:"used"`
	Lent       float64 `json:"lent"`
	Borrowed   float64 `json:"borrowed"`
	Demand     float64 `json:"demand"`
}

// curve is where a queue stood, whenever that changed.
type curve struct {
	queue    string
	depth    int
	capacity int64
	at       []time.Time
	use      []v1alpha1.QueueUse
}

// draw makes a curve for each queue and dimension, parents before their parts.
func (q *queued) draw() {
	tree, capacity := q.cluster.Book.Tree(), q.cluster.Book.Capacity()
	path := func(name string) (names []string) {
		for n, _ := tree.Find(name); n > queue.Top; n = tree.Parent(n) {
			if above := tree.Name(n); len(names) == 0 || names[0] != above {
				names = slices.Insert(names, 0, above)
			}
		}
		return names
	}
	specs := slices.Clone(q.trace.Queues)
	slices.SortFunc(specs, func(a, b queue.Spec) int { return slices.Compare(path(a.Name), path(b.Name)) })
	for i := range specs {
		for _, use := range q.cluster.Book.Standing(specs[i].Name) {
			d := slices.Index(tree.Dimensions(), queue.Dimension{Model: use.Model, Unit: use.Unit})
			q.curves = append(q.curves, &curve{queue: specs[i].Name, depth: len(path(specs[i].Name)) - 1, capacity: capacity[d]})
		}
		q.totals[specs[i].Name] = &QueueTotal{Queue: specs[i].Name}
	}
	q.look()
}

// look adds to the curves what has changed.
func (q *queued) look() {
	for i := 0; i < len(q.curves); {
		for _, use := range q.cluster.Book.Standing(q.curves[i].queue) {
			c := q.curves[i]
			if n := len(c.use); n == 0 || c.use[n-1] != use {
				c.at, c.use = append(c.at, q.now), append(c.use, use)
			}
			i++
		}
	}
}

func (q *queued) result(o QueueOptions) QueueResult {
	r := QueueResult{Policy: o.Policy, Seed: o.Seed, Seconds: q.now.Sub(start).Seconds(), Totals: []QueueTotal{}, Series: []QueueSeries{}}
	for _, s := range q.stays {
		t := q.total(s.pod)
		if !s.runs {
			t.Waiting += s.pod.Members
		}
		if !s.began {
			t.LongestWaited = max(t.LongestWaited, q.now.Sub(s.came).Seconds())
		}
	}
	for _, t := range q.totals {
		t.Waited = rounded(t.Waited / float64(max(1, t.Started)))
		t.LongestWaited, t.Lost = rounded(t.LongestWaited), rounded(t.Lost)
		r.Totals = append(r.Totals, *t)
	}
	slices.SortFunc(r.Totals, func(a, b QueueTotal) int { return strings.Compare(a.Queue, b.Queue) })
	for _, c := range q.curves {
		s := c.series(max(time.Nanosecond, q.now.Sub(start)))
		r.Series, r.Distance = append(r.Series, s), max(r.Distance, s.Distance)
	}
	for _, c := range q.cluster.Book.Conditions() {
		r.Notes = append(r.Notes, c.String())
	}
	return r
}

// points is how many points a series has.
const points = 80

// series divides a curve into equal parts of the time.
func (c *curve) series(all time.Duration) QueueSeries {
	first := c.use[0]
	s := QueueSeries{Queue: c.queue, Model: first.Model, Unit: first.Unit, Points: make([]QueuePoint, points), depth: c.depth}
	width := all.Seconds() / points
	used, entitled, distance := 0.0, 0.0, 0.0
	for i, use := range c.use {
		from, to := c.at[i].Sub(start).Seconds(), all.Seconds()
		if i+1 < len(c.at) {
			to = c.at[i+1].Sub(start).Seconds()
		}
		part := (to - from) / all.Seconds()
		used, entitled = used+part*float64(use.Used), entitled+part*float64(use.Entitled)
		distance += part * math.Abs(float64(use.Used-use.Entitled))
		for j := min(points-1, int(from/width)); j < points && float64(j)*width < to; j++ {
			if covered := (min(to, float64(j+1)*width) - max(from, float64(j)*width)) / width; covered > 0 {
				s.Points[j].add(use, covered)
			}
		}
	}
	for j := range s.Points {
		s.Points[j].finish(rounded(float64(j)*width), s.Unit)
	}
	s.Used, s.Entitled = amount(s.Unit, used), amount(s.Unit, entitled)
	s.Distance = rounded(distance * 100 / float64(max(1, c.capacity)))
	return s
}

func (p *QueuePoint) add(u v1alpha1.QueueUse, part float64) {
	p.Guaranteed += part * float64(u.Guaranteed)
	p.Entitled += part * float64(u.Entitled)
	p.Used += part * float64(u.Used)
	p.Lent += part * float64(u.Lent)
	p.Borrowed += part * float64(u.Borrowed)
	p.Demand += part * float64(u.Demand)
}

// finish turns sums of the unit's smallest steps into amounts.
func (p *QueuePoint) finish(at float64, unit v1alpha1.QueueUnit) {
	p.Seconds = at
	for _, n := range []*float64{&p.Guaranteed, &p.Entitled, &p.Used, &p.Lent, &p.Borrowed, &p.Demand} {
		*n = amount(unit, *n)
	}
}

// amount is in GPUs, percent of a GPU or bytes.
func amount(unit v1alpha1.QueueUnit, n float64) float64 {
	switch unit {
	case v1alpha1.UnitMemory:
		return math.Round(n) * (1 << 20)
	case v1alpha1.UnitCores:
		return rounded(n)
	}
	return rounded(n / 1000)
}

// rounded leaves three digits after the point, so that the same trace gives the same text on every processor.
func rounded(n float64) float64 { return math.Round(n*1000) / 1000 }

// byScale compares amounts for the scale of a chart.
func byScale(a, b QueuePoint) int {
	return cmp.Compare(max(a.Used, a.Entitled), max(b.Used, b.Entitled))
}
