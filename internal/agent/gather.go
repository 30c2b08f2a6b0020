package agent

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/divvy-gpu/divvy/internal/agent/control"
)

// gatherTime is how long those who waited for an agent whose queue is lost may take to come
// back before anybody is served: many times what they take to see that there is one again.
const gatherTime = 2 * time.Second

const reasonGathering = "those who waited before the agent started again come back first"

// gather has those who ask wait until those have come back who waited for the last agent.
func (a *Agent) gather() {
	if a.gathered = a.config.Gathered; a.gathered == nil {
		gathered := make(chan struct{})
		time.AfterFunc(gatherTime, func() { close(gathered) })
		a.gathered = gathered
	}
}

// gathers reports whether those who waited for the last agent may still come back.
func (a *Agent) gathers() bool {
	select {
	case <-a.gathered:
		return false
	default:
		return a.gathered != nil
	}
}

// awaitGathered waits until they have.
func (a *Agent) awaitGathered(ctx context.Context) error {
	if !a.gathers() {
		return nil
	}
	goOn := control.Pause(ctx)
	defer goOn()
	select {
	case <-a.gathered:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("give up waiting: %w", ctx.Err())
	}
}

// rejoin gives who waited for an agent whose queue is lost a place among those who did too,
// by how long they have waited. That is their word, but nobody waited before their own
// process started, which is the kernel's. It returns nil for anybody else, and once those
// who ask are served. Agent.mu is held.
func (a *Agent) rejoin(ctx context.Context, peer *control.Peer, p control.CreateParams, gpus gpuSet) *ticket {
	if !p.Wait || p.Since.IsZero() || peer.Process.PID == 0 || !a.gathers() {
		return nil
	}
	since := p.Since
	if started := peer.Process.Started(); started.After(since) {
		since = started
	}
	if now := a.config.Now(); since.After(now) {
		since = now
	}
	mine := a.newTicket(peer, p, gpus, since)
	mine.reason = reasonGathering
	at := slices.IndexFunc(a.queue, func(t *ticket) bool { return t.Since.After(since) })
	if at < 0 {
		at = len(a.queue)
	}
	a.queue = slices.Insert(a.queue, at, mine)
	if err := a.save(); err != nil {
		a.config.Log.ErrorContext(ctx, "cannot save who waits", "error", err)
	}
	a.announce()
	return mine
}
