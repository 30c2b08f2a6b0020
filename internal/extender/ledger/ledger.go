package ledger

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/divvy-gpu/divvy/internal/alloc"
)

// The errors of questions.
var (
	// ErrPod marks a pod that nothing can be said about: it asks for no share, or what it asks cannot be read or never be
	// given.
	ErrPod = errors.New("invalid pod")
	// ErrTaken marks a place that cannot be reserved any more, or at all.
	ErrTaken = errors.New("place is taken")
)

// Config is what a ledger works with.
type Config struct {
	Policy alloc.Policy
	// Grace is for how long a node's agent and pods may say different things of a GPU before it is fenced. An agent tells
	// what it holds a second later than it gives it.
	Grace time.Duration
}

// Ledger is what a cluster's nodes have and what of it is given.
type Ledger struct {
	config Config
	inv    *alloc.Inventory
	now    time.Time

	nodes   map[string]*node
	pods    map[types.UID]*pod
	flights map[types.UID]*flight
	// stale are nodes of which the inventory does not know the newest, and disputed those on which something contradicts
	// itself.
	stale    map[string]staleness
	disputed map[string]bool

	// changes counts what may have changed answers.
	changes   int
	varieties varieties
	selectors selectors
	questions map[question]*asked
	// plain has the ratings for pods without shares.
	plain map[amounts]*alloc.Ratings
}

// staleness says what of a node has changed. Each kind includes those before it.
type staleness uint8

const (
	heldIsStale staleness = iota + 1 // what pods or the agent say of shares
	hostIsStale                      // processors and memory
	gpusAreStale
)

// New makes the ledger of an empty cluster.
func New(c Config) (*Ledger, error) {
	inv, err := alloc.NewInventory(nil, c.Policy)
	if err != nil {
		return nil, fmt.Errorf("make the ledger: %w", err)
	}
	l := &Ledger{
		config: c, inv: inv, nodes: map[string]*node{}, pods: map[types.UID]*pod{}, flights: map[types.UID]*flight{},
		stale: map[string]staleness{}, disputed: map[string]bool{}, questions: map[question]*asked{}, plain: map[amounts]*alloc.Ratings{},
	}
	l.varieties.init()
	l.selectors.init(context.Background())
	return l, nil
}

// SetNode takes in a node: its annotations, and what can be allocated of processors and memory; nil is for one that is
// gone. The ledger keeps nothing of the object but texts.
func (l *Ledger) SetNode(name string, object *corev1.Node) {
	l.setNode(name, viewOfNode(object))
}

// SetPod takes in a pod, whatever it asks; nil is for one that is gone. Every pod that has a node counts with what it
// asks of processors and memory, so that the policy sees what the host has left. What was reserved for the pod ends where
// the pod is seen with a node, and where it is gone or has ended. The ledger keeps nothing of the object but texts.
func (l *Ledger) SetPod(uid types.UID, object *corev1.Pod) {
	l.setPod(uid, viewOfPod(object))
}

// Inventory is what there is, with everything that was told until this call. The caller must not reserve there.
func (l *Ledger) Inventory() *alloc.Inventory {
	l.flush()
	return l.inv
}

// Advance tells the time, which decides when a contradiction has lasted for the grace. It returns when it is to be called
// next at the latest; the zero time is never. What changes begins to last at the time of the last call before.
func (l *Ledger) Advance(now time.Time) (due time.Time) {
	l.flush()
	l.now = now
	for name := range l.disputed {
		n := l.nodes[name]
		l.fence(n)
		for _, d := range n.disputes {
			if at := d.since.Add(l.config.Grace); at.After(now) && (due.IsZero() || at.Before(due)) {
				due = at
			}
		}
	}
	return due
}

// mostAmount bounds every amount that foreign objects tell, in whatever unit: sums of 65,536 of them are still integers.
const mostAmount = 1 << 47

func bounded(n int64) int64 { return min(max(n, 0), mostAmount) }

// touch notes that the inventory is to be told of a node.
func (l *Ledger) touch(name string, how staleness) {
	l.stale[name] = max(l.stale[name], how)
	l.changes++
}

// flush tells the inventory of all nodes that have changed.
func (l *Ledger) flush() {
	if len(l.stale) == 0 {
		return
	}
	names := slices.Sorted(maps.Keys(l.stale))
	var put []alloc.Node
	for _, name := range names {
		n := l.nodes[name]
		_, known := l.inv.Position(name)
		switch {
		case !n.view.there:
			if known {
				_ = l.inv.Remove(name) // it is there
			}
		case known && l.stale[name] == heldIsStale:
		case known && l.stale[name] == hostIsStale:
			_ = l.inv.SetHost(name, n.view.cpu, n.cpuUsed(), n.view.memory, n.memoryUsed()) // it is there, and nothing is negative
		default:
			put = append(put, n.describe())
		}
	}
	if len(put) > 0 && l.inv.Put(put...) != nil {
		l.putEach(put)
	}
	for _, name := range names {
		n := l.nodes[name]
		if l.stale[name] == gpusAreStale {
			for _, p := range n.holders {
				l.count(p)
			}
		}
		l.compare(n)
		l.fence(n)
		if n.idle() {
			delete(l.nodes, name)
		}
	}
	clear(l.stale)
}

// putEach puts nodes that the inventory refused together: without their GPUs where it refuses one of them.
func (l *Ledger) putEach(put []alloc.Node) {
	for i := range put {
		n := l.nodes[put[i].Name]
		one := n.describe()
		err := l.inv.Put(one)
		if err == nil {
			continue
		}
		n.fault = err.Error()
		one.GPUs, one.Near = nil, nil
		if l.inv.Put(one) != nil {
			_ = l.inv.Remove(one.Name) // beyond the most nodes; it may be there in an older form
		}
	}
}

func (l *Ledger) node(name string) *node {
	n := l.nodes[name]
	if n == nil {
		n = &node{name: name, holders: map[types.UID]*pod{}}
		l.nodes[name] = n
	}
	return n
}
