package pacing

import (
	"strconv"

	"github.com/divvy-gpu/divvy/internal/arbiter"
	"github.com/divvy-gpu/divvy/internal/page"
	"github.com/divvy-gpu/divvy/internal/tenantdir"
)

// tenantTime is a tenant's pages, which the loop keeps open.
type tenantTime struct {
	id     string
	uid    int
	time   *tenantdir.Time
	shares []*shareTime // one per GPU of the tenant
}

// shareTime is what the arbiter knows of one share.
type shareTime struct {
	tenant *tenantTime
	device int // the number of the GPU in the tenant's pages
	uuid   string
	key    string
	terms  arbiter.Terms
	// budget is as it stands in the page.
	budget    page.Budget
	bucket    page.Bucket // as last read, the tenant's word
	seen      bool        // bucket was read once
	active    bool
	grown     bucketGrowth
	keys      [page.Workers]workerKey
	works     []arbiter.Work     // as last read
	intervals []arbiter.Interval // behind works
	owners    uint64             // a sum of the workers' owners: another one when processes came or went
	stretch   arbiter.Stretch
	usage     usageLog
	fault     error // of reading or writing the pages
	faults    arbiter.Fault
	faulted   uint64 // when faults was last added to
	// faultCount is how many rounds had a fault, each less than faultShown after the
	// one before.
	faultCount int
	misuse     misuse
	// beats are the keys of the shares whose pulses are linked, by number.
	beats [page.Pulses]string
}

// bucketGrowth is what changed in a bucket since the last round.
type bucketGrowth struct {
	launches bool
	wanted   bool
}

// workerKey keeps the name of a worker, so that it is not made in every round.
type workerKey struct {
	owner uint32
	key   string
}

func openTenant(m *Member) (*tenantTime, error) {
	opened, err := m.Source.OpenTime(m.Tenant)
	if err != nil {
		return nil, err
	}
	t := &tenantTime{id: m.ID, uid: m.UID, time: opened}
	for d := range m.Shares {
		s := &shareTime{tenant: t, device: d, uuid: m.Shares[d].GPU.UUID, key: m.ID + "." + strconv.Itoa(d)}
		s.budget, s.fault = opened.Budgets.Read(d)
		if s.budget.Stretch == 0 {
			s.budget.Stretch = page.Whole
		}
		t.shares = append(t.shares, s)
	}
	return t, nil
}

func (t *tenantTime) close() {
	_ = t.time.Close() // nothing was written that closing could lose
}

// read appends what the share's processes tell of their work.
func (s *shareTime) read(now uint64, works []arbiter.Work) []arbiter.Work {
	s.active, s.grown, s.intervals = false, bucketGrowth{}, s.intervals[:0]
	times, err := s.tenant.time.Times.Read(s.device)
	if err != nil {
		s.fault = err
		return works
	}
	s.fault = nil
	if s.seen {
		s.grown = bucketGrowth{
			launches: times.Bucket.Launches != s.bucket.Launches || times.Bucket.Charged != s.bucket.Charged,
			wanted:   times.Bucket.Wanted != s.bucket.Wanted,
		}
	} else {
		s.usage.start(&times.Bucket, s.budget.Correction)
	}
	s.bucket, s.seen = times.Bucket, true
	s.active = s.grown.launches || s.grown.wanted
	s.works, s.owners = s.works[:0], 0
	for i := range times.Workers {
		w := &times.Workers[i]
		s.owners = s.owners*31 + uint64(w.Owner)
		s.active = s.active || w.OpenSince != 0 && now < w.OpenUntil+uint64(openOverdue)
		s.works = append(s.works, arbiter.Work{
			Key: s.workerKey(w), Share: s.key, Count: w.Count, Intervals: s.copied(w),
			OpenSince: w.OpenSince, OpenUntil: w.OpenUntil, Unmeasured: w.Unmeasured,
		})
	}
	return append(works, s.works...)
}

// thorough is every how many rounds of a resting GPU all is read. The other rounds
// miss what was measured late, because that changes no bucket, and shares whose
// processes never launched anything.
const thorough = 2

// skim is read for a share of a GPU that rests. While the bucket of a share stays
// as it is, nothing else of it changes. If a share stirred, every bucket is read.
func (s *shareTime) skim(now uint64, round int, stirred bool, works []arbiter.Work) []arbiter.Work {
	if !s.seen || round%thorough == 0 {
		return s.read(now, works)
	}
	if len(s.works) == 0 && !stirred {
		s.active, s.grown = false, bucketGrowth{}
		return works
	}
	bucket, err := s.tenant.time.Times.Bucket(s.device)
	if err != nil || bucket != s.bucket {
		return s.read(now, works)
	}
	s.active, s.grown = false, bucketGrowth{}
	for i := range s.works {
		s.active = s.active || s.works[i].OpenSince != 0 && now < s.works[i].OpenUntil+uint64(openOverdue)
	}
	return append(works, s.works...)
}

func (s *shareTime) workerKey(w *page.WorkerTimes) string {
	k := &s.keys[w.Number]
	if k.key == "" || k.owner != w.Owner {
		*k = workerKey{w.Owner, s.key + "." + strconv.Itoa(w.Number) + "." + strconv.FormatUint(uint64(w.Owner), 10)}
	}
	return k.key
}

// copied are a worker's intervals in the replay's words.
func (s *shareTime) copied(w *page.WorkerTimes) []arbiter.Interval {
	from := len(s.intervals)
	for _, i := range w.Intervals {
		s.intervals = append(s.intervals, arbiter.Interval(i))
	}
	return s.intervals[from:len(s.intervals):len(s.intervals)]
}

// account books what the replay found and reports it to the law.
func (s *shareTime) account(now uint64, used arbiter.Usage, bias float64) arbiter.Report {
	own := s.misuse.own(now, uint64(float64(used.Own)*bias))
	s.stretch.Add(used)
	s.budget.Correction += int64(used.Charged) - int64(s.misuse.owed(now, own, used.Told))
	if used.Fault != 0 {
		if now-s.faulted >= uint64(faultShown) {
			s.faults, s.faultCount = 0, 0
		}
		s.faults, s.faulted, s.faultCount = s.faults|used.Fault, now, s.faultCount+1
	}
	if used.Charged > 0 {
		s.misuse.count(now, true, true)
	}
	s.active = s.active || own > 0
	s.usage.add(now, own)
	return arbiter.Report{
		Own: own, Busy: used.Busy, Wanted: s.grown.wanted, Active: s.active,
	}
}

// renew makes the budget hold until a moment.
func (s *shareTime) renew(until uint64) {
	s.budget.Tick = until
	s.write()
}

// set writes the budget that was decided at now.
func (s *shareTime) set(now uint64, decided arbiter.Budget) {
	b := &s.budget
	b.Tick, b.Rate, b.Base, b.Burst, b.Depth = now, decided.Rate, decided.Base, decided.Burst, decided.Depth
	if s.stretch != (arbiter.Stretch{}) { // else what the last agent knew holds
		b.Stretch = s.stretch.PPM()
	}
	b.Flags = 0
	for _, f := range []struct {
		on   bool
		flag uint32
	}{
		{decided.Limited, page.BudgetLimited}, {decided.Beat, page.BudgetBeat}, {decided.Yield, page.BudgetYield},
		{decided.Capped, page.BudgetCapped},
	} {
		if f.on {
			b.Flags |= f.flag
		}
	}
	s.misuse.count(now, decided.Limited, false)
	s.write()
}

func (s *shareTime) write() {
	if err := s.tenant.time.Budgets.Write(s.device, s.budget); err != nil && s.fault == nil {
		s.fault = err
	}
}

func (s *shareTime) limited() bool { return s.budget.Flags&page.BudgetLimited != 0 }
