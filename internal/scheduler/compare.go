package scheduler

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/divvy-gpu/divvy/internal/alloc"
)

const (
	// compareEvery is the least time between two comparisons of the ledger with a rebuild.
	compareEvery = time.Minute
	// comparePart is how many times what a comparison took is waited before the next: it may have 1% of one processor.
	comparePart = 100
)

// comparisons is when the ledger is compared next.
type comparisons struct {
	running atomic.Bool
	next    time.Time // written by what runs
}

// Comparison is what a comparison of the ledger with a rebuild says.
type Comparison struct {
	// Differences counts the GPUs that are counted otherwise. First says what differs first, "" for none.
	Differences int
	First       string
	Took        time.Duration
}

// Compare compares the ledger with one that is made anew of the same objects, if that is due. The cycle only copies the
// ledger; the rebuild runs beside it, and so does told, which is called once if Compare reports true.
func (e *Engine) Compare(clock func() time.Time, told func(Comparison, error)) bool {
	c := &e.comparisons
	if c.running.Load() {
		return false
	}
	begun := clock()
	if begun.Before(c.next) {
		return false
	}
	c.running.Store(true)
	state := e.ledger.State()
	go func() {
		var made Comparison
		policy, err := alloc.PolicyNamed(comparedPolicy)
		if err == nil {
			made.Differences, made.First, err = state.Differences(policy)
		}
		end := clock()
		made.Took = end.Sub(begun)
		c.next = end.Add(max(compareEvery, comparePart*made.Took))
		c.running.Store(false)
		if err != nil {
			err = fmt.Errorf("compare the ledger with a rebuild: %w", err)
		}
		told(made, err)
	}()
	return true
}

// comparedPolicy is that of the rebuild. Amounts do not depend on it, and this one keeps no sums of its own.
const comparedPolicy = "bestfit"

// unwritten are claims whose places are noted in the ledger and that were not seen with their allocation yet. Anybody may
// call its methods: events come while no cycle runs.
type unwritten struct {
	mutex sync.Mutex
	keys  map[string]bool
}

func (u *unwritten) set(key string, is bool) {
	u.mutex.Lock()
	defer u.mutex.Unlock()
	if !is {
		delete(u.keys, key)
		return
	}
	if u.keys == nil {
		u.keys = map[string]bool{}
	}
	u.keys[key] = true
}

// Unwritten counts the claims whose places are noted and that have not come with their allocation. Anybody may call it.
func (e *Engine) Unwritten() int {
	e.unwritten.mutex.Lock()
	defer e.unwritten.mutex.Unlock()
	return len(e.unwritten.keys)
}
