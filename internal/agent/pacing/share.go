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
	budget  page.Budget
	bucket  page.Bucket // as last read, the tenant's word
	decided page.Bucket // as it was for the last decision
	seen    bool        // bucket was read once
	wanted  bool        // a launch waited, by the last decision
	// unanswered is how many budgets are still written, changed or not, since a launch began
	// to wait.
	unanswered int
	active     bool
	// asleep is until when its processes wait for the bucket, so that there is nothing to
	// read. Who lies about that is read by then.
	asleep    uint64
	workers   [page.Workers]*worker
	works     []arbiter.Work // as last read
	owners    uint64         // a sum of the workers' owners: another one when processes came or went
	stretch   arbiter.Stretch
	usage     usageLog
	shown     totals
	driven    driven
	held      heldLog
	bill      bill
	fault     error  // of reading or writing the pages
	unwritten error  // the part of it that writing had last
	written   uint64 // the tick of the budget in the page
	faults    arbiter.Fault
	faulted   uint64 // when faults was last added to
	// faultCount is how many rounds had a fault, each less than faultShown after the
	// one before.
	faultCount int
	misuse     misuse
	// beats are the keys of the shares whose pulses are linked, by number.
	beats [page.Pulses]string
}

func openTenant(now uint64, m *Member) (*tenantTime, error) {
	opened, err := m.Source.OpenTime(m.Tenant)
	if err != nil {
		return nil, err
	}
	t := &tenantTime{id: m.ID, uid: m.User(), time: opened}
	for d := range m.Shares {
		s := &shareTime{tenant: t, device: d, uuid: m.Shares[d].GPU.UUID, key: m.ID + "." + strconv.Itoa(d)}
		s.budget, s.fault = opened.Budgets.Read(d)
		if s.budget.Stretch == 0 {
			s.budget.Stretch = page.Whole
		}
		s.shown = totals{s.budget.Used, s.budget.Entitled}
		s.driven.turn(now, now, s.limited())
		t.shares = append(t.shares, s)
	}
	return t, nil
}

// begin opens the bills of a tenant that was just made.
func (t *tenantTime) begin(now uint64, m *Member) {
	for d, s := range t.shares {
		s.bill.begin(now, m.Shares[d].Owed)
		s.driven.fresh = s.driven.from != 0
	}
}

func (t *tenantTime) close() {
	_ = t.time.Close() // nothing was written that closing could lose
}

// read takes up what the share's processes tell of their work, and reports whether a
// decision should not wait: something was launched, measured or ended, or a launch waits
// while none did for a while.
func (s *shareTime) read(now uint64) (news bool) {
	if now < s.asleep {
		s.active = true
		return false
	}
	s.active, s.asleep = false, 0
	times, err := s.tenant.time.Times.Read(s.device)
	if err != nil {
		news = s.fault == nil
		s.fault, s.works = err, s.works[:0]
		return news
	}
	s.fault = s.unwritten
	if !s.seen {
		s.resume(now, &times.Bucket)
		if s.bill.at == 0 { // an earlier agent met it
			s.bill.resume(now, min(levelOf(now, times, &s.budget), max(page.Start, float64(s.budget.Burst))))
		}
		s.seen, s.bucket, s.decided = true, times.Bucket, times.Bucket
		news = true
	}
	s.bucket = times.Bucket
	s.held.add(now, s.bucket.HeldBack)
	launches := s.bucket.Launches != s.decided.Launches || s.bucket.Charged != s.decided.Charged
	wanted := s.bucket.Wanted != s.decided.Wanted
	s.active = launches || wanted
	again := s.bucket.Wanted > s.decided.Wanted+hunger
	waits := wanted && (!s.wanted || again)
	if waits {
		s.unanswered = answers
	}
	news = news || launches || waits
	news = s.readWorks(times.Workers, now) || news
	s.asleep = s.sleepsUntil(now, times)
	return news
}

// readWorks takes up the work of the share's processes, and reports whether it is not the
// one that was told before.
func (s *shareTime) readWorks(workers []page.WorkerTimes, now uint64) (news bool) {
	told := len(s.works)
	s.works, s.owners = s.works[:0], 0
	for i := range workers {
		w := &workers[i]
		s.owners = s.owners*31 + uint64(w.Owner)
		s.active = s.active || w.OpenSince != 0 && now < w.OpenUntil+uint64(openOverdue)
		work := s.workOf(now, w)
		// What was told before of this place in the list is overwritten next.
		news = news || i >= told || differs(&work, &s.works[:told][i])
		s.works = append(s.works, work)
	}
	return news || told != len(s.works)
}

// differs reports whether a process's work is another one than before, or further.
func differs(work, before *arbiter.Work) bool {
	return work.Key != before.Key || work.Count != before.Count ||
		work.OpenSince != before.OpenSince || work.OpenUntil != before.OpenUntil || work.Unmeasured != before.Unmeasured
}

// grown says whether launches wait or waited since the last decision, and begins anew.
func (s *shareTime) grown() (wanted bool) {
	if s.asleep != 0 {
		s.decided, s.wanted = s.bucket, true
		return true
	}
	s.wanted = s.bucket.Wanted != s.decided.Wanted
	s.decided = s.bucket
	return s.wanted
}

// worker is what is kept of one process's work from one round to the next.
type worker struct {
	owner, count uint32
	unmeasured   uint64
	told         uint64 // when it last told of any work
	key          string
	intervals    []arbiter.Interval
}

// workOf is a worker's work in the replay's words.
func (s *shareTime) workOf(now uint64, w *page.WorkerTimes) arbiter.Work {
	k := s.workers[w.Number]
	if k == nil {
		k = &worker{}
		s.workers[w.Number] = k
	}
	fresh := k.owner != w.Owner
	if fresh {
		k.owner = w.Owner
		k.key = s.key + "." + strconv.Itoa(w.Number) + "." + strconv.FormatUint(uint64(w.Owner), 10)
	}
	if fresh || k.count != w.Count {
		k.count, k.intervals, k.told = w.Count, k.intervals[:0], now
		for _, i := range w.Intervals {
			k.intervals = append(k.intervals, arbiter.Interval(i))
		}
	}
	if fresh || k.unmeasured != w.Unmeasured || w.OpenSince != 0 {
		k.unmeasured, k.told = w.Unmeasured, now
	}
	return arbiter.Work{
		Key: k.key, Share: s.key, Count: w.Count, Intervals: k.intervals,
		OpenSince: w.OpenSince, OpenUntil: w.OpenUntil, Unmeasured: w.Unmeasured,
	}
}

// telling is how many of the share's processes told of work lately.
func (s *shareTime) telling(now uint64) (count int) {
	for _, k := range s.workers {
		if k != nil && k.told != 0 && now-min(k.told, now) < uint64(2*lag) {
			count++
		}
	}
	return count
}

// account books what the replay found and reports it to the law.
func (s *shareTime) account(now uint64, used arbiter.Usage, bias float64) arbiter.Report {
	own := s.misuse.own(now, uint64(float64(used.Own)*bias))
	s.stretch.Add(used)
	owed := s.misuse.owed(now, own, used.Told)
	if used.Charged != owed {
		s.budget.Correction += int64(used.Charged) - int64(owed)
		s.asleep = 0
	}
	s.bill.pass(now, &s.budget)
	s.bill.use(owed, used.Told, s.limited() && now >= s.misuse.uncounted)
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
	if s.limited() {
		s.usage.add(now, own)
	} // else what is told now, of work that goes on from when it had a limit, the driver's figures count
	s.count(now)
	report := arbiter.Report{Own: own, Busy: used.Busy, Wanted: s.grown(), Active: s.active}
	if closed, err := s.tenant.time.Budgets.Closed(s.device, now); err == nil && closed {
		// What waits for the share's turn wants none of the GPU's time, and else would keep half of it from whose turn it is.
		report.Wanted, report.Active = false, false
	}
	return report
}

// renew makes the budget hold until a moment.
func (s *shareTime) renew(until uint64) {
	s.budget.Tick = until
	s.write()
}

// set writes the budget that was decided at now.
func (s *shareTime) set(now uint64, decided arbiter.Budget) {
	b, before := &s.budget, s.budget
	defer func() { s.usage.grant(now, b) }()
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
	if b.Rate > before.Rate || b.Flags != before.Flags {
		s.asleep = 0
	}
	if before.Tick = b.Tick; s.asleep != 0 && s.unanswered == 0 && *b == before && s.unwritten == nil && now-min(now, s.written) < kept {
		return
	}
	s.write()
}

func (s *shareTime) write() {
	s.written, s.unanswered = s.budget.Tick, max(0, s.unanswered-1)
	s.unwritten = s.tenant.time.Budgets.Write(s.device, s.budget)
	s.shown = totals{s.budget.Used, s.budget.Entitled}
	if s.fault == nil {
		s.fault = s.unwritten
	}
}

func (s *shareTime) yields() bool { return s.budget.Flags&page.BudgetYield != 0 }

func (s *shareTime) limited() bool { return s.budget.Flags&page.BudgetLimited != 0 }
