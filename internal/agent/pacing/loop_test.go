package pacing

import (
	"encoding/binary"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/page"
	"github.com/divvy-gpu/divvy/internal/tenantdir"
)

const (
	gib     = 1 << 30
	firstID = "GPU-00000000-0000-4000-8000-000000000001"
	otherID = "GPU-00000000-0000-4000-8000-000000000002"
)

// division is an arbiter with a clock of the test's and tenants of pages alone.
type division struct {
	t    testing.TB
	dir  string
	now  uint64
	loop *loop
	all  []Member
}

func newDivision(t testing.TB) *division {
	t.Helper()
	d := &division{t: t, dir: t.TempDir(), now: 1000 * uint64(time.Second)}
	d.restart()
	return d
}

// restart is a new agent on the same pages.
func (d *division) restart() {
	d.t.Helper()
	loop, err := newLoop(slog.New(slog.DiscardHandler))
	if err != nil {
		d.t.Fatal(err)
	}
	loop.clock = func() uint64 { return d.now }
	d.loop = loop
	d.publish()
}

func (d *division) publish() {
	members := append([]Member(nil), d.all...)
	d.loop.members.Store(&members)
}

// shareOf is a share of the first GPU with a policy of the form of the flags.
func shareOf(policy v1alpha1.Policy, cores, weight int, class v1alpha1.Class) backend.Share {
	c := v1alpha1.ShareConfig{Policy: policy, Weight: weight, Class: class}
	c.Default(cores)
	return backend.Share{
		GPU: backend.GPU{UUID: firstID}, Limit: gib, Cores: cores, MaxCores: c.MaxCores, Weight: c.Weight, Policy: c.Policy, Class: c.Class,
	}
}

// add makes a tenant with shares of different GPUs.
func (d *division) add(id string, shares ...backend.Share) Member {
	d.t.Helper()
	m := Member{backend.Tenant{ID: id, Dir: filepath.Join(d.dir, id), UID: -1, Shares: shares}, &tenantdir.Tenants{}}
	c := page.Config{DeviceCount: uint32(len(shares)), ID: page.Text64(id)}
	for i := range shares {
		c.Device[i].Budget = page.NewBudget(uint32(shares[i].Cores*page.Whole/100), 1, 1)
	}
	if err := tenantdir.Dir(m.Dir).Make(&c, nil, tenantdir.AccessOwner, -1); err != nil {
		d.t.Fatal(err)
	}
	d.all = append(d.all, m)
	d.publish()
	return m
}

// remove ends a tenant as the agent does: its directory goes first.
func (d *division) remove(id string) {
	d.t.Helper()
	if err := os.RemoveAll(filepath.Join(d.dir, id)); err != nil {
		d.t.Fatal(err)
	}
	kept := d.all[:0:0]
	for _, m := range d.all {
		if m.ID != id {
			kept = append(kept, m)
		}
	}
	d.all = kept
	d.publish()
}

// pass lets some rounds of 5 ms happen, before each of which work is called.
func (d *division) pass(rounds int, work func()) {
	for range rounds {
		d.now += uint64(yieldTick)
		if work != nil {
			work()
		}
		d.loop.round(d.t.Context())
	}
}

func (d *division) budget(m Member, device int) page.Budget {
	d.t.Helper()
	c, err := page.ReadConfig(tenantdir.Dir(m.Dir).Config())
	if err != nil {
		d.t.Fatal(err)
	}
	return c.Device[device].Budget
}

// pen writes a tenant's state page, as its library would, or worse.
type pen struct {
	t    testing.TB
	file *os.File
}

func (d *division) pen(m Member) *pen {
	d.t.Helper()
	file, err := os.OpenFile(tenantdir.Dir(m.Dir).State(), os.O_RDWR, 0)
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() { file.Close() })
	return &pen{d.t, file}
}

func (p *pen) u64(at int64, value uint64) {
	var data [8]byte
	binary.LittleEndian.PutUint64(data[:], value)
	if _, err := p.file.WriteAt(data[:], at); err != nil {
		p.t.Fatal(err)
	}
}

func (p *pen) bytes(all []byte, at int64) {
	p.t.Helper()
	if _, err := p.file.WriteAt(all, at); err != nil {
		p.t.Fatal(err)
	}
}

func (p *pen) u32(at int64, value uint32) {
	var data [4]byte
	binary.LittleEndian.PutUint32(data[:], value)
	if _, err := p.file.WriteAt(data[:], at); err != nil {
		p.t.Fatal(err)
	}
}

func bucketWord(device int, offset int64) int64 {
	return page.SizeOfState + int64(device)*page.SizeOfGPU + page.OffsetOfGPUBucket + offset
}

func workerWord(device, place int, offset int64) int64 {
	return page.SizeOfState + int64(device)*page.SizeOfGPU + page.OffsetOfGPUWorker + int64(place)*page.SizeOfWorker + offset
}

// busy is a process that writes intervals one after the other and wants more.
type busy struct {
	pen     *pen
	place   int
	count   uint32
	charged uint64
}

func (b *busy) interval(begin, end, charged uint64) {
	at := workerWord(0, b.place, page.OffsetOfWorkerInterval+int64(b.count%page.Intervals)*page.SizeOfInterval)
	b.pen.u64(at+page.OffsetOfIntervalBegin, begin)
	b.pen.u64(at+page.OffsetOfIntervalEnd, end)
	b.pen.u64(at+page.OffsetOfIntervalCharged, charged)
	b.count++
	b.charged += charged
	b.pen.u32(workerWord(0, b.place, page.OffsetOfWorkerOwner), uint32(b.place)+1)
	b.pen.u32(workerWord(0, b.place, page.OffsetOfWorkerCount), b.count)
	b.pen.u64(bucketWord(0, page.OffsetOfBucketCharged), b.charged)
	b.pen.u64(bucketWord(0, page.OffsetOfBucketLaunches), uint64(b.count))
	b.pen.u64(bucketWord(0, page.OffsetOfBucketWanted), end)
}

func rates(d *division, members ...Member) []int {
	var percents []int
	for _, m := range members {
		percents = append(percents, int(d.budget(m, 0).Rate+page.Whole/200)/(page.Whole/100))
	}
	return percents
}

func TestBudgetsFollowPolicies(t *testing.T) {
	type want struct {
		share   backend.Share
		rate    int // percent, while all want more
		base    int
		limited bool
	}
	const weighted, fixed, burst = v1alpha1.PolicyWeighted, v1alpha1.PolicyFixed, v1alpha1.PolicyBurst
	const online, offline = v1alpha1.ClassOnline, v1alpha1.ClassOffline
	for name, shares := range map[string][]want{
		"fixed alone":    {{shareOf(fixed, 30, 1, online), 30, 30, true}},
		"weighted alone": {{shareOf(weighted, 0, 1, online), 100, 100, false}},
		"30 and 70":      {{shareOf(fixed, 30, 1, online), 30, 30, true}, {shareOf(fixed, 70, 1, online), 70, 70, true}},
		"1 and 3":        {{shareOf(weighted, 0, 1, online), 25, 25, true}, {shareOf(weighted, 0, 3, online), 75, 75, true}},
		"burst and fixed": {
			{shareOf(burst, 50, 1, online), 70, 50, true}, {shareOf(fixed, 30, 1, online), 30, 30, true},
		},
		"two offline beside a fixed": {
			{shareOf(fixed, 40, 1, online), 40, 40, true},
			{shareOf(weighted, 0, 1, offline), 20, -1, true}, {shareOf(weighted, 0, 2, offline), 40, -1, true},
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDivision(t)
			var members []Member
			var tenants []*busy
			for i, w := range shares {
				m := d.add("t"+strconv.Itoa(i), w.share)
				members = append(members, m)
				tenants = append(tenants, &busy{pen: d.pen(m)})
			}
			d.pass(60, func() {
				for i, b := range tenants {
					own := uint64(yieldTick) * uint64(shares[i].rate) / 100
					begin := d.now - uint64(yieldTick)
					for _, earlier := range shares[:i] {
						begin += uint64(yieldTick) * uint64(earlier.rate) / 100
					}
					b.interval(begin, begin+own, own)
				}
			})
			for i, w := range shares {
				b := d.budget(members[i], 0)
				if limited := b.Flags&page.BudgetLimited != 0; limited != w.limited {
					t.Errorf("share %d: limited %v", i, limited)
				}
				if got := rates(d, members[i])[0]; w.limited && (got < w.rate-2 || got > w.rate+2) {
					t.Errorf("share %d: rate %d %%, want %d", i, got, w.rate)
				}
				if got := int(b.Base) * 100 / page.Whole; w.base >= 0 && got != w.base || got < 1 {
					t.Errorf("share %d: base %d %%, want %d", i, got, w.base)
				}
				if w.limited && b.Tick+uint64(busyTick) <= d.now || b.Depth == 0 || b.Burst == 0 || b.Stretch == 0 {
					t.Errorf("share %d: budget %+v at %d", i, b, d.now)
				}
				if yields := b.Flags&page.BudgetYield != 0; yields != (w.share.Class == offline) {
					t.Errorf("share %d: gives way %v", i, yields)
				}
			}
		})
	}
}

func TestTermsChangeAtTheNextTick(t *testing.T) {
	d := newDivision(t)
	m := d.add("a", shareOf(v1alpha1.PolicyFixed, 30, 1, v1alpha1.ClassOnline))
	d.pass(1, nil)
	if got := rates(d, m)[0]; got != 30 {
		t.Fatalf("rate %d %%", got)
	}
	d.all[0].Shares = []backend.Share{shareOf(v1alpha1.PolicyFixed, 50, 1, v1alpha1.ClassOnline)}
	d.publish()
	d.pass(1, nil)
	if b := d.budget(m, 0); rates(d, m)[0] != 50 || b.Base != page.Whole/2 {
		t.Errorf("budget %+v", b)
	}
	d.all[0].Shares = []backend.Share{shareOf(v1alpha1.PolicyWeighted, 0, 1, v1alpha1.ClassOnline)}
	d.publish()
	d.pass(1, nil)
	if b := d.budget(m, 0); b.Flags != 0 {
		t.Errorf("alone and without a cap, and limited: %+v", b)
	}
}

// What was charged beyond a share's own time comes back to it, and goes on from
// there under the next agent.
func TestCorrectionOutlivesTheAgent(t *testing.T) {
	d := newDivision(t)
	m := d.add("a", shareOf(v1alpha1.PolicyFixed, 50, 1, v1alpha1.ClassOnline))
	b := &busy{pen: d.pen(m)}
	d.pass(1, nil)
	work := func() { b.interval(d.now-2*uint64(time.Millisecond), d.now, 3*uint64(time.Millisecond)) }
	d.pass(20, work)
	d.pass(2, nil)
	const each = int64(time.Millisecond)
	if got := d.budget(m, 0).Correction; got != 20*each {
		t.Errorf("correction %d, want %d", got, 20*each)
	}
	before := d.budget(m, 0)
	// Work that nobody divided stays as it was charged.
	d.now += uint64(yieldTick)
	work()
	d.now += uint64(time.Second)
	d.restart()
	d.pass(1, nil)
	after := d.budget(m, 0)
	if after.Correction != before.Correction || after.Rate != before.Rate || after.Base != before.Base {
		t.Errorf("the next agent jumps from %+v to %+v", before, after)
	}
	if after.Stretch > before.Stretch+10 || after.Stretch+10 < before.Stretch {
		t.Errorf("stretch goes from %d to %d", before.Stretch, after.Stretch)
	}
	d.pass(20, work)
	d.pass(2, nil)
	if got := d.budget(m, 0).Correction; got != 40*each {
		t.Errorf("correction %d, want %d", got, 40*each)
	}
	if used := d.loop.Times("a")[0].Used; used != uint64(40*2*time.Millisecond)+uint64(3*time.Millisecond) {
		t.Errorf("used %d ns since the share began", used)
	}
}

// A tenant with shares of two GPUs meets another neighbour on each.
func TestTenantOnTwoGPUs(t *testing.T) {
	const weighted, fixed, online = v1alpha1.PolicyWeighted, v1alpha1.PolicyFixed, v1alpha1.ClassOnline
	d := newDivision(t)
	other := shareOf(weighted, 0, 1, online)
	other.GPU.UUID = otherID
	both := d.add("both", shareOf(weighted, 0, 1, online), other)
	d.add("first", shareOf(fixed, 60, 1, online))
	rival := shareOf(weighted, 0, 3, online)
	rival.GPU.UUID = otherID
	d.add("second", rival)
	d.pass(1, nil)
	if first, second := d.budget(both, 0), d.budget(both, 1); first.Base != 400_000 || second.Base != 250_000 {
		t.Errorf("bases %d and %d", first.Base, second.Base)
	}
	d.remove("first")
	d.pass(1, nil)
	if first, second := d.budget(both, 0), d.budget(both, 1); first.Flags != 0 || second.Flags != page.BudgetLimited {
		t.Errorf("flags %d and %d", first.Flags, second.Flags)
	}
}

// Guarantees beyond a whole GPU, which --overcommit allows, shrink together.
func TestOvercommittedGuarantees(t *testing.T) {
	d := newDivision(t)
	var members []Member
	for _, cores := range []int{50, 100} {
		members = append(members, d.add("t"+strconv.Itoa(cores), shareOf(v1alpha1.PolicyFixed, cores, 1, v1alpha1.ClassOnline)))
	}
	d.pass(1, nil)
	if a, b := d.budget(members[0], 0).Base, d.budget(members[1], 0).Base; a+b > page.Whole || a < 300_000 || b < 600_000 {
		t.Errorf("bases %d and %d", a, b)
	}
}

// A page that stays as it is needs no decision for a while; a launch that waits for the
// first time, and work that ends, are seen with the next look.
func TestNewsAreDecidedAtOnce(t *testing.T) {
	d := newDivision(t)
	a := d.add("a", shareOf(v1alpha1.PolicyFixed, 40, 1, v1alpha1.ClassOnline))
	d.add("b", shareOf(v1alpha1.PolicyFixed, 40, 1, v1alpha1.ClassOnline))
	d.pass(1, nil)
	pen, work := d.pen(a), &busy{pen: d.pen(a)}
	for name, change := range map[string]func(){
		"a launch":     func() { d.launched(a, d.now) },
		"a first wait": func() { pen.u64(bucketWord(0, page.OffsetOfBucketWanted), d.now) },
		"an interval":  func() { work.interval(d.now-uint64(time.Millisecond), d.now, uint64(time.Millisecond)) },
		"open work": func() {
			pen.u32(workerWord(0, 1, page.OffsetOfWorkerOwner), 2)
			pen.u64(workerWord(0, 1, page.OffsetOfWorkerOpenSince), d.now)
		},
		"work of another process": func() { pen.u32(workerWord(0, 1, page.OffsetOfWorkerOwner), uint32(d.now)) },
	} {
		d.pass(40, nil) // whatever the last change began is over
		change()
		changed := d.now
		d.pass(int(busyTick/yieldTick), nil)
		if tick := d.budget(a, 0).Tick; tick <= changed || tick > changed+uint64(busyTick) {
			t.Errorf("%s at %d: decided at %d", name, changed, tick)
		}
	}
	decisions, last := 0, uint64(0)
	d.pass(40, func() {
		if tick := d.budget(a, 0).Tick; tick != last {
			decisions, last = decisions+1, tick
		}
	})
	if most := 40*int(yieldTick)/int(steady) + 1; decisions > most {
		t.Errorf("%d decisions without news in %s, want at most %d", decisions, 40*yieldTick, most)
	}
	if age := d.now - last; age > page.StaleNs/2 {
		t.Errorf("the last decision is %d ns old", age)
	}
}
