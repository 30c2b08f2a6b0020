package model

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/divvy-gpu/divvy/internal/arbiter"
	"github.com/divvy-gpu/divvy/internal/page"
)

// Load is what the processes of a tenant do.
type Load struct {
	Kernel    uint64 // GPU time of a launch, ns
	Think     uint64 // processor time between two launches; 5 us if 0
	Sync      int    // launches after which the process waits for all of them; 0 for never
	SyncThink uint64 // processor time after such a wait
	Processes int    // 1 if 0
	// Requests per second, of Sync launches each, come at random moments, whatever the process is doing; 0 for a
	// loop.
	Requests float64
	// Lie takes the tenant out of the rules.
	Lie Lie
}

// Lie is how a tenant breaks the rules; all of them launch without asking their bucket.
type Lie int

// The lies.
const (
	Truth    Lie = iota
	Silent       // tells nothing
	Greedy       // tells all, but does not wait
	Absurd       // tells intervals out of nowhere
	Backward     // tells time running backwards
	Claimed      // tells that it works all the time
)

// Tenant is one share and the processes that use it.
type Tenant struct {
	arbiter.Terms
	Load
	Key string

	m         *Model
	idle      bool
	processes []*process
	own       uint64
	latencies []uint64 // of requests, ns
	// arrivals has a sequence of its own, so that the same requests come whatever else happens.
	arrivals *rand.Rand

	budget budget
	bucket bucket
	report reported
	granted
}

// budget is struct budget of the config page.
type budget struct {
	tick       uint64
	given      arbiter.Budget
	stretch    float64
	correction int64
}

// bucket is struct bucket of the state page.
type bucket struct {
	balance, corrected int64
	refilled, wanted   uint64
	charged, launches  uint64
	overdrawn          uint64
}

// reported is what the arbiter read last.
type reported struct{ launches, wanted uint64 }

// granted is what the arbiter remembers of a share.
type granted struct {
	stretch arbiter.Stretch
	verdict arbiter.Verdict
	ignored bool    // the driver's figure stands for what it tells
	busy    float64 // that figure
	counted uint64  // own time is known up to here
	sampled uint64
	limited uint64 // since when its work is counted; 0 while it is not
}

// Add begins a tenant.
func (m *Model) Add(key string, terms arbiter.Terms, load Load) *Tenant {
	t := &Tenant{Terms: terms, Load: load, Key: key, m: m}
	t.arrivals = rand.New(rand.NewPCG(m.Seed, uint64(len(m.tenants))))
	t.budget.stretch = 1
	t.budget.given = arbiter.Budget{Limited: !m.Unlimited, Rate: 10_000, Base: 10_000, Burst: 2 * Millisecond, Depth: Millisecond}
	m.tenants = append(m.tenants, t)
	for i := range max(load.Processes, 1) {
		p := &process{tenant: t, m: m, key: fmt.Sprint(key, "/", i), cost: 100_000}
		t.processes = append(t.processes, p)
		if t.Requests > 0 {
			p.nextRequest()
		} else {
			m.after(m.upTo(Millisecond), p.step)
		}
	}
	return t
}

// Remove ends a tenant: its processes die, with what they have on the GPU.
func (m *Model) Remove(t *Tenant) {
	for i, one := range m.tenants {
		if one == t {
			m.tenants = append(m.tenants[:i:i], m.tenants[i+1:]...)
			break
		}
	}
	for _, p := range t.processes {
		p.dead = true
		m.gpu.drop(p)
	}
	m.arbiter.watch.Forget(t.Key)
	m.arbiter.replay.Assume(t.Key, false)
}

// Rest lets the tenant finish what it launched and launch nothing more, or go on.
func (t *Tenant) Rest(idle bool) { t.idle = idle }

// Own is the true GPU time of the tenant so far.
func (t *Tenant) Own() uint64 { t.m.gpu.account(); return t.own }

// Latencies are the times from arrival to end of the requests that ended.
func (t *Tenant) Latencies() []uint64 { return t.latencies }

// Verdict is what the watch thinks of the tenant.
func (t *Tenant) Verdict() arbiter.Verdict { return t.verdict }

// Overdrawn is how many launches were admitted on debt.
func (t *Tenant) Overdrawn() uint64 { return t.bucket.overdrawn }

// refill is the library's rule, to the letter.
func (t *Tenant) refill() {
	b, now := &t.bucket, t.m.now
	rate := t.budget.given.Rate
	if now-t.budget.tick > page.StaleNs {
		rate = t.budget.given.Base
	}
	if b.refilled == 0 {
		b.refilled = now
	}
	b.balance += int64(float64(now-b.refilled) * float64(rate) / arbiter.Whole)
	b.refilled = now
	b.balance += t.budget.correction - b.corrected
	b.corrected = t.budget.correction
	b.balance = min(b.balance, int64(t.budget.given.Burst))
}

// rate is what the bucket gains.
func (t *Tenant) rate() float64 {
	if t.m.now-t.budget.tick > page.StaleNs {
		return float64(t.budget.given.Base) / arbiter.Whole
	}
	return float64(t.budget.given.Rate) / arbiter.Whole
}

// Percentile is a rank of some figures, of which none need be there.
func Percentile(figures []uint64, rank int) uint64 {
	if len(figures) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(figures))
	return sorted[min(len(sorted)*rank/100, len(sorted)-1)]
}
