package agent

import (
	"cmp"
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
	// gpus can serve the request, may are those of them that can do so now within its
	// user's limits, and keeps those on which nobody overtakes it: see keeping.
	gpus, may, keeps gpuSet
	// lacks is what the GPUs that it keeps, by their places, had too little of when that
	// was last decided.
	lacks map[int]lack
	// host is the host memory that is kept for the request: all that it needs.
	host uint64
	// due is until when an asker must come back who waited for an earlier agent, zero
	// once they are here.
	due time.Time
}

// claimTime is how long a place is kept for who waited for an earlier agent: many times
// what a program takes to see that the agent is back.
const claimTime = 10 * time.Second

const reasonUnclaimed = "who asked has not come back yet since the agent started again"

// admit enters a tenant into the ledger when its request fits. Each waiting request keeps
// as many GPUs as it asks for, and there nobody overtakes it: otherwise small ones could
// keep a large one waiting for ever. On the other GPUs that could serve it, it is served
// before those that came later, and they go on while it has no room there.
func (a *Agent) admit(ctx context.Context, peer *control.Peer, who requester, p control.CreateParams) (*tenant, error) {
	mine := a.claim(ctx, peer, p)
	defer func() { a.leaveQueue(ctx, mine) }()
	if err := a.awaitGathered(ctx); err != nil {
		return nil, err
	}
	var told control.Queued
	for {
		a.mu.Lock()
		var t *tenant
		var err error
		if t, mine, err = a.try(ctx, peer, who, p, mine); t != nil || err != nil {
			a.mu.Unlock()
			return t, err
		}
		now := control.Queued{Ticket: mine.Ticket, Since: mine.Since, Reason: mine.reason}
		now.Place, now.Of = a.standing(ctx, mine)
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

// try admits a request, which leaves the queue then, or refuses it. It returns neither a
// tenant nor an error for one that waits, which is in the queue. Agent.mu is held.
func (a *Agent) try(ctx context.Context, peer *control.Peer, who requester, p control.CreateParams, mine *ticket) (*tenant, *ticket, error) {
	awaited := a.awaited(ctx, mine)
	who.request.AvoidGPUs, who.ahead = a.uuidsOf(awaited), a.hostAhead(mine)
	t, err := a.tryAdmit(ctx, peer, who, p, mine, awaited)
	if err == nil && mine != nil { // before anybody looks what it keeps
		a.queue = slices.DeleteFunc(a.queue, func(o *ticket) bool { return o == mine })
		return t, nil, nil
	}
	if err == nil || !p.Wait || !alloc.Waits(err) {
		return t, mine, a.refused(ctx, err, who)
	}
	if mine == nil {
		var saveErr error
		if mine, saveErr = a.queueUp(peer, p); saveErr != nil {
			return nil, mine, saveErr
		}
	}
	mine.reason = a.facts(err, nil)
	return nil, mine, nil
}

// queueUp enters a request at the end of the queue. Agent.mu is held.
func (a *Agent) queueUp(peer *control.Peer, p control.CreateParams) (*ticket, error) {
	mine := a.newTicket(peer, p, a.candidates(p.Request), a.config.Now())
	a.queue = append(a.queue, mine)
	if err := a.save(); err != nil {
		return mine, err
	}
	a.announce()
	return mine, nil
}

// newTicket is a request that nobody knows yet. Agent.mu is held.
func (a *Agent) newTicket(peer *control.Peer, p control.CreateParams, gpus gpuSet, since time.Time) *ticket {
	return &ticket{gpus: gpus, waiting: waiting{
		Ticket: cmp.Or(a.unused(p.Ticket), rand.Text()), Request: p.Request, UID: peer.UID, User: process.UserName(peer.UID), Since: since,
	}}
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

// claim gives who asked an earlier agent their place again. A ticket that is
// another user's, that somebody has, that nobody knows, or that is of a request for other
// GPUs gives nothing, unless the queue was lost: see rejoin. If the earlier agent granted the request and ended before it could
// say so, what it granted ends, and the request comes first.
func (a *Agent) claim(ctx context.Context, peer *control.Peer, p control.CreateParams) *ticket {
	if p.Ticket == "" {
		return nil
	}
	a.mu.Lock()
	gpus := a.candidates(p.Request)
	for _, t := range a.queue {
		if t.UID == peer.UID && !t.due.IsZero() && same(t.Ticket, p.Ticket) && t.gpus.has(gpus) {
			t.due, t.Request, t.gpus = time.Time{}, p.Request, gpus
			a.tell()
			a.mu.Unlock()
			return t
		}
	}
	var granted *tenant
	for _, t := range a.tenants {
		if t.UID == peer.UID && t.Holder == peer.Process && !t.connection && t.Ticket != "" && same(t.Ticket, p.Ticket) {
			granted = t
		}
	}
	if granted == nil {
		mine := a.rejoin(ctx, peer, p, gpus)
		a.mu.Unlock()
		return mine
	}
	// It is in the queue before what was granted is free, which would else go to another.
	first := &ticket{gpus: gpus, waiting: waiting{
		Ticket: p.Ticket, Request: p.Request, UID: peer.UID, User: granted.User, Since: granted.Created,
	}}
	a.queue = slices.Insert(a.queue, 0, first)
	a.tell()
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

// leaveQueue takes a request out of the queue that was given up or refused. While the
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
		a.queue = append(a.queue, &ticket{waiting: w, reason: reasonUnclaimed, gpus: gpus, due: a.config.Now().Add(claimTime)})
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
