package scheduler

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	policylisters "k8s.io/client-go/listers/policy/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/divvy-gpu/divvy/internal/alloc"
	"github.com/divvy-gpu/divvy/internal/scheduler/ledger"
)

// ErrWait marks pods that cannot be placed yet for a reason that is none of room: the text is one line for users.
var ErrWait = errors.New("not yet")

// Claims finds claims with everything that is known of them, also what was written and has not come back yet.
type Claims interface {
	Get(namespace, name string) (*resourcev1.ResourceClaim, error)
}

// Engine plans pods. Its methods may be called by the goroutine of the scheduling cycle alone, but for those whose
// comments say otherwise.
type Engine struct {
	ledger *ledger.Ledger
	claims Claims
	// uses are the generations of nodes whose use is in the ledger.
	uses  map[string]int64
	added int
	// slices are those of each pool, by their names.
	pools map[string]map[string]*resourcev1.ResourceSlice
	bare  bare

	handlers  []cache.ResourceEventHandlerRegistration
	described described
	// Waiting are the pods for which there is no room.
	Waiting Waiting
	// Gangs are the pods that belong together.
	Gangs Gangs
	// labels are those of nodes, by their names.
	labels map[string]map[string]string
	// cordoned are the nodes that take no more pods.
	cordoned map[string]bool

	queues queues
	// pods and disruptions list what the informers know.
	pods        corelisters.PodLister
	disruptions policylisters.PodDisruptionBudgetLister
	clock       func() time.Time

	// Moves lets pods move that say they may. It is set before the first cycle.
	Moves bool

	comparisons comparisons
	unwritten   unwritten
	heard       heard
	// noted are the units for which the place of a claim is noted, until the claim comes with it.
	noted map[string]map[*Unit]bool

	mutex  sync.Mutex
	events []func()
	// freed counts the events after which there may be more room.
	freed atomic.Uint64
	seen  atomic.Uint64 // of freed, at the start of the cycle
	// edited tells of edits of which only the edited pods were told.
	edited atomic.Bool
}

// New makes an engine that knows nothing yet.
func New(policy alloc.Policy, claims Claims) (*Engine, error) {
	l, err := ledger.New(policy)
	if err != nil {
		return nil, err
	}
	e := &Engine{ledger: l, claims: claims, uses: map[string]int64{}, noted: map[string]map[*Unit]bool{}, pools: map[string]map[string]*resourcev1.ResourceSlice{}}
	e.Waiting.init()
	e.Gangs.init()
	e.labels, e.cordoned = map[string]map[string]string{}, map[string]bool{}
	e.queues.init(&e.Gangs)
	e.clock = time.Now
	return e, nil
}

// tell appends an event, which the next cycle takes in. Anybody may call it.
func (e *Engine) tell(event func()) {
	e.mutex.Lock()
	defer e.mutex.Unlock()
	e.events = append(e.events, event)
}

// Drain takes in what has happened since the last cycle.
func (e *Engine) Drain() {
	e.seen.Store(e.freed.Load())
	e.mutex.Lock()
	events := e.events
	e.events = nil
	e.mutex.Unlock()
	for _, event := range events {
		event()
	}
	e.settle()
}

// Synced reports whether everything that was there at the start has been told. Anybody may call it.
func (e *Engine) Synced() bool {
	for _, h := range e.handlers {
		if !h.HasSynced() {
			return false
		}
	}
	return e.Gangs.settled() && (!e.queues.follows || e.queues.settled.Load())
}

// Use says what the pods of a node ask of it, as a cycle sees the node: thousandths of a processor and bytes. A generation
// that was told already costs nothing.
func (e *Engine) Use(node string, generation int64, use func() (cpu int64, memory uint64)) {
	if e.uses[node] == generation {
		return
	}
	cpu, memory := use()
	e.ledger.SetHostUse(node, cpu, memory)
	e.uses[node] = generation
}

// Added counts the nodes that have come. The use of a node that has come is to be told, even if it was before.
func (e *Engine) Added() int { return e.added }

// Fences are the GPUs that take no more shares though nothing is wrong with them.
func (e *Engine) Fences() []ledger.Fence { return e.ledger.Fences() }
