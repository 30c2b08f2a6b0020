package tenantdir

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/divvy-gpu/divvy/internal/backend"
)

// reaps has the reaper run beside the looks: it reads what a tenant writes, so its user can
// have it wait, or have the dead in a page again and again. Of one user's tenants one is
// reaped at a time, with pauses, and looks wait for a user's within bounds only. Tenants in
// containers count one by one. The zero value is ready.
type reaps struct {
	mu     sync.Mutex // held for a moment, alone
	owners map[string]*reaping
}

// reaping is what is done for one owner.
type reaping struct {
	turn chan struct{} // has an entry while a reaper runs, or a pause is made after it
	runs map[Dir]*reap // begun, or waiting for their turn
	// Looks have waited for so long in the window that began at since.
	since  time.Time
	waited time.Duration
}

// reap is one run of the reaper.
type reap struct {
	done chan struct{}
	err  error // when done is closed
}

const (
	// Looks wait for an owner's reapers at most mostReapWait in each reapWindow. A run takes
	// some milliseconds.
	mostReapWait = time.Second
	reapWindow   = 10 * time.Second
	// After a run its owner's next one waits reapPauses times as long, mostReapPause at most.
	reapPauses    = 3
	mostReapPause = 50 * time.Millisecond
)

// costsOf names who bears what the agent does for a tenant: each user, and each container.
func costsOf(t backend.Tenant) string {
	if t.Layer == backend.LayerContainer {
		return "tenant " + t.ID
	}
	return "user " + strconv.Itoa(t.UID)
}

// run has a tenant's directory reaped and waits for it within the bounds. It is not done if
// that takes longer; then the run goes on, and a later look finds what it did.
func (r *reaps) run(ctx context.Context, owner string, d Dir, run func(context.Context) error) (done bool, err error) {
	r.mu.Lock()
	if r.owners == nil {
		r.owners = map[string]*reaping{}
	}
	o := r.owners[owner]
	if o == nil {
		o = &reaping{turn: make(chan struct{}, 1), runs: map[Dir]*reap{}}
		r.owners[owner] = o
	}
	one := o.runs[d]
	if one == nil {
		one = &reap{done: make(chan struct{})}
		o.runs[d] = one
		// Whoever looks now may give up, and the next would have to begin again.
		go r.work(context.WithoutCancel(ctx), owner, d, run)
	}
	begun := time.Now()
	if begun.Sub(o.since) >= reapWindow {
		o.since, o.waited = begun, 0
	}
	left := mostReapWait - o.waited
	r.mu.Unlock()
	over := time.NewTimer(left)
	defer over.Stop()
	select {
	case <-one.done:
		done, err = true, one.err
	case <-over.C:
	case <-ctx.Done():
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	o.waited += time.Since(begun)
	return done, err
}

// work runs the reaper when it is its owner's turn.
func (r *reaps) work(ctx context.Context, owner string, d Dir, run func(context.Context) error) {
	r.mu.Lock()
	o := r.owners[owner]
	one := o.runs[d]
	r.mu.Unlock()
	o.turn <- struct{}{}
	begun := time.Now()
	one.err = run(ctx)
	took := time.Since(begun)
	r.mu.Lock()
	delete(o.runs, d)
	r.mu.Unlock()
	close(one.done)
	<-time.After(min(reapPauses*took, mostReapPause))
	<-o.turn
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(o.runs) == 0 && time.Since(o.since) >= reapWindow {
		delete(r.owners, owner)
	}
}
