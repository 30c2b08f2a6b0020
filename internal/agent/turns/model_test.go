package turns

import (
	"context"
	"encoding/binary"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/page"
	"github.com/divvy-gpu/divvy/internal/residency"
	"github.com/divvy-gpu/divvy/internal/tenantdir"
)

const (
	gib     = uint64(1) << 30
	firstID = "GPU-00000000-0000-4000-8000-000000000001"
	otherID = "GPU-00000000-0000-4000-8000-000000000002"
	thirdID = "GPU-00000000-0000-4000-8000-000000000003"
	// step is how often modelled processes do something.
	step = 10 * time.Millisecond
	// linkRate is what modelled memory moves at, bytes a second.
	linkRate = 10_000_000_000
)

// house is a loop with a clock of the test's bubble, and tenants whose processes are modelled.
type house struct {
	t      *testing.T
	dir    string
	begun  time.Time
	rooms  map[string]uint64
	link   uint64 // what memory moves at, bytes a second
	loop   *Loop
	cancel context.CancelFunc
	ended  chan struct{}

	acting  sync.Mutex // held for a step of one process
	mu      sync.Mutex
	events  []control.Event
	tenants []*tenant
	members []Member
}

func newHouse(t *testing.T, rooms map[string]uint64) *house {
	h := &house{t: t, dir: t.TempDir(), begun: time.Now(), rooms: rooms, link: linkRate}
	h.start()
	return h
}

func (h *house) clock() uint64 { return uint64(1000*time.Second) + uint64(time.Since(h.begun)) }

// start starts an agent on the pages that are there.
func (h *house) start() {
	h.loop = New(Config{Ledger: h, Log: slog.New(slog.DiscardHandler), Clock: h.clock})
	h.loop.Publish(h.members, h.rooms)
	ctx, cancel := context.WithCancel(h.t.Context())
	h.cancel, h.ended = cancel, make(chan struct{})
	go func() {
		defer close(h.ended)
		h.loop.Run(ctx)
	}()
}

// stop ends the agent.
func (h *house) stop() {
	h.cancel()
	<-h.ended
}

func (h *house) Name(tenant string) (name, user string, ok bool) { return tenant, "ada", true }

func (h *house) Tell(e control.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.events = append(h.events, e)
}

func (h *house) told(kind control.EventKind) (tenants []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, e := range h.events {
		if e.Kind == kind {
			tenants = append(tenants, e.Tenant)
		}
	}
	return tenants
}

// tenant is a swap share with one modelled process. What can vary is set before run.
type tenant struct {
	house   *house
	member  Member
	pages   *page.Turns // as its process reads them
	state   *os.File
	bytes   uint64                           // on each of its GPUs
	works   func(now uint64) bool            // whether it has work
	kernel  time.Duration                    // how long what runs goes on after its gate closed
	obeys   func(order uint64) (brings bool) // nil: it carries out every order
	meddles func()                           // called at each step, for what no library does
	stopped bool                             // it does nothing

	order   []page.Turn
	there   uint64
	in, out uint64
	moving  uint64
	goal    uint64 // what is left to move
	leaves  uint64 // when its kernels end
	told    bool   // it said that it carried the order out
	since   uint64 // it waits

	// What the test wants to know.
	ran     time.Duration
	longest time.Duration
	opened  int
	closed  bool
}

// add makes a tenant with so many bytes on each of some GPUs, whose process runs until the test ends.
func (h *house) add(id string, bytes uint64, gpus ...string) *tenant {
	h.t.Helper()
	m := Member{Tenant: backend.Tenant{ID: id, Name: id, Dir: filepath.Join(h.dir, id), UID: -1, Swap: true, Backend: v1alpha1.BackendSlice, Layer: backend.LayerNamespace}, Source: &tenantdir.Tenants{}}
	for _, uuid := range gpus {
		m.Shares = append(m.Shares, backend.Share{
			GPU: backend.GPU{UUID: uuid, Total: 64 * gib}, Limit: 32 * gib, Kept: gib, Weight: 1, Policy: v1alpha1.PolicyWeighted, Class: v1alpha1.ClassOffline,
		})
	}
	c, err := tenantdir.Encode(m.Tenant, 0)
	if err != nil {
		h.t.Fatal(err)
	}
	if err := tenantdir.Dir(m.Dir).Make(&c, nil, tenantdir.AccessOwner, -1); err != nil {
		h.t.Fatal(err)
	}
	one := &tenant{house: h, member: m, bytes: bytes, works: func(uint64) bool { return true }, order: make([]page.Turn, len(gpus)), closed: true}
	one.begin()
	one.set(func() { h.members, h.tenants = append(h.members, m), append(h.tenants, one) })
	h.loop.Publish(h.members, h.rooms)
	return one
}

// begin starts its process: it takes the first slot and charges its memory.
func (o *tenant) begin() {
	h, d := o.house, tenantdir.Dir(o.member.Dir)
	file, err := os.OpenFile(d.State(), os.O_RDWR, 0)
	if err != nil {
		h.t.Fatal(err)
	}
	o.state = file
	lock := unix.Flock_t{Type: unix.F_WRLCK, Start: page.LockBase, Len: 1}
	if err := unix.FcntlFlock(file.Fd(), unix.F_OFD_SETLK, &lock); err != nil {
		h.t.Fatal(err)
	}
	if o.pages, err = page.OpenTurns(d.Config(), d.State(), len(o.order)); err != nil {
		h.t.Fatal(err)
	}
	o.u32(page.OffsetOfStateSlotCount, 1)
	o.u64(page.OffsetOfStateSlot+page.OffsetOfSlotGeneration, 1)
	o.charge(o.bytes)
	o.present(page.OffsetOfPresentTakesPart, 1)
	ctx := h.t.Context()
	go func() {
		defer o.state.Close()
		defer o.pages.Close()
		for {
			select {
			case <-ctx.Done():
				return
			case <-time.After(step):
			}
			o.set(func() {
				if !o.stopped {
					o.act()
				}
			})
		}
	}()
}

// die ends its process as the kernel does: its lock goes.
func (o *tenant) die() {
	o.set(func() { o.stopped = true })
	lock := unix.Flock_t{Type: unix.F_UNLCK, Start: page.LockBase, Len: 1}
	if err := unix.FcntlFlock(o.state.Fd(), unix.F_OFD_SETLK, &lock); err != nil {
		o.house.t.Error(err)
	}
}

func (o *tenant) put(data []byte, at int64) {
	if _, err := o.state.WriteAt(data, at); err != nil {
		o.house.t.Error(err)
	}
}

func (o *tenant) u64(at int64, value uint64) { o.put(binary.LittleEndian.AppendUint64(nil, value), at) }
func (o *tenant) u32(at int64, value uint32) { o.put(binary.LittleEndian.AppendUint32(nil, value), at) }

// each writes a word of each GPU.
func (o *tenant) each(at int64, value uint64) {
	for g := range o.order {
		o.u64(page.SizeOfState+int64(g)*page.SizeOfGPU+at, value)
	}
}

func (o *tenant) present(at int64, value uint64) {
	if at == page.OffsetOfPresentTakesPart {
		for g := range o.order {
			o.u32(page.SizeOfState+int64(g)*page.SizeOfGPU+page.OffsetOfGPUPresent+at, uint32(value))
		}
		return
	}
	o.each(page.OffsetOfGPUPresent+at, value)
}

func (o *tenant) charge(bytes uint64) {
	for g := range o.order {
		o.u32(page.SizeOfState+int64(g)*page.SizeOfGPU+page.OffsetOfGPUAmounts, uint32(bytes/page.Unit))
	}
}

// act does what its library does in a step.
func (o *tenant) act() {
	now := o.house.clock()
	order := o.order[0].Order
	for g := range o.order {
		o.order[g], _ = o.pages.Order(g) // pages that were cut short are a test's doing
	}
	state := o.order[0].Order & (1<<page.TurnBits - 1)
	closed := state != page.TurnOpen && state != page.TurnResident && now <= o.order[0].Valid
	if o.order[0].Order != order {
		o.told, o.goal, o.leaves = false, o.goalOf(state), 0
		if state == page.TurnLeaving {
			o.leaves = now + uint64(o.kernel)
		}
	}
	if (o.obeys == nil || o.obeys(state)) && !o.told {
		o.carry(now, state)
	}
	o.use(now, closed)
	if o.meddles != nil {
		o.meddles()
	}
}

// carry moves memory as it was ordered, piece by piece, and says so in the end.
func (o *tenant) carry(now, state uint64) {
	piece := uint64(float64(o.house.link) * step.Seconds())
	left := o.goal
	switch {
	case now < o.leaves:
		return
	case state == page.TurnLeaving:
		piece = min(piece, left, o.there)
		o.there, o.out, left = o.there-piece, o.out+piece, min(left, o.there)
	case state == page.TurnEntering:
		piece = min(piece, left)
		o.there, o.in = o.there+piece, o.in+piece
		o.displace()
	}
	left -= min(piece, left)
	o.goal = left
	if piece > 0 && (state == page.TurnLeaving || state == page.TurnEntering) {
		o.moving += uint64(float64(piece) / float64(o.house.link) * float64(time.Second))
		o.each(page.OffsetOfGPUResidence+page.OffsetOfResidenceMovedIn, o.in)
		o.each(page.OffsetOfGPUResidence+page.OffsetOfResidenceMovedOut, o.out)
		o.each(page.OffsetOfGPUResidence+page.OffsetOfResidenceMoving, o.moving)
		o.present(page.OffsetOfPresentThere, o.there)
	}
	if left == 0 {
		o.present(page.OffsetOfPresentDone, o.order[0].Order)
		o.told = true
	}
}

// displace has the driver take the room for what came to its GPUs from others, those first whose gates are closed. Nobody
// tells these.
func (o *tenant) displace() {
	for g := range o.member.Shares {
		uuid := o.member.Shares[g].GPU.UUID
		sum := uint64(0)
		for _, other := range o.house.on(uuid) {
			sum += other.there
		}
		for _, closed := range []bool{true, false} {
			for _, other := range o.house.on(uuid) {
				if excess := sum - min(sum, o.house.rooms[uuid]); other != o && other.closed == closed {
					gone := min(excess, other.there)
					other.there, sum = other.there-gone, sum-gone
				}
			}
		}
	}
}

// on are the tenants that have a GPU.
func (h *house) on(uuid string) (found []*tenant) {
	for _, o := range h.tenants {
		for i := range o.member.Shares {
			if o.member.Shares[i].GPU.UUID == uuid {
				found = append(found, o)
			}
		}
	}
	return found
}

// goalOf is how much is to move.
func (o *tenant) goalOf(state uint64) uint64 {
	switch state {
	case page.TurnLeaving:
		return min(o.order[0].Give, o.there)
	case page.TurnEntering:
		room := min(o.bytes, o.order[0].Room)
		return room - min(o.there, room)
	}
	return 0
}

// use works, or waits at the gate.
func (o *tenant) use(now uint64, closed bool) {
	wants := o.works(now)
	if o.closed && !closed {
		o.opened++
	}
	o.closed = closed
	switch {
	case wants && !closed:
		o.ran += step
		o.there = o.bytes
		o.displace()
		o.present(page.OffsetOfPresentThere, o.there)
		o.present(page.OffsetOfPresentCalled, now)
		o.wait(now, 0)
	case wants && o.since == 0:
		o.wait(now, now)
	case !wants:
		o.wait(now, 0)
	}
}

func (o *tenant) wait(now, since uint64) {
	if o.since != 0 {
		o.longest = max(o.longest, time.Duration(now-o.since))
	}
	if since != o.since {
		o.present(page.OffsetOfPresentWaits, since)
	}
	o.since = since
}

// set changes or reads a tenant between its steps.
func (o *tenant) set(do func()) {
	o.house.acting.Lock()
	defer o.house.acting.Unlock()
	do()
}

// waited is for how long it has waited at most, also now.
func (o *tenant) waited() (longest time.Duration) {
	o.set(func() {
		longest = o.longest
		if o.since != 0 {
			longest = max(longest, time.Duration(o.house.clock()-o.since))
		}
	})
	return longest
}

func (o *tenant) worked() (ran time.Duration) {
	o.set(func() { ran = o.ran })
	return ran
}

func (o *tenant) moved() (bytes uint64) {
	o.set(func() { bytes = o.in + o.out })
	return bytes
}

// said is the order that it knows.
func (o *tenant) said() (order uint64) {
	o.set(func() { order = o.order[0].Order })
	return order
}

// stateOf is where the loop has it.
func (h *house) stateOf(o *tenant) residency.State {
	h.loop.mu.Lock()
	defer h.loop.mu.Unlock()
	if s := h.loop.tenants[o.member.ID]; s != nil {
		return s.state
	}
	return residency.Away
}
