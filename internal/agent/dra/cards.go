package dra

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceclaim"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/dra/pool"
	"github.com/divvy-gpu/divvy/internal/edits"
	"github.com/divvy-gpu/divvy/internal/edits/cdi"
	"github.com/divvy-gpu/divvy/internal/pci"
	"github.com/divvy-gpu/divvy/internal/rdma"
	"github.com/divvy-gpu/divvy/internal/vm/binding"
	"github.com/divvy-gpu/divvy/internal/vm/claims"
	"github.com/divvy-gpu/divvy/internal/vm/facts"
)

// cardSpecPrefix begins the names of the CDI specifications of cards; the claim's UID follows.
const cardSpecPrefix = "nic." + v1alpha1.Driver + "-"

// Cards gives containers parts of RDMA cards.
type Cards interface {
	// Refresh reads again which cards there are, and by which nodes.
	Refresh(ctx context.Context)
	// Access returns what a container needs to use parts of cards. The error is a [rdma.ErrGone] where a card is not there.
	Access(parts []CardPart) (rdma.Access, error)
	// Functions returns the PCI functions without which these parts would not be there. The error is as that of Access.
	Functions(parts []CardPart) ([]pci.Address, error)
	// Limited returns those of Functions where the kernel limits what containers take.
	Limited(parts []CardPart) ([]pci.Address, error)
	// Openers are the processes in containers that have the adapters of virtual functions among parts open. Those that are gone have none.
	// It is an error where that cannot be told for now.
	Openers(parts []CardPart) ([]facts.Holder, error)
	// Changed returns a channel that is closed when the cards are not any more what they are now.
	Changed() <-chan struct{}
}

// Reserver keeps the virtual machines of a host from functions that containers use.
type Reserver interface {
	// Reserve is an error where a virtual machine has one of the functions.
	Reserve(r claims.Reserved) error
	Unreserve(key string) error
	Reserved() []claims.Reserved
}

// card is one device of a card that the scheduler gave to a claim.
type card struct {
	request, base string
	shareID       *types.UID
	CardPart
}

// isCard reports whether a result is one of this driver's cards.
func isCard(r *resourcev1.DeviceRequestAllocationResult) bool {
	_, ok := pool.IsNIC(r.Device)
	return ok && r.Driver == v1alpha1.Driver
}

// isShare reports whether a result is one of this driver's GPUs, of this node or another, of which the claim has a share or all.
func isShare(r *resourcev1.DeviceRequestAllocationResult) bool {
	return r.Driver == v1alpha1.Driver && !isAdmins(r) && !isMachines(r) && !isCard(r)
}

// cardsOf reads which cards a claim was given. It is pure.
func cardsOf(claim *resourcev1.ResourceClaim, node string) ([]card, error) {
	if claim.Status.Allocation == nil {
		return nil, nil
	}
	var all []card
	for i := range claim.Status.Allocation.Devices.Results {
		r := &claim.Status.Allocation.Devices.Results[i]
		if !isCard(r) {
			continue
		}
		c := card{request: r.Request, base: resourceclaim.BaseRequestRef(r.Request), shareID: r.ShareID, CardPart: CardPart{Device: r.Device}}
		function, _ := pool.IsNIC(r.Device)
		var err error
		switch {
		case isAdmins(r):
			err = fault("it has admin access to an RDMA card, and that is to GPUs: leave it out")
		case r.Pool != node:
			err = fault("its device is on node %s, but this is node %s", r.Pool, node)
		case !function:
			c.Slots, err = slotsOf(r)
		}
		if err != nil {
			return nil, fmt.Errorf("request %s: %w", r.Request, err)
		}
		all = append(all, c)
	}
	slices.SortStableFunc(all, func(a, b card) int { return placeOf(claim, a.base) - placeOf(claim, b.base) })
	return all, nil
}

// slotsOf is how many slots of a shared card a result takes.
func slotsOf(r *resourcev1.DeviceRequestAllocationResult) (int, error) {
	slots, err := consumed(r, v1alpha1.CapacitySlots)
	if err == nil && (slots == 0 || slots > pool.MostNICSlots) {
		err = fault("slots %d: a part of a card takes 1 to %d", slots, pool.MostNICSlots)
	}
	return int(slots), err
}

// attach gives a claim its cards, and remembers that. It returns what holds for its containers too.
func (d *driver) attach(ctx context.Context, claim *resourcev1.ResourceClaim) (devices []kubeletplugin.Device, err error) {
	cards, err := cardsOf(claim, d.node)
	if err != nil || len(cards) == 0 {
		return nil, err
	}
	if d.cards == nil {
		return nil, fault("the agent of this node publishes no cards any more: delete the claim")
	}
	if err := d.runtime.check(ctx); err != nil {
		return nil, err
	}
	// The kernel numbers nodes anew when a driver is loaded again, and another adapter may have the number of a moment ago.
	d.cards.Refresh(ctx)
	pods, err := d.podsOf(ctx, claim)
	if err != nil {
		return nil, err
	}
	before, had := d.attached.get(claim.UID)
	views, together, err := d.cardViews(ctx, claim, cards, pods, before.Views)
	if err != nil {
		return nil, err
	}
	made := attach(claim, cards, views, together)
	if err := d.putAttached(made); err != nil {
		return nil, err
	}
	d.step("cards-recorded")
	told, err := d.writeCardSpec(made)
	if err != nil {
		if !had {
			err = errors.Join(err, d.detach(claim.UID))
		}
		return nil, err
	}
	d.step("cards-spec")
	if !had {
		d.teller.attaches(claim, pods, told)
		d.teller.raw(claim, pods, cards)
	}
	for _, c := range cards {
		at := slices.IndexFunc(views, func(v view) bool { return slices.Contains(v, c.base) })
		devices = append(devices, kubeletplugin.Device{
			Requests: []string{c.request}, PoolName: d.node, DeviceName: c.Device, ShareID: c.shareID,
			CDIDeviceIDs: []string{v1alpha1.CDINICKind + "=" + cardDevice(claim.UID, views[at])},
		})
	}
	return devices, nil
}

// attach is what is remembered of a claim's cards, in the order of its requests. It is pure.
func attach(claim *resourcev1.ResourceClaim, cards []card, views []view, together [][]CardPart) attached {
	made := attached{UID: claim.UID, Namespace: claim.Namespace, Claim: claim.Name}
	for at, v := range views {
		one := attachedView{Requests: v, Together: together[at]}
		for i := range cards {
			if slices.Contains(v, cards[i].base) {
				one.Parts = append(one.Parts, cards[i].CardPart)
			}
		}
		made.Views = append(made.Views, one)
	}
	return made
}

// cardViews divides a claim's cards by the containers that use them, and tells what these have by all their claims.
func (d *driver) cardViews(ctx context.Context, claim *resourcev1.ResourceClaim, cards []card, pods []*corev1.Pod, made []attachedView) (views []view, together [][]CardPart, err error) {
	bases := map[string]bool{}
	for i := range cards {
		bases[cards[i].base] = true
	}
	requests := slices.Sorted(maps.Keys(bases))
	if err := divisible(requests, pods); err != nil && len(made) == 0 {
		return nil, nil, err
	}
	var uses []use
	var all [][]CardPart
	for _, pod := range pods {
		found, err := usesOf(pod, claim)
		if err != nil {
			return nil, nil, err
		}
		for i := range found {
			var parts []CardPart
			if len(found[i].view(requests)) > 0 {
				if parts, err = d.checkCards(ctx, pod, claim, &found[i]); err != nil {
					return nil, nil, err
				}
			}
			all = append(all, parts)
		}
		uses = append(uses, found...)
	}
	if len(made) > 0 {
		views, err = viewsOf(requests, uses, viewsIn(made))
		for i := range made {
			together = append(together, made[i].Together)
		}
		return views, together, err
	}
	if views, err = viewsOf(requests, uses, nil); err == nil {
		together, err = agreed(requests, views, uses, all)
	}
	return views, together, err
}

// checkCards checks whether a container can have cards, and tells what it has by all its claims.
func (d *driver) checkCards(ctx context.Context, pod *corev1.Pod, claim *resourcev1.ResourceClaim, u *use) ([]CardPart, error) {
	if u.class != nil {
		if kernel := d.kernels.Own(u.class, d.handlers.of(ctx, *u.class)); kernel != "" {
			return nil, fault("container %s of pod %s runs on a kernel of its own (runtime class %s), where an adapter of this node is no device: use another runtime class", u.container, u.pod, kernel)
		}
	}
	return d.togetherOf(ctx, pod, claim, u)
}

// putAttached remembers a claim's cards, unless another claim has one of them alone, or a virtual machine has it.
func (d *driver) putAttached(made attached) error {
	d.attaching.Lock()
	defer d.attaching.Unlock()
	if device, whose := made.alone(d.attached.list()); device != "" {
		return fault("device %s is prepared for claim %s, which has it alone: end that claim's pods first", device, whose)
	}
	if err := d.reserve(made); err != nil {
		return err
	}
	d.step("cards-reserved")
	return d.attached.put(made)
}

// reserve keeps virtual machines from the functions of a claim's cards.
func (d *driver) reserve(a attached) error {
	var parts []CardPart
	for _, v := range a.Views {
		parts = append(parts, v.Parts...)
	}
	functions, err := d.cards.Functions(parts)
	limited, fault := d.cards.Limited(parts)
	if err = errors.Join(err, fault); err != nil {
		return fmt.Errorf("give %s its cards: %w", a.name(), err)
	}
	return d.reserver.Reserve(claims.Reserved{Key: string(a.UID), Name: a.name(), Functions: functions, Limited: limited})
}

// cardDevice is the name of a view's CDI device.
func cardDevice(claim types.UID, requests []string) string {
	return deviceName(string(claim) + viewMark + strings.Join(requests, requestMark))
}

// cardSpec is the specification by which container runtimes find a claim's cards.
func (d *driver) cardSpec(a attached) (spec *cdi.Specification, told []string, err error) {
	devices := map[string]edits.Edits{}
	for _, v := range a.Views {
		access, err := d.cards.Access(v.Parts)
		if err != nil {
			return nil, nil, fmt.Errorf("give %s its cards: %w", a.name(), err)
		}
		if len(v.Together) > 0 {
			all, err := d.cards.Access(v.Together)
			if err != nil {
				return nil, nil, fmt.Errorf("give %s its cards: %w", a.name(), err)
			}
			access.Edits.Env, access.Edits.Hooks, access.Told = all.Edits.Env, all.Edits.Hooks, all.Told
		}
		devices[cardDevice(a.UID, v.Requests)] = access.Edits
		for _, line := range access.Told {
			if !slices.Contains(told, line) {
				told = append(told, line)
			}
		}
	}
	spec, err = cdi.Spec(v1alpha1.CDINICKind, devices)
	return spec, told, err
}

func (d *driver) writeCardSpec(a attached) (told []string, err error) {
	spec, told, err := d.cardSpec(a)
	if err != nil || cdi.Written(d.cdiDir, cardSpecPrefix+string(a.UID), spec) {
		return told, err
	}
	return told, cdi.Write(d.cdiDir, cardSpecPrefix+string(a.UID), spec)
}

// detachClosed is detach, once no container has the adapter of one of the claim's virtual functions open. A descriptor that was passed to a
// container that goes on would reach what the function's next owner does there.
func (d *driver) detachClosed(claim types.UID) error {
	a, had := d.attached.get(claim)
	if had && d.cards != nil {
		var parts []CardPart
		for _, v := range a.Views {
			parts = append(parts, slices.DeleteFunc(slices.Clone(v.Parts), func(p CardPart) bool { return p.Slots > 0 })...)
		}
		holders, err := d.cards.Openers(parts)
		if err != nil {
			return fmt.Errorf("take the cards of %s back: %w", a.name(), err)
		}
		if len(holders) > 0 {
			return fault("the cards of %s are kept back until their adapters are closed: %s", a.name(), binding.Named(holders))
		}
	}
	return d.detach(claim)
}

// detach takes a claim's cards back; that it has none is no error. The record goes after the specification: while it is there, there
// may be one. Virtual machines may have the cards last. What limited a container went with its cgroup.
func (d *driver) detach(claim types.UID) error {
	if err := cdi.Remove(d.cdiDir, cardSpecPrefix+string(claim)); err != nil {
		return err
	}
	if err := d.attached.remove(claim); err != nil {
		return err
	}
	d.step("cards-forgotten")
	return d.reserver.Unreserve(string(claim))
}

// cardSpecifications makes the specifications of cards match the records and the cards as they are now: another adapter may have
// the number that a node had.
func (r *reconciler) cardSpecifications(ctx context.Context) {
	known, ok := r.specified(ctx, cardSpecPrefix)
	if !ok {
		return
	}
	for _, a := range r.attached.list() {
		known[a.UID] = true
	}
	for _, reserved := range r.reserver.Reserved() {
		known[types.UID(reserved.Key)] = true
	}
	for uid := range known {
		r.matchCards(ctx, uid)
	}
}

// matchCards writes a claim's specification anew where it is not as it should be, and reserves its cards again. Without a record, or
// where a card is gone or a virtual machine's, there must be none, so that no container starts with another card.
func (r *reconciler) matchCards(ctx context.Context, uid types.UID) {
	defer r.claims.lock(uid)()
	a, known := r.attached.get(uid)
	var err error
	if known && r.cards != nil {
		a = r.divide(ctx, a)
		if err = r.reserve(a); err == nil {
			_, err = r.writeCardSpec(a)
		}
	}
	if !known || r.cards == nil || errors.Is(err, rdma.ErrGone) || errors.Is(err, claims.ErrTaken) {
		err = errors.Join(err, cdi.Remove(r.cdiDir, cardSpecPrefix+string(uid)))
	}
	if !known && !r.mayUse(uid) {
		err = errors.Join(err, r.reserver.Unreserve(string(uid)))
	}
	if err != nil {
		r.log.WarnContext(ctx, "cannot make a claim's cards as they should be", "claim", uid, "error", oneLine(err))
	}
}

// mayUse reports whether a pod may have what is reserved for a claim of which there is no record, as after that was lost: one that names
// the claim lives, or it is not known which do.
func (r *reconciler) mayUse(uid types.UID) bool {
	for _, reserved := range r.reserver.Reserved() {
		if namespace, name, _ := strings.Cut(reserved.Name, "/"); reserved.Key == string(uid) {
			return !r.pods.known() || len(r.pods.users(namespace, name)) > 0
		}
	}
	return false
}

// changedCards is closed when a card is not any more as it was.
func (d *driver) changedCards() <-chan struct{} {
	if d.cards == nil {
		return nil
	}
	return d.cards.Changed()
}

// attaches tells a claim and its pods what they have of cards.
func (t *teller) attaches(claim *resourcev1.ResourceClaim, pods []*corev1.Pod, told []string) {
	t.prepared(claim, pods, reasonCards, strings.Join(told, "; "))
}
