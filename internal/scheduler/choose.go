package scheduler

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/divvy-gpu/divvy/internal/alloc"
	"github.com/divvy-gpu/divvy/internal/queue"
	"github.com/divvy-gpu/divvy/internal/scheduler/demand"
	"github.com/divvy-gpu/divvy/internal/scheduler/ledger"
	"github.com/divvy-gpu/divvy/internal/scheduler/workload"
)

// ErrRoom marks pods for which there is no room. The text is one line for users: the nearest miss.
var ErrRoom = errors.New("no room")

// ErrDisputed marks pods of which a claim has a part of a GPU that is fenced. It is an [ErrRoom].
var ErrDisputed = fmt.Errorf("%w: a GPU is disputed", ErrRoom)

// ErrBusy marks pods of which a claim is being given devices for another pod. It is an [ErrRoom].
var ErrBusy = fmt.Errorf("%w: a claim is being given its devices", ErrRoom)

// Contested reports whether an error is [ErrDisputed] or [ErrBusy]: no room elsewhere would help.
func Contested(err error) bool { return errors.Is(err, ErrDisputed) || errors.Is(err, ErrBusy) }

// Arrived tells the policy of a pod that was not planned before.
func (e *Engine) Arrived(u *Unit) {
	if len(u.Demand.Claims()) > 0 {
		e.ledger.Inventory().ObservePod(u.Demand.Pod())
	}
}

// Choose finds the unit's place: the first in the order of the policy on a node that lets the pod. among are the nodes on
// which the pod may be, nil is all. The error is [ErrRoom], [ErrQuota] or demand's.
func (e *Engine) Choose(u *Unit, among []string, lets func(node string) bool) error {
	if err := e.Disputed(u); err != nil {
		return err
	}
	inv := e.ledger.Inventory()
	if node := u.Demand.Node(); node != "" {
		among = []string{node}
	}
	if len(u.Demand.Claims()) == 0 {
		return u.stay(lets)
	}
	choices, err := inv.PodChoices(u.Demand.Pod(), e.positions(inv, among))
	if err != nil {
		return fmt.Errorf("%w: %w", demand.ErrDemand, err)
	}
	if t, ready := e.Taking(u.Pod); ready {
		e.use(t)
		if place := t.place(u.Pod); place != nil && lets(place.Name) {
			u.Place, u.taking = *place, t
			u.Allocations, err = u.Demand.Allocations(*place, e.ledger)
			return err
		}
	}
	refused := 0
	var quota *queue.Refusal
	for {
		place, ok := choices.Next()
		if !ok {
			break
		}
		if why := e.allows(u, &place); why != nil {
			quota = why
			continue
		}
		if !lets(place.Name) {
			refused++
			continue
		}
		u.Place = place
		u.Allocations, err = u.Demand.Allocations(place, e.ledger)
		return err
	}
	if quota != nil {
		return quotaError(quota)
	}
	return noPlace(refused, choices.Refusal())
}

// noPlace is the error of a pod that so many nodes do not let, and that the others have no room for.
func noPlace(refused int, refusal *alloc.Refusal) error {
	switch {
	case refused == 1:
		return fmt.Errorf("%w: one node has the GPUs, and the pod may not be on it", ErrRoom)
	case refused > 0:
		return fmt.Errorf("%w: %d nodes have the GPUs, and the pod may be on none of them", ErrRoom, refused)
	case refusal != nil:
		return fmt.Errorf("%w: %w", ErrRoom, refusal)
	}
	return fmt.Errorf("%w: nothing fits", ErrRoom)
}

// Disputed says why a unit cannot keep what its claims have, because a GPU of theirs is fenced, or cannot give them devices,
// because another unit does. The error is [ErrDisputed] or [ErrBusy].
func (e *Engine) Disputed(u *Unit) error {
	for _, key := range slices.Sorted(maps.Keys(u.Existing)) {
		if len(e.noted[key]) > 0 && u.Existing[key].Status.Allocation == nil {
			return fmt.Errorf("%w: claim %s, for another pod", ErrBusy, u.Existing[key].Name)
		}
		f, is := e.ledger.FenceOf(key)
		if !is {
			continue
		}
		others := slices.DeleteFunc(f.Claims, func(other string) bool { return other == key })
		text := fmt.Sprintf("claim %s has a part of GPU %s of node %s, which is fenced: %s", u.Existing[key].Name, f.UUID, f.Node, f.Reason)
		if len(others) > 0 {
			text += fmt.Sprintf("; delete this claim, or what else has a part of that GPU: %s", listed(others))
		}
		return fmt.Errorf("%w: %s", ErrDisputed, text)
	}
	return nil
}

// mostListed is how many names a reason has.
const mostListed = 4

func listed(names []string) string {
	if more := len(names) - mostListed; more > 0 {
		return strings.Join(names[:mostListed], ", ") + fmt.Sprintf(" and %d more", more)
	}
	return strings.Join(names, ", ")
}

// stay places a pod whose claims all have their devices already.
func (u *Unit) stay(lets func(node string) bool) error {
	node := u.Demand.Node()
	if !lets(node) {
		return fmt.Errorf("%w: its claims have devices of node %s, on which the pod may not be", ErrRoom, node)
	}
	u.Place = alloc.Assignment{Name: node, Node: -1}
	return nil
}

func (e *Engine) positions(inv *alloc.Inventory, names []string) *alloc.NodeSet {
	if names == nil {
		return nil
	}
	var set alloc.NodeSet
	for _, name := range names {
		if at, ok := inv.Position(name); ok {
			set.Add(at)
		}
	}
	return &set
}

// Reserve notes the unit's place in the ledger. The error is ledger.ErrTaken, and nothing is noted then.
func (e *Engine) Reserve(u *Unit) error {
	if len(u.reserved) > 0 {
		return nil // with its gang
	}
	for i := range u.Allocations {
		if err := e.reserve(u, u.Allocations[i].Claim, u.Allocations[i].Result); err != nil {
			e.unreserve(u)
			return err
		}
	}
	return nil
}

// ReserveFound notes in the ledger what Kubernetes' own allocator found for claims, which have it as their allocation. A claim
// for extended resources has no name yet: it is noted under its pod's, until the claim comes that the pod owns.
func (e *Engine) ReserveFound(u *Unit, found []*resourcev1.ResourceClaim) error {
	if err := e.allowsFound(u, found); err != nil {
		return err
	}
	for _, claim := range found {
		one := demand.Claim{UID: claim.UID, Namespace: claim.Namespace, Name: claim.Name, Spec: &claim.Spec}
		if forExtended(claim) {
			one.Name = extendedName(u.Pod.UID)
		}
		if err := e.reserve(u, one, claim.Status.Allocation); err != nil {
			e.unreserve(u)
			return err
		}
	}
	return nil
}

// forExtended reports whether Kubernetes made a claim for a pod's extended resources.
func forExtended(claim *resourcev1.ResourceClaim) bool {
	return claim.Annotations[resourcev1.ExtendedResourceClaimAnnotation] == "true"
}

// extendedName is under what the extended resources of a pod are noted. No claim can have such a name.
func extendedName(pod types.UID) string { return "extended resources of " + string(pod) }

func (e *Engine) reserve(u *Unit, claim demand.Claim, result *resourcev1.AllocationResult) error {
	claim.Allocation = result
	given, ok := demand.Adopt(&claim, e.ledger)
	if !ok {
		return nil
	}
	if err := e.ledger.Reserve(claim.Key(), given); err != nil {
		return fmt.Errorf("reserve %s for %s: %w", claim.Key(), u.Pod.Name, err)
	}
	u.reserved = append(u.reserved, claim.Key())
	if e.noted[claim.Key()] == nil {
		e.noted[claim.Key()] = map[*Unit]bool{}
	}
	e.noted[claim.Key()][u] = true
	e.unwritten.set(claim.Key(), true)
	e.queues.touched[claim.Key()] = workload.Claim{Pods: []types.UID{u.Pod.UID}, Flies: true}
	return nil
}

// unreserve ends the notes of a unit. What other units have noted for the same claim stays.
func (e *Engine) unreserve(u *Unit) {
	for _, key := range u.reserved {
		if !e.noted[key][u] {
			continue // the claim has come with its devices
		}
		if delete(e.noted[key], u); len(e.noted[key]) > 0 {
			continue
		}
		delete(e.noted, key)
		if e.ledger.Unreserve(key) {
			e.queues.touched[key] = workload.Claim{}
		}
		e.unwritten.set(key, false)
	}
	u.reserved = nil
}

// Unreserve takes the unit's place back at the start of the next cycle. Anybody may call it, after nobody writes for the
// unit any more.
func (e *Engine) Unreserve(u *Unit) {
	if len(u.reserved) == 0 {
		return
	}
	e.tell(func() { e.Drop([]*Unit{u}) })
	e.freed.Add(1)
}

// Taken reports whether an error says that somebody else has the place.
func Taken(err error) bool { return errors.Is(err, ledger.ErrTaken) }
