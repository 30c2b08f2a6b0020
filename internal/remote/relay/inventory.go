package relay

import (
	"context"
	"errors"
	"time"

	"github.com/divvy-gpu/divvy/internal/remote/wire"
)

// Candidate is a host with what it says that the client could have there.
type Candidate struct {
	Host Host
	// Inventory is nil where the host did not tell, and Err says why.
	Inventory *wire.Inventory
	Err       error
}

// grace is for how long hosts are waited for after the first has answered.
const grace = 2 * time.Second

// errLate is a host that took much longer than another one.
var errLate = errors.New("it took too long to answer, and another host did not")

// Candidates asks all hosts at once, and returns what they say in their order. A host that does not answer holds up nobody for
// long once another one has.
func Candidates(ctx context.Context, hosts []Host) []Candidate {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	type told struct {
		at        int
		candidate Candidate
	}
	answers := make(chan told, len(hosts))
	for i, h := range hosts {
		go func() { answers <- told{i, h.candidate(ctx)} }()
	}
	candidates := make([]Candidate, len(hosts))
	var late <-chan time.Time
	for range hosts {
		select {
		case t := <-answers:
			candidates[t.at] = t.candidate
			if late == nil && t.candidate.Err == nil {
				late = time.After(grace)
			}
			continue
		case <-late:
		}
		cancel(errLate)
		late = nil
		t := <-answers
		candidates[t.at] = t.candidate
	}
	return candidates
}

func (h Host) candidate(ctx context.Context) Candidate {
	ctx, cancel := context.WithTimeoutCause(ctx, dialTime, errSlow)
	defer cancel()
	c, err := h.open(ctx, wire.Open{Purpose: wire.PurposeInventory})
	if err != nil {
		return Candidate{Host: h, Err: lateOr(ctx, err)}
	}
	defer func() { _ = c.Close() }() // which may have ended
	a, err := h.answer(ctx, c)
	switch {
	case err != nil:
		return Candidate{Host: h, Err: lateOr(ctx, err)}
	case a.Inventory == nil:
		return Candidate{Host: h, Err: wire.ErrFrame}
	}
	return Candidate{Host: h, Inventory: a.Inventory}
}

// lateOr is [errLate] where that is why an error came.
func lateOr(ctx context.Context, err error) error {
	if errors.Is(context.Cause(ctx), errLate) {
		return errLate
	}
	return err
}

// A share whose program has just ended is given back in a moment: who starts the next program then asks so often again, after
// such pauses.
const (
	mostAgain  = 2
	againPause = 150 * time.Millisecond
)

// candidates asks all hosts, and again where there would be room for a request that does not wait, but for what is held.
func (hosts Hosts) candidates(ctx context.Context, take wire.Take) []Candidate {
	all := Candidates(ctx, hosts)
	for range mostAgain {
		if c := Choose(all, nil, take.Request); c.At >= 0 || take.Wait || !c.Later {
			break
		}
		select {
		case <-time.After(againPause):
		case <-ctx.Done():
			return all
		}
		all = Candidates(ctx, hosts)
	}
	return all
}
