package agent

import (
	"context"
	"time"

	"github.com/divvy-gpu/divvy/internal/history"
	"github.com/divvy-gpu/divvy/internal/history/store"
)

// resumeTime bounds how long an agent that starts waits for what was recorded: a disk may hang.
const resumeTime = 3 * time.Second

// beginHistory makes the recorder, for the shares of the agent before that end while they are taken up.
func (a *Agent) beginHistory() {
	now, r := a.config.Now(), &a.recorder
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hour, r.counted = now.Truncate(time.Hour), now.UTC().Format(time.DateOnly)
	r.last, r.ends, r.bytes, r.many = map[history.Key]recorded{}, map[string]int{}, map[string]int{}, map[manyKey]*history.Record{}
}

// met notes what was recorded of a share of the agent before.
func (r *recorder) met(key history.Key, what recorded) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last[key] = what
}

// goOn notes that all is known that was recorded of living shares.
func (r *recorder) goOn() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.resumed = true
}

// resumeHistory goes on with the history of the agent before: with the bounds of each owner's day, and with what was recorded of the
// shares that it left.
func (a *Agent) resumeHistory(ctx context.Context) {
	if a.config.History == nil {
		return
	}
	now := a.config.Now()
	wait, cancel := context.WithTimeout(ctx, resumeTime)
	defer cancel()
	recounted := a.recount(ctx, now)
	a.resumeLeft(ctx, wait, now)
	a.recorder.goOn()
	select {
	case <-recounted:
	case <-wait.Done(): // it goes on, and is added when it ends
	}
}

// recount adds to the bounds of each owner's day what was written of it before a time. A user may have the agent end and start: that
// must not begin the day anew. It closes what it returns when it has ended.
func (a *Agent) recount(ctx context.Context, before time.Time) <-chan struct{} {
	done := make(chan struct{})
	day := before.UTC().Format(time.DateOnly)
	go func() {
		defer close(done)
		ends, written := map[string]int{}, map[string]int{}
		for at := (&store.Cursor{Day: day}); at != nil && at.Day == day; {
			page, err := a.config.History.Read(*at)
			if err != nil {
				a.config.Log.WarnContext(ctx, "cannot count what was recorded today: the bounds of each user's history begin anew", "error", err)
				break
			}
			for i := range page.Records {
				recountOne(&page.Records[i], day, before, ends, written)
			}
			at = page.Next
		}
		r := &a.recorder
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.counted != day {
			return
		}
		for owner, n := range ends {
			r.ends[owner] += n
		}
		for owner, n := range written {
			r.bytes[owner] += n
		}
	}()
	return done
}

// recountOne counts a record of the day's file as [recorder.fits] did when it was written. One of a sum or of a machine has no bound.
func recountOne(one *history.Record, day string, before time.Time, ends, written map[string]int) {
	if one.Kind != history.KindEnd && one.Kind != history.KindHour || one.At.After(before) || one.From.UTC().Format(time.DateOnly) != day {
		return
	}
	if one.Kind == history.KindEnd {
		ends[one.Owner()]++
	}
	if line, err := one.Encode(); err == nil {
		written[one.Owner()] += len(line)
	}
}

// resumeLeft finds what was recorded of shares that an earlier agent left. What was recorded by another agent, or cannot
// be read until wait is done, counts as recorded up to now.
func (a *Agent) resumeLeft(ctx, wait context.Context, now time.Time) {
	left := a.all()
	if len(left) == 0 {
		return
	}
	keys, since := map[history.Key]bool{}, now
	for _, t := range left {
		v := a.describe(t)
		for _, r := range a.recordsOf(&v, now) {
			keys[r.Key()] = true
			if own := t.Origin == ""; !own {
				a.recorder.met(r.Key(), recorded{at: now})
			}
		}
		if t.Created.Before(since) {
			since = t.Created
		}
	}
	type answer struct {
		last map[history.Key]history.Record
		err  error
	}
	found := make(chan answer, 1)
	go func() {
		last, err := a.config.History.Last(keys, since)
		found <- answer{last, err}
	}()
	select {
	case got := <-found:
		if got.err != nil {
			a.config.Log.WarnContext(ctx, "cannot read what was recorded of shares", "error", got.err)
			break
		}
		for key, r := range got.last {
			a.recorder.met(key, recorded{r.At, r.Total, true})
		}
		return
	case <-wait.Done():
		a.config.Log.WarnContext(ctx, "cannot read what was recorded of shares: the disk does not answer")
	}
	for key := range keys {
		a.recorder.met(key, recorded{at: now})
	}
}
