package pacing

import "github.com/divvy-gpu/divvy/internal/page"

// totals are a share's GPU times since it began, in ns. None is shown before it is in the page: an agent that is killed
// has told nobody more than the next one knows.
type totals struct{ used, entitled uint64 }

// resume goes on with what the last agent counted, and counts the time since. With a limit the share's bucket tells what
// it used meanwhile, and its base was its right. What a share without one did only the driver knows, as far as it still
// keeps it: see [driven.resume].
func (s *shareTime) resume(now uint64, bucket *page.Bucket) {
	last := &s.budget
	paid := int64(bucket.Charged) - last.Correction
	if last.Counted == 0 { // nobody counted: what the bucket tells stands for both
		s.usage.total = uint64(max(paid, 0))
		s.usage.right.entitled = float64(s.usage.total)
		return
	}
	since := min(last.Counted, now)
	away := now - since
	s.usage.total, s.usage.right.entitled = min(last.Used, now), float64(min(last.Entitled, now))
	if !s.limited() {
		s.driven.resume(last.Driven, since, now)
		return
	}
	s.usage.total += min(uint64(max(paid-last.Paid, 0)), away)
	s.usage.right.entitled += float64(away) * float64(min(last.Base, page.Whole)) / page.Whole
}

// count puts into the budget what the next agent goes on with.
func (s *shareTime) count(now uint64) {
	if !s.seen {
		return
	}
	b := &s.budget
	b.Used, b.Entitled, b.Counted = s.usage.total, uint64(s.usage.right.until(now).entitled), now
	b.Driven, b.Paid = s.driven.from, int64(s.bucket.Charged)-b.Correction
}

// keep writes what was counted of shares of a GPU whose budgets are not written for long, because they have no limit.
func (l *loop) keep(uuid string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	g := l.gpus[uuid]
	if g == nil {
		return
	}
	now := l.clock()
	for _, s := range g.shares {
		if !s.limited() {
			s.keep(now)
		}
	}
}

// keep writes what was counted. That a page cannot be written is found and told when its budget is decided.
func (s *shareTime) keep(now uint64) {
	s.count(now)
	_ = s.tenant.time.Budgets.Write(s.device, s.budget)
	s.shown = totals{s.budget.Used, s.budget.Entitled}
}
