package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/nvml"
	"github.com/divvy-gpu/divvy/internal/process"
)

// list is the listing for a peer. Command lines may hold secrets: of another user's
// share only the name of the program is shown, but to root.
func (a *Agent) list(ctx context.Context, peer *control.Peer, _ struct{}) (*control.Listing, error) {
	shared, err := a.Listing(ctx)
	if err != nil {
		return nil, err
	}
	l := *shared
	l.Tenants = slices.Clone(l.Tenants)
	for i := range l.Tenants {
		if t := &l.Tenants[i]; peer.UID != 0 && peer.UID != t.UID && len(t.Command) > 0 {
			t.Command = []string{filepath.Base(t.Command[0])}
		}
	}
	if peer.UID != 0 { // what was refused concerns who asked
		l.Events = slices.DeleteFunc(slices.Clone(l.Events), func(e control.Event) bool {
			return e.Kind == control.EventRefused && e.User != process.UserName(peer.UID)
		})
	}
	l.Outside = slices.Clone(l.Outside)
	for i := range l.Outside {
		if peer.UID != 0 {
			l.Outside[i].Answer = "" // the event tells everybody, once
		}
	}
	return &l, nil
}

// listings are made one after another, and each is for everybody who asked before it was
// begun: however many ask, the agent looks at its tenants once at a time.
type listings struct {
	turn chan struct{} // holds one entry while a listing is made
	due  time.Time     // when the next one may begin; who has the turn may use it

	mu   sync.Mutex
	next *nextListing // the one that is not begun, nil if nobody asks
	// seen is what the driver told of all GPUs when it was asked last, at seenAt.
	seen   []snapshot
	seenAt time.Time
}

// nextListing is a listing to come.
type nextListing struct {
	made chan struct{} // closed when it is there
	list *control.Listing
	// wanted counts those for whom it is.
	wanted int
}

// longestRest is the longest pause between two listings. They pause for as long as the
// last took, so that who asks all the time leaves the agent time.
const longestRest = 50 * time.Millisecond

// Listing looks at all tenants and GPUs and lists what it found. The look begins after
// the call. Others may get the same listing: nobody may change it.
func (a *Agent) Listing(ctx context.Context) (*control.Listing, error) {
	s := &a.listings
	s.mu.Lock()
	if s.next == nil {
		s.next = &nextListing{made: make(chan struct{})}
	}
	mine := s.next
	mine.wanted++
	s.mu.Unlock()
	select {
	case <-mine.made:
		return mine.list, nil
	case <-ctx.Done():
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	}
	select {
	case <-mine.made: // before the turn was taken
		return mine.list, nil
	default:
	}
	if ctx.Err() == nil { // then the turn is this caller's
		select {
		case <-time.After(time.Until(s.due)):
		case <-ctx.Done():
		}
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("list shares: %w", err)
	}
	s.mu.Lock()
	s.next = nil // who comes from here on is for the one after it
	s.mu.Unlock()
	begun := time.Now()
	mine.list = a.makeListing(context.WithoutCancel(ctx)) // it is for others too
	s.due = time.Now().Add(min(time.Since(begun), longestRest))
	close(mine.made)
	return mine.list, nil
}

func (a *Agent) makeListing(ctx context.Context) *control.Listing {
	return a.listFrom(ctx, a.sweepBeside(ctx, func() { a.readGauges(ctx) }))
}

// Recent lists what the agent found when it last looked at the GPUs, which it does every second or so: a scrape costs no
// look. Of more than few tenants the agent looks at some each time, so what their pages tell of memory can be some seconds
// older; GPU times are those of the arbiter. An agent that has not looked for longer does so now. The error is that of ctx.
func (a *Agent) Recent(ctx context.Context) (*control.Listing, error) {
	s := &a.listings
	s.mu.Lock()
	snapshots, age := s.seen, a.config.Now().Sub(s.seenAt)
	s.mu.Unlock()
	if len(snapshots) != len(a.gpus) || age < 0 || age > 2*a.config.Interval {
		return a.Listing(ctx)
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("list shares: %w", err)
	}
	return a.listFrom(ctx, snapshots), nil
}

// listFrom lists what a look found.
func (a *Agent) listFrom(ctx context.Context, snapshots []snapshot) *control.Listing {
	a.readGauges(ctx)
	l := &control.Listing{
		Time: a.config.Now(), Info: a.config.Info, GPUs: a.listGPUs(ctx, snapshots), Events: a.events.list(), Tenants: []control.Tenant{},
		History: a.recorder.broken(), Devices: a.describeDevices(),
	}
	for _, t := range a.all() {
		l.Tenants = append(l.Tenants, a.describe(t))
	}
	a.readOutside()
	a.mu.Lock()
	defer a.mu.Unlock()
	l.MetricsTaken = a.metricsTaken
	if a.config.SwapMemory > 0 || a.hostTaken(nil) > 0 {
		l.SwapMemory = &control.HostMemory{Allowed: a.config.SwapMemory, Granted: a.hostTaken(nil)}
	}
	l.Outside, l.LeftOut, l.Refused = a.measured(a.outside), slices.Clone(a.leftOut), maps.Clone(a.refusedGPUs)
	a.arrange(ctx)
	for _, t := range a.queue {
		l.Waiting = append(l.Waiting, control.Waiting{Request: t.Request, User: t.User, Since: t.Since, Reason: t.reason, Keeps: a.kept(t)})
	}
	return l
}

// listGPUs lists all GPUs; there is a snapshot of each, in their order.
func (a *Agent) listGPUs(ctx context.Context, snapshots []snapshot) []control.GPU {
	a.mu.Lock()
	defer a.mu.Unlock()
	granted := a.granted(ctx, nil)
	gpus := make([]control.GPU, 0, len(a.gpus))
	for i, gpu := range a.gpus {
		all := a.wholes[gpu.UUID]
		if all == nil {
			all = &whole{}
		}
		given, _ := a.config.Forms.Of(gpu)
		mode, instances := a.instancesOf(gpu, &snapshots[i])
		one := control.GPU{
			MIG: mode, Instances: instances,
			Hidden: all.unseen, Excess: all.text,
			Index: gpu.Index, UUID: gpu.UUID, Name: gpu.Name, PCI: gpu.PCI, Total: gpu.Total, Reserved: gpu.Reserved, Reading: a.readings[gpu.UUID],
			Capacity: gpu.Capacity(), Granted: granted[i].Granted + granted[i].TurnRoom(), TurnRoom: granted[i].TurnRoom(), Swapped: granted[i].Swapped, Form: v1alpha1.Backend(granted[i].Form), Replicas: given.Replicas, Used: snapshots[i].used, Cores: granted[i].Cores,
			ContextBytes: gpu.ContextBytes, Open: a.open[gpu.UUID], Fault: cmp.Or(a.faultOf(gpu.UUID), snapshots[i].silent), Misgiven: a.misgiven(gpu), Unwatched: a.pacer.Unwatched(gpu.Index),
			Thrashing: a.turns.Thrashing(gpu.UUID),
		}
		if h, taken := a.machineOf(gpu); taken { // what the driver does not tell of it is no fault
			one.Fault, one.Misgiven, one.Hidden, one.Unwatched, one.Excess = h.Fault, "", "", "", ""
		}
		gpus = append(gpus, one)
	}
	return gpus
}

// untold is a question to the driver.
type untold struct {
	what string
	gpu  int
}

// complain logs that the driver did not answer a question about a GPU, once for as
// long as the reason stays the same: the driver is asked every second, and a GPU
// may be lost for days. Not to ask it while a MIG mode changes is the agent's own doing, and no complaint.
func (a *Agent) complain(ctx context.Context, what string, gpu int, err error) {
	if errors.Is(err, nvml.ErrLetGo) {
		return
	}
	text := ""
	if err != nil {
		text = err.Error()
	}
	a.mu.Lock()
	before := a.untold[untold{what, gpu}]
	a.untold[untold{what, gpu}] = text
	a.mu.Unlock()
	if text != before && text != "" {
		a.config.Log.WarnContext(ctx, what, "gpu", gpu, "error", err)
	}
}

// describe is a tenant as listings show it.
func (a *Agent) describe(t *tenant) control.Tenant {
	a.mu.Lock()
	defer a.mu.Unlock()
	v := control.Tenant{
		ID: t.ID, Name: t.Name, UID: t.UID, User: t.User, Dir: t.Dir, Layer: t.Layer, Command: t.Command,
		Created: t.Created, Held: t.held(), Rebuilt: t.Rebuilt, Cooperative: t.Cooperative, Remote: t.Remote, Ending: t.why, Fault: cmp.Or(t.gone, t.fault, t.lostFault(), a.unservedOf(t), t.needs),
	}
	if until := t.until; !until.IsZero() {
		v.Until = &until
	}
	if idle := t.idle; !idle.IsZero() {
		v.Idle = &idle
	}
	v.Suspended = t.describeSuspended()
	if t.lasts() {
		v.Device = deviceOf(t.Name)
	}
	if t.Tenancy != nil {
		v.Namespace, v.Claim, v.Pods, v.Container = t.Tenancy.Namespace, t.Tenancy.Claim, t.Tenancy.Pods, t.Tenancy.Container
	}
	times, seen := a.pacer.Times(t.ID), a.turns.Seen(t.ID)
	for i, s := range t.Shares {
		one := control.Share{
			UUID: s.UUID, Index: a.gpu(s.UUID).Index, Limit: s.Limit, Peak: s.Peak, Cores: s.Cores,
			Policy: s.Policy, MaxCores: s.MaxCores, Weight: s.Weight, Class: s.Class, Backend: s.Backend, Mechanism: a.mechanism(s), Whole: s.Whole, Instance: s.Instance,
		}
		one.SuspendAfter = s.SuspendAfter
		if s.Swap {
			one.Swap = &control.Swap{Kept: s.kept(), KeptUsed: t.keeps(i), Room: t.turn(i)}
		}
		if i < len(t.seen.Usage) {
			u := t.seen.Usage[i]
			one.Used, one.Pending, one.Overhead, one.Time = u.Used, u.Pending, u.Overhead, describeTime(u.Time)
			one.ByDescriptor = u.ByDescriptor
			one.Refusals = describeRefusals(u.Refusals, t.Created)
		}
		on := t.watched(s.UUID)
		one.Observed, one.Excess = on.observed, on.text
		one.Measured, one.Past, one.Signalled = on.overhead, on.past, on.signalled
		one.Used, one.Overhead = one.Used+on.overhead, one.Overhead+on.overhead
		one.Process = a.processesOf(t, i, on.by)
		if i < len(times) {
			one.Time = &times[i]
			if i < len(t.seen.Usage) {
				one.Time.Copied, one.Time.Awaited = t.seen.Usage[i].Copied, t.seen.Usage[i].Awaited
			}
			boundTime(one.Time, a.config.Now().Sub(t.Created))
			one.Time.Lately = t.latelyOf(i, one.Time, a.config.Now())
		}
		if i < len(seen) {
			one.Turns = boundResident(&seen[i], t.seen.Usage, i)
			boundTurns(one.Turns, a.config.Now().Sub(t.Created))
		}
		boundMemory(&one, a.gpu(s.UUID).Total)
		if i >= len(t.highest) {
			t.highest = append(t.highest, highest{})
		}
		t.highest[i].keep(&one)
		v.Shares = append(v.Shares, one)
	}
	return v
}

// processesOf are the living processes of a tenant's share of that number, with what the driver told of each.
func (a *Agent) processesOf(t *tenant, number int, told map[int]uint64) (all []control.Process) {
	proxy, _ := a.config.Backends.Of(t.backend()).(backend.Proxy)
	wanted := a.tenantOf(&t.record)
	for _, p := range t.seen.Processes {
		if !p.Live {
			continue
		}
		of := control.Process{PID: p.PID}
		if proxy != nil && p.PID > 0 {
			of.Client = proxy.Client(wanted, p.PID)
		}
		if observed, ok := told[p.PID]; ok && p.PID != 0 {
			of.Observed = &observed
		}
		if p.Used != nil {
			of.Used = p.Used[number]
		}
		all = append(all, of)
	}
	return all
}

// mostWaiting bounds the threads of a share that wait at once.
const mostWaiting = 1 << 16

// boundTime cuts what a page tells of times and launches to what can be true of a share so old: one page that is full of nonsense would
// spoil every sum.
func boundTime(t *control.Time, age time.Duration) {
	old := uint64(max(age, 0))
	t.HeldBackTotal = min(t.HeldBackTotal, old)
	t.Yielded = min(t.Yielded, t.HeldBackTotal)
	t.Copied, t.Awaited = min(t.Copied, old), min(t.Awaited, old)
	t.Waited = min(t.Waited, old*min(mostWaiting, math.MaxUint64/max(old, 1)))
	t.Launches = min(t.Launches, old) // none takes less than a nanosecond
	t.Overdrawn = min(t.Overdrawn, t.Launches)
}

// boundMemory cuts what a page tells of memory to what the GPU has, 0 where that is not known, or a swap share in all.
func boundMemory(s *control.Share, total uint64) {
	if total == 0 {
		return
	}
	if s.Swap != nil {
		total = max(total, s.Limit)
	}
	for _, told := range []*uint64{&s.Used, &s.Pending, &s.Overhead, &s.Peak, &s.ByDescriptor} {
		*told = min(*told, total)
	}
}

// describeRefusals are the refused allocations of a share of a tenant made at created,
// nil without any.
func describeRefusals(r *backend.Refusals, created time.Time) *control.Refusals {
	if r == nil {
		return nil
	}
	told := &control.Refusals{
		Count: r.ByLimit + r.ByGPU, ByGPU: r.ByGPU, Largest: r.Largest, Last: r.Last, At: r.At, By: control.RefuserLimit,
	}
	if r.LastByGPU {
		told.By = control.RefuserGPU
	}
	if told.At.Before(created) {
		told.At = created
	}
	return told
}

// describeTime is the time that a backend told of a share, nil if it told none.
func describeTime(t *backend.Time) *control.Time {
	if t == nil {
		return nil
	}
	return &control.Time{Used: uint64(t.Used), Percent: t.Percent}
}
