package page

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// NewBudget is a budget from which a tenant can start before an arbiter has
// decided anything: parts per million of the GPU's time, ns of burst and depth.
// A rate of 0 leaves the share without a limit until then.
func NewBudget(rate uint32, burst, depth uint64) Budget {
	b := Budget{Rate: rate, Base: rate, Stretch: Whole, Burst: burst, Depth: depth}
	if rate > 0 {
		b.Flags = BudgetLimited
	}
	if rate > 0 && rate < Whole {
		b.Flags |= BudgetCapped
	}
	return b
}

// Budgets are the budgets of a config page, kept mapped by the arbiter, which
// is the only one to write them. Methods are not safe for concurrent use.
type Budgets struct {
	memory  []byte
	devices int
}

// OpenBudgets maps the budgets of a config page that the caller alone writes.
func OpenBudgets(path string) (*Budgets, error) {
	file, err := open(path, os.O_RDWR, ConfigMagic, SizeOfConfig)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var count [4]byte
	if _, err := file.ReadAt(count[:], OffsetOfConfigDeviceCount); err != nil {
		return nil, fmt.Errorf("%s: %w: %w", path, ErrCorrupt, err)
	}
	devices := region(count[:]).u32(0)
	if devices < 1 || devices > Devices {
		return nil, fmt.Errorf("%s: %w: %d GPUs, not 1 to %d", path, ErrCorrupt, devices, Devices)
	}
	memory, err := unix.Mmap(int(file.Fd()), 0, SizeOfConfig, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map config page: %w", err)
	}
	return &Budgets{memory: memory, devices: int(devices)}, nil
}

// Devices is how many GPUs the page has.
func (b *Budgets) Devices() int { return b.devices }

// Close unmaps the page.
func (b *Budgets) Close() error {
	if err := unix.Munmap(b.memory); err != nil {
		return fmt.Errorf("unmap config page: %w", err)
	}
	return nil
}

// Read returns the budget of a device, 0 to Devices - 1, word by word.
func (b *Budgets) Read(device int) (budget Budget, err error) {
	err = guard("read the budget", func() {
		words := b.words(device)
		budget = Budget{
			Tick: words.Tick, Flags: words.Flags, Rate: words.Rate, Base: words.Base, Stretch: words.Stretch,
			Burst: words.Burst, Depth: words.Depth, Correction: words.Correction,
			Pulses: words.Pulses, PulseChanges: words.PulseChanges,
			Used: words.Used, Entitled: words.Entitled, Counted: words.Counted, Driven: words.Driven, Paid: words.Paid,
		}
	})
	return budget, err
}

// Closed reports whether a device's gate of turns is closed at a moment of CLOCK_MONOTONIC, ns: its share has no turn.
func (b *Budgets) Closed(device int, now uint64) (closed bool, err error) {
	err = guard("read whose turn it is", func() {
		words := (*Turn)(unsafe.Pointer(&b.memory[OffsetOfConfigDevice+device*SizeOfDevice+OffsetOfDeviceTurn]))
		state := atomic.LoadUint64(&words.Order) & (1<<TurnBits - 1)
		closed = state != TurnOpen && state != TurnResident && atomic.LoadUint64(&words.Valid) > now
	})
	return closed, err
}

// Write changes the budget of a device, 0 to Devices - 1. Each word is stored
// on its own and tick last, so that a tick is never newer than what it says.
func (b *Budgets) Write(device int, to Budget) error {
	return guard("change the budget", func() {
		words := b.words(device)
		put(&words.Base, to.Base)
		put(&words.Rate, to.Rate)
		put(&words.Stretch, to.Stretch)
		put(&words.Burst, to.Burst)
		put(&words.Depth, to.Depth)
		put(&words.Correction, to.Correction)
		put(&words.Pulses, to.Pulses)
		put(&words.PulseChanges, to.PulseChanges)
		put(&words.Used, to.Used)
		put(&words.Entitled, to.Entitled)
		put(&words.Driven, to.Driven)
		put(&words.Paid, to.Paid)
		put(&words.Counted, to.Counted)
		put(&words.Flags, to.Flags|words.Flags&BudgetTurns) // which is no decision of the arbiter's
		put(&words.Tick, to.Tick)
	})
}

func (b *Budgets) words(device int) *Budget {
	return (*Budget)(unsafe.Pointer(&b.memory[OffsetOfConfigDevice+device*SizeOfDevice+OffsetOfDeviceBudget]))
}

// guard runs access to a mapping of a file that a tenant may truncate: state pages are
// the tenant's, and under a user's own agent config pages are too. The fault is then an
// error.
func guard(what string, access func()) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		switch fault := recover().(type) {
		case nil:
		case runtime.Error: // where the file ends before the page does, the kernel refuses the access
			err = fmt.Errorf("%s: %w: it has been cut short", what, ErrCorrupt)
		default:
			err = fmt.Errorf("%s: %w: %v", what, ErrCorrupt, fault)
		}
	}()
	access()
	return nil
}

// put stores a word atomically, and only when it differs, so that the cache lines
// of an idle tenant stay with its processes.
func put[W uint32 | uint64 | int64](at *W, to W) {
	if *at == to {
		return
	}
	switch at := any(at).(type) {
	case *uint32:
		atomic.StoreUint32(at, uint32(to))
	case *uint64:
		atomic.StoreUint64(at, uint64(to))
	case *int64:
		atomic.StoreInt64(at, int64(to))
	}
}
