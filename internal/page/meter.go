package page

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Balance is what the ledger of one GPU says at one moment, in bytes: the tenant's word.
type Balance struct {
	Used, Pending uint64
	// Operation is another number after every change.
	Operation uint64
}

// Meter has the pages of a tenant mapped, to read its ledgers and to write what was
// measured beside them. Methods are not safe for concurrent use.
type Meter struct {
	config, state []byte
	gpus          int
	// kept is how far behind the ledger of a GPU that of its kept part is; 0 for a tenant without swap.
	kept int
}

// OpenMeter maps a config page that the caller alone writes, and a state page with that
// many devices.
func OpenMeter(config, state string, devices int) (*Meter, error) {
	c, err := mapPage(config, os.O_RDWR, ConfigMagic, SizeOfConfig)
	if err != nil {
		return nil, err
	}
	s, err := mapPage(state, os.O_RDONLY, StateMagic, stateSize(devices))
	if err != nil {
		return nil, errors.Join(err, unix.Munmap(c))
	}
	m := &Meter{config: c, state: s, gpus: devices}
	if region(c).u32(OffsetOfConfigFlags)&FlagSwap != 0 {
		m.gpus, m.kept = devices/2, devices/2
	}
	return m, nil
}

func mapPage(path string, flags int, magic uint64, size int64) ([]byte, error) {
	file, err := open(path, flags, magic, size)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	protection := unix.PROT_READ
	if flags == os.O_RDWR {
		protection |= unix.PROT_WRITE
	}
	memory, err := unix.Mmap(int(file.Fd()), 0, int(size), protection, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map %s: %w", path, err)
	}
	return memory, nil
}

// Devices is how many GPUs the pages are about.
func (m *Meter) Devices() int { return m.gpus }

// Close unmaps the pages.
func (m *Meter) Close() error {
	if err := errors.Join(unix.Munmap(m.config), unix.Munmap(m.state)); err != nil {
		return fmt.Errorf("unmap pages: %w", err)
	}
	return nil
}

// balanceTries is how often a ledger that changes meanwhile is read.
const balanceTries = 16

// Balance reads the ledger of a device, 0 to Devices - 1, for a swap share those of both its parts. One that changes all
// the time gives a balance that no two calls agree on.
func (m *Meter) Balance(device int) (b Balance, err error) {
	b, err = m.balance(device)
	if err != nil || m.kept == 0 {
		return b, err
	}
	kept, err := m.balance(device + m.kept)
	return Balance{Used: b.Used + kept.Used, Pending: b.Pending + kept.Pending, Operation: b.Operation*both + kept.Operation}, err
}

// both makes one number of two that count operations: it changes with each of them.
const both = 0x9e3779b97f4a7c15

func (m *Meter) balance(device int) (b Balance, err error) {
	from := SizeOfState + device*SizeOfGPU
	ledger := region(m.state[from : from+SizeOfGPU])
	err = guard("read the ledger", func() {
		for range balanceTries {
			tag := ledger.now64(OffsetOfGPUTag)
			amounts := ledger.now64(OffsetOfGPUAmounts)
			b = Balance{Used: amounts & (1<<32 - 1) * Unit, Pending: amounts >> 32 * Unit, Operation: tag}
			if ledger.now64(OffsetOfGPUTag) == tag {
				return
			}
		}
		b.Operation = ^b.Operation
	})
	return b, err
}

// Overhead is what was measured last of a device, in bytes.
func (m *Meter) Overhead(device int) (bytes uint64, err error) {
	err = guard("read the overhead", func() { bytes = atomic.LoadUint64(&m.words(device).Overhead) })
	return bytes, err
}

// SetOverhead tells the processes of the tenant what was measured, and when the reading
// began, by CLOCK_MONOTONIC in ns. The moment is written last: it is never newer than
// the figure.
func (m *Meter) SetOverhead(device int, bytes, began uint64) error {
	return guard("tell the overhead", func() {
		words := m.words(device)
		put(&words.Overhead, bytes)
		put(&words.Measured, began)
	})
}

// words are where what was measured of a device stands. Overhead is never moved.
func (m *Meter) words(device int) *Device {
	return (*Device)(unsafe.Pointer(&m.config[OffsetOfConfigDevice+(device+m.kept)*SizeOfDevice]))
}

// now64 is now32 of a longer word.
func (r region) now64(at int) uint64 {
	return atomic.LoadUint64((*uint64)(unsafe.Pointer(&r[at])))
}
