package agent

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
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
	// gpus can serve the request, and keeps are those of them on which nobody overtakes
	// it: none while only its user's own limits keep it waiting.
	gpus, keeps gpuSet
	// due is until when an asker must come back who waited for an earlier agent, zero
	// once they are here.
	due time.Time
}

// claimTime is how long a place is kept for who waited for an earlier agent: many times
// what a program takes to see that the agent is back.
const claimTime = 10 * time.Second

const reasonUnclaimed = "who asked has not come back yet since the agent started again"

// admit enters a tenant into the ledger when its request fits. On each GPU waiting
// requests are served in the order in which they came, and nobody overtakes them:
// otherwise small ones could keep a large one waiting for ever. Requests for other GPUs
// go on.
func (a *Agent) admit(ctx context.Context, peer *control.Peer, who requester, p control.CreateParams) (*tenant, error) {
	mine := a.claim(ctx, peer, p)
	defer func() { a.leaveQueue(ctx, mine) }()
	var told control.Queued
	for {
		a.mu.Lock()
		var t *tenant
		var err error
		if t, mine, err = a.try(ctx, peer, who, p, mine); t != nil || err != nil {
			a.mu.Unlock()
			return t, err
		}
		now := control.Queued{Ticket: mine.Ticket, Reason: mine.reason}
		now.Place, now.Of = a.standing(mine)
		changed := a.changed
		a.mu.Unlock()
		if now.Place != told.Place || now.Reason != told.Reason {
			control.Tell(ctx, now)
			told = now
		}
		goOn := control.Pause(ctx)
		select {
		case <-changed:
			goOn()
		case <-ctx.Done():
			return nil, fmt.Errorf("give up waiting: %w", ctx.Err())
		}
	}
}

// try admits a request or refuses it. It returns neither a tenant nor an error for one
// that waits, which is in the queue then. Agent.mu is held.
func (a *Agent) try(ctx context.Context, peer *control.Peer, who requester, p control.CreateParams, mine *ticket) (*tenant, *ticket, error) {
	awaited := a.awaited(mine)
	who.request.AvoidGPUs = a.uuidsOf(awaited)
	t, err := a.tryAdmit(ctx, peer, who, p, mine, awaited)
	if err == nil || !p.Wait || !alloc.Waits(err) {
		return t, mine, a.refused(ctx, err, who)
	}
	if mine == nil {
		var saveErr error
		if mine, saveErr = a.queueUp(peer, p); saveErr != nil {
			return nil, mine, saveErr
		}
	}
	a.keepGPUs(mine, err)
	mine.reason = a.facts(err, nil)
	return nil, mine, nil
}

// queueUp enters a request at the end of the queue. Agent.mu is held.
func (a *Agent) queueUp(peer *control.Peer, p control.CreateParams) (*ticket, error) {
	mine := &ticket{gpus: a.candidates(p.Request), waiting: waiting{
		Ticket: cmp.Or(a.unused(p.Ticket), rand.Text()), Request: p.Request, UID: peer.UID, User: process.UserName(peer.UID), Since: a.config.Now(),
	}}
	a.queue = append(a.queue, mine)
	if err := a.save(); err != nil {
		return mine, err
	}
	a.announce()
	return mine, nil
}

// unused is a ticket that an asker made, if it is as long as a secret and nobody has it,
// else empty. Agent.mu is held.
func (a *Agent) unused(id string) string {
	if len(id) < shortestTicket || len(id) > longestTicket || slices.ContainsFunc(a.queue, func(t *ticket) bool { return t.Ticket == id }) {
		return ""
	}
	for _, t := range a.tenants {
		if t.Ticket == id {
			return ""
		}
	}
	return id
}

// The lengths of tickets, in bytes.
const (
	shortestTicket = 16
	longestTicket  = 64
)

// keepGPUs notes on which GPUs nobody may overtake a request that was refused. Those
// behind it look again when that changes. Agent.mu is held.
func (a *Agent) keepGPUs(t *ticket, refused error) {
	before := t.keeps
	t.keeps = t.gpus
	var byLimit errLimited
	if errors.As(refused, &byLimit) {
		t.keeps &= byLimit.lack
	}
	if t.keeps != before {
		a.tell()
	}
}

// claim gives who asked an earlier agent their place again. A ticket that is
// another user's, that somebody has, that nobody knows, or that is of a request for other
// GPUs gives nothing. If the earlier agent granted the request and ended before it could
// say so, what it granted ends, and the request comes first.
func (a *Agent) claim(ctx context.Context, peer *control.Peer, p control.CreateParams) *ticket {
	if p.Ticket == "" {
		return nil
	}
	a.mu.Lock()
	gpus := a.candidates(p.Request)
	for _, t := range a.queue {
		if t.UID == peer.UID && !t.due.IsZero() && same(t.Ticket, p.Ticket) && t.gpus.has(gpus) {
			t.due, t.Request, t.gpus, t.keeps = time.Time{}, p.Request, gpus, gpus
			a.mu.Unlock()
			return t
		}
	}
	var granted *tenant
	for _, t := range a.tenants {
		if t.UID == peer.UID && t.Holder.PID == peer.PID && !t.connection && t.Ticket != "" && same(t.Ticket, p.Ticket) {
			granted = t
		}
	}
	if granted == nil {
		a.mu.Unlock()
		return nil
	}
	// It is in the queue before what was granted is free, which would else go to another.
	first := &ticket{gpus: gpus, keeps: gpus, waiting: waiting{
		Ticket: p.Ticket, Request: p.Request, UID: peer.UID, User: granted.User, Since: granted.Created,
	}}
	a.queue = slices.Insert(a.queue, 0, first)
	a.mu.Unlock()
	a.dropHold(ctx, granted, func(t *tenant) { t.process = false })
	a.mu.Lock()
	ended := granted.ended
	a.mu.Unlock()
	if !ended { // a process lives by it
		a.leaveQueue(ctx, first)
		return nil
	}
	return first
}

// same compares secrets.
func same(x, y string) bool { return subtle.ConstantTimeCompare([]byte(x), []byte(y)) == 1 }

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
		gpus := a.candidates(w.Request)
		a.queue = append(a.queue, &ticket{waiting: w, reason: reasonUnclaimed, gpus: gpus, keeps: gpus, due: a.config.Now().Add(claimTime)})
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
