package webhook

import (
	"context"
	"errors"
	"slices"
	"sync"
)

// errBusy says that too many reviews wait already. The API server tries again when it is told when.
var errBusy = errors.New("too many reviews wait already: try again")

const (
	// smallBody is the longest body of the lane for small ones, which hardly any review exceeds.
	smallBody = 256 << 10
	// smallBytes and largeBytes are what the bodies in a lane may have together. A review takes about four times its
	// body's bytes while it is read and judged.
	smallBytes = 8 << 20
	largeBytes = 2 * longestReview
	// leastBytes is what a review counts at least, because its answer takes memory too.
	leastBytes = 128 << 10
	// mostWaiting is how many reviews may wait for a lane.
	mostWaiting = 512
)

// lane bounds the bytes of the reviews that are read and judged at once. Those that do not fit wait. It is fair between
// addresses: they have turns, none has more than three quarters of the lane, and if too many reviews wait, one of the
// address with the most is turned away. So a flood from one address leaves room for others.
type lane struct {
	capacity int64

	mu      sync.Mutex // guards what follows; nothing else is locked within
	used    int64
	held    map[string]int64 // of used, by address
	waiting map[string][]*waiter
	turns   []string // addresses that wait, whose turn it is first
	count   int      // of all who wait
}

// waiter is a review that waits. Ended is closed when it has entered, or with err when it was turned away.
type waiter struct {
	bytes int64
	ended chan struct{}
	err   error
}

func newLane(capacity int64) *lane {
	return &lane{capacity: capacity, held: make(map[string]int64), waiting: make(map[string][]*waiter)}
}

// enter waits until a review of so many bytes fits, and returns what makes room again.
func (l *lane) enter(ctx context.Context, address string, bytes int64) (leave func(), err error) {
	w := &waiter{bytes: bytes, ended: make(chan struct{})}
	l.mu.Lock()
	l.wait(address, w)
	l.admit()
	l.mu.Unlock()
	select {
	case <-w.ended:
	case <-ctx.Done():
		l.mu.Lock()
		defer l.mu.Unlock()
		select {
		case <-w.ended: // at this very moment
			if w.err == nil {
				l.free(address, bytes)
			}
		default:
			l.unwait(address, slices.Index(l.waiting[address], w))
			l.admit()
		}
		return nil, ctx.Err()
	}
	if w.err != nil {
		return nil, w.err
	}
	return sync.OnceFunc(func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.free(address, bytes)
	}), nil
}

// wait adds a waiter as the last of its address. If too many wait, the last of the address with the most is turned
// away, which can be this one.
func (l *lane) wait(address string, w *waiter) {
	if len(l.waiting[address]) == 0 {
		l.turns = append(l.turns, address)
	}
	l.waiting[address] = append(l.waiting[address], w)
	if l.count++; l.count <= mostWaiting {
		return
	}
	most := address
	for _, other := range l.turns {
		if len(l.waiting[other]) > len(l.waiting[most]) {
			most = other
		}
	}
	last := len(l.waiting[most]) - 1
	away := l.waiting[most][last]
	l.unwait(most, last)
	away.err = errBusy
	close(away.ended)
}

// unwait removes a waiter.
func (l *lane) unwait(address string, at int) {
	l.waiting[address] = slices.Delete(l.waiting[address], at, at+1)
	l.count--
	if len(l.waiting[address]) == 0 {
		delete(l.waiting, address)
		l.turns = slices.DeleteFunc(l.turns, func(a string) bool { return a == address })
	}
}

// admit lets waiters in by turns. One that does not fit the lane keeps those behind it out, so that it comes in at
// last; one that does not fit its address's part loses only its turn.
func (l *lane) admit() {
	for i := 0; i < len(l.turns); {
		address := l.turns[i]
		w := l.waiting[address][0]
		if held := l.held[address]; held > 0 && held+w.bytes > l.capacity/4*3 {
			i++
			continue
		}
		if l.used > 0 && l.used+w.bytes > l.capacity {
			return
		}
		l.used += w.bytes
		l.held[address] += w.bytes
		l.unwait(address, 0)
		if len(l.waiting[address]) > 0 {
			l.turns = append(slices.Delete(l.turns, i, i+1), address)
		}
		close(w.ended)
		i = 0
	}
}

// free gives back what a review held.
func (l *lane) free(address string, bytes int64) {
	l.used -= bytes
	if l.held[address] -= bytes; l.held[address] == 0 {
		delete(l.held, address)
	}
	l.admit()
}
