package agent

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"fmt"
	"slices"
	"time"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/alloc"
	"github.com/divvy-gpu/divvy/internal/process"
)

// waiting is what the checkpoint keeps of a request that waits.
type waiting struct {
	// Ticket is known to who waits and to nobody else.
	Ticket  string                `json:"ticket"`
	Request v1alpha1.ShareRequest `json:"request"`
	UID     int                   `json:"uid"`
	User    string                `json:"user"`
	Since   time.Time             `json:"since"`
}

// ticket is a request that waits for its turn.
type ticket struct {
	waiting
	reason string
	// limited is true while only its user's own limits keep it waiting.
	limited bool
	// due is until when an asker must come back who waited for an earlier agent, zero
	// once they are here.
	due time.Time
}

// id is the ticket's, empty for a request that does not wait.
func (t *ticket) id() string {
	if t == nil {
		return ""
	}
	return t.Ticket
}

// claimTime is how long a place is kept for who waited for an earlier agent: many times
// what a program takes to see that the agent is back.
const claimTime = 10 * time.Second

const reasonUnclaimed = "who asked has not come back yet since the agent started again"

// admit enters a tenant into the ledger when its request fits. Waiting requests
// are served in the order in which they came: otherwise small ones could overtake
// a large one for ever.
func (a *Agent) admit(ctx context.Context, peer *control.Peer, who requester, p control.CreateParams) (*tenant, error) {
	mine := a.claim(ctx, peer, p.Ticket)
	defer func() { a.leaveQueue(ctx, mine) }()
	var told control.Queued
	for {
		a.mu.Lock()
		t, err := a.tryAdmit(ctx, peer, who, p, mine)
		if err == nil || !p.Wait || !alloc.Waits(err) {
			err = a.refused(ctx, err, who)
			a.mu.Unlock()
			return t, err
		}
		reason := a.facts(err, nil)
		if mine == nil {
			mine = &ticket{waiting: waiting{
				Ticket: rand.Text(), Request: p.Request, UID: peer.UID, User: process.UserName(peer.UID), Since: a.config.Now(),
			}}
			a.queue = append(a.queue, mine)
			if err := a.save(); err != nil {
				a.mu.Unlock()
				return nil, err
			}
			a.announce()
		}
		mine.reason, mine.limited = reason, isLimited(err)
		now := control.Queued{Ticket: mine.Ticket, Place: slices.Index(a.queue, mine) + 1, Of: len(a.queue), Reason: reason}
		changed := a.changed
		a.mu.Unlock()
		if now.Place != told.Place || now.Reason != told.Reason {
			control.Tell(ctx, now)
			told = now
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, fmt.Errorf("give up waiting: %w", ctx.Err())
		}
	}
}

// isTurn reports whether no request waits longer for room; mine is nil for a new one.
// Those that only their user's limits keep waiting hold nobody else up. Agent.mu is held.
func (a *Agent) isTurn(mine *ticket) bool {
	for _, t := range a.queue {
		if t == mine {
			return true
		}
		if !t.limited {
			return false
		}
	}
	return true
}

// claim gives who waited for an earlier agent their place again. A ticket that is
// another user's, that somebody has, or that nobody knows gives nothing. If the earlier
// agent granted the request and ended before it could say so, what it granted ends, and
// the request comes first.
func (a *Agent) claim(ctx context.Context, peer *control.Peer, id string) *ticket {
	if id == "" {
		return nil
	}
	a.mu.Lock()
	for _, t := range a.queue {
		if t.UID == peer.UID && !t.due.IsZero() && subtle.ConstantTimeCompare([]byte(t.Ticket), []byte(id)) == 1 {
			t.due = time.Time{}
			a.mu.Unlock()
			return t
		}
	}
	var granted *tenant
	for _, t := range a.tenants {
		if t.UID == peer.UID && t.Holder.PID == peer.PID && !t.connection && t.Ticket != "" && subtle.ConstantTimeCompare([]byte(t.Ticket), []byte(id)) == 1 {
			granted = t
		}
	}
	a.mu.Unlock()
	if granted == nil {
		return nil
	}
	a.dropHold(ctx, granted, func(t *tenant) { t.process = false })
	a.mu.Lock()
	defer a.mu.Unlock()
	if !granted.ended {
		return nil // a process lives by it
	}
	first := &ticket{waiting: waiting{Ticket: id, UID: peer.UID, User: granted.User, Since: granted.Created}}
	a.queue = slices.Insert(a.queue, 0, first)
	return first
}

// leaveQueue takes a request out of the queue that was granted or given up. While the
// agent ends nobody gives up: the next one keeps their place.
func (a *Agent) leaveQueue(ctx context.Context, mine *ticket) {
	if mine == nil {
		return
	}
	select {
	case <-a.stopped:
		return
	default:
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.queue = slices.DeleteFunc(a.queue, func(t *ticket) bool { return t == mine })
	if err := a.save(); err != nil {
		a.config.Log.ErrorContext(ctx, "cannot save who waits", "error", err)
	}
	a.announce()
}

// restoreQueue keeps the places of those who waited for an earlier agent.
func (a *Agent) restoreQueue(queue []waiting) {
	for _, w := range queue {
		a.queue = append(a.queue, &ticket{waiting: w, reason: reasonUnclaimed, due: a.config.Now().Add(claimTime)})
	}
}

// dropUnclaimed drops the places to which nobody has come back in time.
func (a *Agent) dropUnclaimed(ctx context.Context) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now, before := a.config.Now(), len(a.queue)
	a.queue = slices.DeleteFunc(a.queue, func(t *ticket) bool { return !t.due.IsZero() && now.After(t.due) })
	if len(a.queue) == before {
		return
	}
	if err := a.save(); err != nil {
		a.config.Log.ErrorContext(ctx, "cannot save who waits", "error", err)
	}
	a.announce()
}
