package page

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Presence is what the pages of a share tell of its memory on one GPU. All of it is the tenant's word, but for who
// lives.
type Presence struct {
	// Charged are the bytes that the ledger has, of a swap share that of the part that can leave the GPU; with what the
	// driver showed beyond the ledger, as the agent measured it, if that is more than the kept part has room for.
	Charged   uint64
	Residence Residence
	// Works is until when measured work is expected to go on, 0 without any.
	Works uint64
	// Living is what living processes tell of themselves, if they tell anything.
	Living []Present
}

// Turns has the pages of a swap share open, or of one that may be suspended, to read what its processes tell and to write
// what is decided about its memory. Methods are not safe for concurrent use.
type Turns struct {
	config, state []byte
	file          *os.File // the state page, whose locks tell who lives
	swap          bool
	told          []Presence
	lives         [Slots]bool
	next          int // the slot that is asked about next
}

// mostAsked is about how many slots the kernel is asked at each reading. Of a tenant with more processes, or one that
// pretends to have them, some are asked about each time.
const mostAsked = 64

// OpenTurns maps a config page that the caller alone writes, and the state page of a tenant with so many GPUs, of which a
// swap share has twice as many devices.
func OpenTurns(config, state string, gpus int) (*Turns, error) {
	c, err := mapPage(config, os.O_RDWR, ConfigMagic, SizeOfConfig)
	if err != nil {
		return nil, err
	}
	devices, swap := gpus, region(c).u32(OffsetOfConfigFlags)&FlagSwap != 0
	if swap {
		devices *= 2
	}
	if int(region(c).u32(OffsetOfConfigDeviceCount)) != devices {
		return nil, errors.Join(fmt.Errorf("%s: %w: it is not that of a share of %d GPUs", config, ErrCorrupt, gpus), unix.Munmap(c))
	}
	s, err := mapPage(state, os.O_RDONLY, StateMagic, stateSize(devices))
	if err != nil {
		return nil, errors.Join(err, unix.Munmap(c))
	}
	file, err := open(state, os.O_RDONLY, StateMagic, stateSize(devices))
	if err != nil {
		return nil, errors.Join(err, unix.Munmap(c), unix.Munmap(s))
	}
	return &Turns{config: c, state: s, file: file, swap: swap, told: make([]Presence, gpus)}, nil
}

// Close unmaps the pages.
func (t *Turns) Close() error {
	if err := errors.Join(unix.Munmap(t.config), unix.Munmap(t.state), t.file.Close()); err != nil {
		return fmt.Errorf("unmap pages: %w", err)
	}
	return nil
}

// Order reads what was ordered of a GPU, 0 to GPUs - 1.
func (t *Turns) Order(gpu int) (order Turn, err error) {
	err = guard("read the order", func() {
		words := t.words(gpu)
		order = Turn{Order: words.now64(OffsetOfTurnOrder), Give: words.u64(OffsetOfTurnGive), Room: words.u64(OffsetOfTurnRoom), Valid: words.u64(OffsetOfTurnValid)}
	})
	return order, err
}

// Write orders what is to be done on a GPU. The order itself is written last.
func (t *Turns) Write(gpu int, to Turn) error {
	return guard("write the order", func() {
		words := t.words(gpu)
		put(words.word(OffsetOfTurnValid), to.Valid)
		put(words.word(OffsetOfTurnGive), to.Give)
		put(words.word(OffsetOfTurnRoom), to.Room)
		put(words.word(OffsetOfTurnOrder), to.Order)
	})
}

// Watch has the processes tell of their calls, and wait at a closed gate; or no more.
func (t *Turns) Watch(on bool) error {
	return guard("have calls told", func() {
		for gpu := range t.told {
			flags := (*uint32)(unsafe.Pointer(&t.config[OffsetOfConfigDevice+gpu*SizeOfDevice+OffsetOfDeviceBudget+OffsetOfBudgetFlags]))
			if now := atomic.LoadUint32(flags); on && now&BudgetTurns == 0 {
				atomic.OrUint32(flags, BudgetTurns)
			} else if !on && now&BudgetTurns != 0 {
				atomic.AndUint32(flags, ^uint32(BudgetTurns))
			}
		}
	})
}

func (t *Turns) words(gpu int) region {
	return region(t.config[OffsetOfConfigDevice+gpu*SizeOfDevice+OffsetOfDeviceTurn:][:SizeOfTurn])
}

// Read tells of each GPU what the pages do. The answer is valid until the next call. Whatever the pages hold, and also if
// the tenant has cut them short, it returns soon.
func (t *Turns) Read() (told []Presence, err error) {
	fault := guard("read turns", func() { err = t.read() })
	return t.told, errors.Join(fault, err)
}

func (t *Turns) read() error {
	for g := range t.told {
		gpu := t.gpu(g)
		p := &t.told[g]
		p.Charged, p.Works, p.Living = t.charged(g), gpu.works(), p.Living[:0]
		r := gpu[OffsetOfGPUResidence:]
		p.Residence = Residence{
			MovedIn: r.u64(OffsetOfResidenceMovedIn), MovedOut: r.u64(OffsetOfResidenceMovedOut), Moving: r.u64(OffsetOfResidenceMoving),
			Held: r.u64(OffsetOfResidenceHeld),
		}
	}
	slots := int(min(region(t.state).now32(OffsetOfStateSlotCount), Slots))
	if err := t.ask(slots); err != nil {
		return err
	}
	for slot := range slots {
		if !t.lives[slot] {
			continue
		}
		for g := range t.told {
			t.told[g].Living = append(t.told[g].Living, t.gpu(g).present(slot))
		}
	}
	return nil
}

// charged is told by [Presence.Charged]. A tenant that clears its ledger so has no less.
func (t *Turns) charged(g int) uint64 {
	swapped := t.used(g)
	kept := g + len(t.told)
	if !t.swap {
		return swapped
	}
	all := swapped + t.used(kept) + t.device(g).u64(OffsetOfDeviceOverhead) + t.device(kept).u64(OffsetOfDeviceOverhead)
	return max(swapped, all-min(all, t.device(kept).u64(OffsetOfDeviceLimit)))
}

func (t *Turns) used(device int) uint64 {
	return uint64(t.gpu(device).now32(OffsetOfGPUAmounts)) * Unit
}

func (t *Turns) device(number int) region {
	return region(t.config[OffsetOfConfigDevice+number*SizeOfDevice:][:SizeOfDevice])
}

// ask asks the kernel which slots that tell something are those of living processes.
func (t *Turns) ask(slots int) error {
	clear(t.lives[slots:])
	asked := 0
	for i := range slots {
		slot := (t.next + i) % slots
		if !t.tells(slot) {
			t.lives[slot] = false
			continue
		}
		if asked == mostAsked {
			t.next = slot
			return nil
		}
		asked++
		live, err := locked(t.file, LockBase+int64(slot), 1)
		if err != nil {
			return err
		}
		words := region(t.state[OffsetOfStateSlot+slot*SizeOfSlot:][:SizeOfSlot])
		t.lives[slot] = live && words.u64(OffsetOfSlotReaping) != words.u64(OffsetOfSlotGeneration)
	}
	return nil
}

// tells reports whether a slot's process tells anything on any GPU.
func (t *Turns) tells(slot int) bool {
	for g := range t.told {
		if t.gpu(g).present(slot) != (Present{}) {
			return true
		}
	}
	return false
}

func (t *Turns) gpu(g int) region {
	return region(t.state[SizeOfState+g*SizeOfGPU:][:SizeOfGPU])
}

// word is where a word of a mapping stands.
func (r region) word(at int) *uint64 { return (*uint64)(unsafe.Pointer(&r[at])) }

// works is until when some worker says that its work goes on.
func (r region) works() (until uint64) {
	for number := range Workers {
		worker := r[OffsetOfGPUWorker+number*SizeOfWorker:]
		if worker.u32(OffsetOfWorkerOwner) != 0 && worker.u64(OffsetOfWorkerOpenSince) != 0 {
			until = max(until, worker.u64(OffsetOfWorkerOpenUntil))
		}
	}
	return until
}

func (r region) present(slot int) Present {
	p := r[OffsetOfGPUPresent+slot*SizeOfPresent:]
	return Present{
		Done: p.u64(OffsetOfPresentDone), There: p.u64(OffsetOfPresentThere), Waits: p.u64(OffsetOfPresentWaits), Called: p.u64(OffsetOfPresentCalled),
		Unsaved: p.u32(OffsetOfPresentUnsaved), TakesPart: p.u32(OffsetOfPresentTakesPart),
	}
}
