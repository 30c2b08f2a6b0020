package host

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/remote/server"
	"github.com/divvy-gpu/divvy/internal/remote/wire"
	"github.com/divvy-gpu/divvy/internal/servefile"
)

// waiter is a request that waits until its client has given something back.
type waiter struct {
	who     server.Client
	request v1alpha1.ShareRequest
	largest uint64
}

// count counts what a client asks for, as reserve does. A request that waits does so until the client's bounds have room for it.
func (b *book) count(ctx context.Context, who server.Client, take wire.Take, largest uint64, told func(wire.Queued)) (*entry, servefile.Client, error) {
	if !take.Wait {
		return b.reserve(who, take.Request, largest)
	}
	mine := &waiter{who, take.Request, largest}
	defer b.leave(mine)
	var last wire.Queued
	for {
		e, client, now, changed, err := b.turn(mine)
		if e != nil || err != nil {
			return e, client, err
		}
		if now != last {
			told(now)
			last = now
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, client, fmt.Errorf("give up waiting: %w", context.Cause(ctx))
		}
	}
}

// turn reserves for the first of a client's requests that wait, if there is room. For one that goes on waiting it returns where it
// stands, and what is closed when that may be otherwise. A request that is beyond a bound by itself, whatever the client gives
// back, is refused.
func (b *book) turn(mine *waiter) (e *entry, client servefile.Client, now wire.Queued, changed <-chan struct{}, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if client, err = b.find(mine.who); err != nil {
		return nil, client, now, nil, err
	}
	if err = permit(client, servefile.WishOf(mine.request, mine.largest), servefile.Held{}); err != nil {
		return nil, client, now, nil, err
	}
	name := mine.who.Name
	if !slices.Contains(b.waiting[name], mine) {
		if b.waiting == nil {
			b.waiting = map[string][]*waiter{}
		}
		b.waiting[name] = append(b.waiting[name], mine)
	}
	now = wire.Queued{Place: slices.Index(b.waiting[name], mine) + 1, Of: len(b.waiting[name]), Reason: "client " + name + " has other requests that wait"}
	if now.Place == 1 {
		var full error
		if e, client, full = b.enter(mine.who, mine.request, mine.largest); full == nil {
			return e, client, now, nil, nil
		}
		now.Reason = full.Error()
	}
	if b.changed == nil {
		b.changed = make(chan struct{})
	}
	return nil, client, now, b.changed, nil
}

// leave takes a request out of those that wait.
func (b *book) leave(mine *waiter) {
	b.mu.Lock()
	defer b.mu.Unlock()
	name := mine.who.Name
	if !slices.Contains(b.waiting[name], mine) {
		return // it was refused at once
	}
	b.waiting[name] = slices.DeleteFunc(b.waiting[name], func(w *waiter) bool { return w == mine })
	if len(b.waiting[name]) == 0 {
		delete(b.waiting, name)
	}
	b.alter()
}

// alter has those that wait look again. book.mu is held.
func (b *book) alter() {
	if b.changed != nil {
		close(b.changed)
		b.changed = nil
	}
}

// permit is [servefile.Permit] with an error for the client.
func permit(c servefile.Client, w servefile.Wish, h servefile.Held) error {
	err := servefile.Permit(c, w, h)
	if bounds := new(servefile.BoundsError); errors.As(err, &bounds) {
		return &wire.Refused{Code: wire.CodeBounds, Text: err.Error()}
	}
	return err
}
