package agent

import (
	"maps"
	"strconv"
	"sync"
	"time"
)

// pace bounds how often something is done for one tenant or one user: at once while that
// is seldom, and every step if it goes on. One goroutine at a time may use it. The zero
// value is ready.
type pace struct{ due time.Time }

// bounds are those of a pace.
type bounds struct {
	step time.Duration
	// ahead is how far the calls may run ahead of their steps.
	ahead time.Duration
}

// A user's tenants that look after notices share one pace: a user may have hundreds.
var (
	ofTenant = bounds{step: 10 * time.Millisecond, ahead: 200 * time.Millisecond}
	ofUser   = bounds{step: 5 * time.Millisecond, ahead: 500 * time.Millisecond}
)

// step returns how long to wait before the next one.
func (p *pace) step(now time.Time, b bounds) time.Duration {
	if p.due.Before(now) {
		p.due = now
	}
	p.due = p.due.Add(b.step)
	return max(0, p.due.Sub(now)-b.ahead)
}

// paces has one pace for each of those for whom the agent works. The zero value is ready.
type paces struct {
	mu    sync.Mutex // held for a moment, alone
	known map[string]*pace
	// full is how many there may be before those that rest are taken out.
	full int
}

// leastPaces are kept before the first are taken out.
const leastPaces = 64

// step returns how long the owner's next look waits.
func (p *paces) step(owner string, now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	one := p.known[owner]
	if one == nil {
		if len(p.known) >= max(p.full, leastPaces) {
			maps.DeleteFunc(p.known, func(_ string, old *pace) bool { return old.due.Before(now) })
			p.full = 2 * len(p.known)
		}
		if p.known == nil {
			p.known = map[string]*pace{}
		}
		one = &pace{}
		p.known[owner] = one
	}
	return one.step(now, ofUser)
}

// costsOf names who bears what the agent does for a tenant: each user, each container, and
// each share of root's, who may do anything.
func costsOf(t *tenant) string {
	if t.contained() || t.UID == 0 {
		return "tenant " + t.ID
	}
	return "user " + strconv.Itoa(t.UID)
}
