package page

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// Usage is what a tenant's page says of one GPU, in bytes. All of it was
// written by the tenant.
type Usage struct {
	Used, Pending, Overhead uint64
	// Kept is the part of Used that never leaves the GPU, where both parts of a swap share are added up.
	Kept uint64
	// ByDescriptor is the part of Used that no process of the tenant holds: exported
	// memory that file descriptors elsewhere keep, or kept until a moment ago.
	ByDescriptor uint64
	Refusals     Refusals
	// Peak is the most that was ever used at once.
	Peak uint64
	// Copied and Awaited are ns in which some thread was in a copy between host and GPU, and waited for the GPU.
	Copied, Awaited uint64
}

// Refusals are a tenant's refused allocations on one GPU: the tenant's word, too.
type Refusals struct {
	// ByLimit counts those that the share's limit refused, and ByGPU those that the driver
	// refused although they fit into the share.
	ByLimit, ByGPU uint32
	// Largest and Last are bytes that the largest and the last one could have taken.
	Largest, Last uint64
	// At is the CLOCK_MONOTONIC ns of the last one, and LastByGPU whether the driver refused it.
	At        uint64
	LastByGPU bool
}

// With adds the refusals of another ledger.
func (r Refusals) With(other Refusals) Refusals {
	sum := r
	if other.At > r.At {
		sum = other
	}
	sum.ByLimit, sum.ByGPU = r.ByLimit+other.ByLimit, r.ByGPU+other.ByGPU
	sum.Largest = max(r.Largest, other.Largest)
	return sum
}

// Process is a slot of a state page that is in use.
type Process struct {
	Slot int
	// PID is in the pid namespace with inode Namespace; HostPID is in the
	// agent's, 0 if unknown.
	PID, HostPID int
	Namespace    uint64
	// Live is false for a process that died and was not reaped yet.
	Live bool
	// Used is charged to it on each GPU, in bytes.
	Used []uint64
}

// Snapshot is what was read from a state page. Its figures are not of one moment,
// and a tenant can write any figures it likes.
type Snapshot struct {
	Usage     []Usage
	Processes []Process
}

// Dead reports whether some process died without being reaped.
func (s *Snapshot) Dead() bool {
	for _, p := range s.Processes {
		if !p.Live {
			return true
		}
	}
	return false
}

// Live reports whether some process is alive.
func (s *Snapshot) Live() bool {
	for _, p := range s.Processes {
		if p.Live {
			return true
		}
	}
	return false
}

// ByDescriptor reports whether some memory is charged that no process of the tenant holds.
func (s *Snapshot) ByDescriptor() bool {
	return slices.ContainsFunc(s.Usage, func(u Usage) bool { return u.ByDescriptor > 0 })
}

func stateSize(devices int) int64 {
	return SizeOfState + int64(devices)*SizeOfGPU
}

// CreateState makes the state page of a tenant with that many GPUs, owned by
// uid if that is not negative. One that exists and is sound stays.
func CreateState(path string, devices, uid int) error {
	return createState(path, devices, uid, 0o600)
}

// CreateOpenState makes a state page that every user may write, because the
// processes of a container may be of any user. The directories above it must
// keep other users out.
func CreateOpenState(path string, devices int) error {
	return createState(path, devices, -1, 0o666)
}

func createState(path string, devices, uid int, mode os.FileMode) error {
	if file, err := open(path, os.O_RDONLY, StateMagic, stateSize(devices)); err == nil {
		return file.Close()
	}
	size := stateSize(devices)
	return create(path, size, mode, uid, func(file *os.File) error {
		// All else of a new file is zero, as it has to be.
		head := encode(&Header{Magic: StateMagic, Version: Version, Size: uint32(size)})
		count := order.AppendUint32(nil, uint32(devices))
		_, err := file.WriteAt(head, 0)
		if _, countErr := file.WriteAt(count, OffsetOfStateDeviceCount); err == nil {
			err = countErr
		}
		if err != nil {
			return fmt.Errorf("write state page: %w", err)
		}
		return nil
	})
}

// ReadState reads the state page of a tenant with that many GPUs. Whatever the
// page holds, it returns soon, with a snapshot or an error, and reads nothing
// beyond the page.
func ReadState(path string, devices int) (*Snapshot, error) {
	file, err := open(path, os.O_RDONLY, StateMagic, stateSize(devices))
	if err != nil {
		return nil, err
	}
	defer file.Close()
	s, err := read(file, devices)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return s, nil
}

// read decodes only the slots in use, by the offsets of the layout: the whole page
// has tens of thousands of fields, and most tenants use few.
func read(file *os.File, devices int) (*Snapshot, error) {
	head, err := readRegion(file, 0, OffsetOfStateSlot)
	if err != nil {
		return nil, err
	}
	count, slots := head.u32(OffsetOfStateDeviceCount), int(head.u32(OffsetOfStateSlotCount))
	if int(count) != devices || slots > Slots {
		return nil, fmt.Errorf("%w: %d GPUs and %d slots, not %d GPUs and at most %d slots", ErrCorrupt, count, slots, devices, Slots)
	}
	table, err := readRegion(file, OffsetOfStateSlot, slots*SizeOfSlot)
	if err != nil {
		return nil, err
	}
	s := &Snapshot{Usage: make([]Usage, devices)}
	for i := range slots {
		slot := table[i*SizeOfSlot:]
		if slot.u32(OffsetOfSlotPID) == 0 {
			continue
		}
		live, err := locked(file, LockBase+int64(i), 1)
		if err != nil {
			return nil, err
		}
		s.Processes = append(s.Processes, Process{
			Slot:      i,
			PID:       int(int32(slot.u32(OffsetOfSlotPID))),
			HostPID:   int(int32(slot.u32(OffsetOfSlotHostPID))),
			Namespace: slot.u64(OffsetOfSlotPIDNamespace),
			Live:      live && slot.u64(OffsetOfSlotReaping) != slot.u64(OffsetOfSlotGeneration),
			Used:      make([]uint64, devices),
		})
	}
	exports, err := readExports(file, head)
	if err != nil {
		return nil, err
	}
	for device := range devices {
		base := SizeOfState + device*SizeOfGPU
		ledger, err := readRegion(file, base, OffsetOfGPUApplied+8*slots)
		if err != nil {
			return nil, err
		}
		var journals region
		if len(s.Processes) > 0 {
			if journals, err = readRegion(file, base+OffsetOfGPUJournal, slots*SizeOfJournal); err != nil {
				return nil, err
			}
		}
		s.add(device, ledger, journals)
		s.Usage[device].ByDescriptor = min(byDescriptor(exports, device), s.Usage[device].Used)
	}
	return s, nil
}

// readExports reads the entries of the export table that were ever used.
func readExports(file *os.File, head region) (region, error) {
	count := int(head.u32(OffsetOfStateExportCount))
	if count > Exports {
		return nil, fmt.Errorf("%w: %d exports, at most %d", ErrCorrupt, count, Exports)
	}
	if count == 0 {
		return nil, nil
	}
	return readRegion(file, OffsetOfStateExport, count*SizeOfExport)
}

// byDescriptor adds up the bytes of one GPU of which no process is a holder.
func byDescriptor(exports region, device int) (bytes uint64) {
	for ; len(exports) > 0; exports = exports[SizeOfExport:] {
		holders := exports[OffsetOfExportHolders : OffsetOfExportHolders+8*HolderWords]
		if exports.u32(OffsetOfExportState) == ExportLive && int(exports.u32(OffsetOfExportDevice)) == device &&
			!slices.ContainsFunc(holders, func(b byte) bool { return b != 0 }) {
			bytes += uint64(exports.u32(OffsetOfExportUnits)) * Unit
		}
	}
	return bytes
}

// readRegion reads size bytes at an offset of a page.
func readRegion(file *os.File, offset, size int) (region, error) {
	data := make(region, size)
	if n, err := file.ReadAt(data, int64(offset)); err != nil {
		return nil, fmt.Errorf("%w: %d of %d bytes at %d can be read: %w", ErrCorrupt, n, size, offset, err)
	}
	return data, nil
}

// add adds one GPU's ledger and what each process holds of it.
func (s *Snapshot) add(device int, ledger, journals region) {
	u := &s.Usage[device]
	u.Used = uint64(ledger.u32(OffsetOfGPUAmounts)) * Unit
	u.Pending = uint64(ledger.u32(OffsetOfGPUAmounts+4)) * Unit
	u.Peak = uint64(ledger.u32(OffsetOfGPUPeak)) * Unit
	u.Copied, u.Awaited = ledger.u64(OffsetOfGPUCopied), ledger.u64(OffsetOfGPUAwaited)
	u.Refusals = Refusals{
		ByLimit: ledger.u32(OffsetOfGPURefused), ByGPU: ledger.u32(OffsetOfGPURefusedByGPU),
		Largest: ledger.u64(OffsetOfGPURefusedLargest), Last: ledger.u64(OffsetOfGPURefusedLast),
		At: ledger.u64(OffsetOfGPURefusedAt), LastByGPU: ledger.u32(OffsetOfGPURefuser) == RefuserGPU,
	}
	for i := range s.Processes {
		p := &s.Processes[i]
		journal := journals[p.Slot*SizeOfJournal:]
		last := ledger.u64(OffsetOfGPUApplied + 8*p.Slot)
		if tag := ledger.u64(OffsetOfGPUTag); tag&(1<<SlotBits-1) == uint64(p.Slot) {
			last = tag >> SlotBits
		}
		intent := journal[OffsetOfJournalIntent+int(last&3)*SizeOfIntent:]
		p.Used[device] = uint64(intent.u32(OffsetOfIntentCharged)) * Unit
		u.Overhead += uint64(intent.u32(OffsetOfIntentOverhead)) * Unit
	}
}

// region is a part of a page, at least as long as the struct that it begins with.
type region []byte

func (r region) u32(at int) uint32 { return order.Uint32(r[at:]) }
func (r region) u64(at int) uint64 { return order.Uint64(r[at:]) }

// AnyLive reports whether a living process holds a slot. It asks the kernel for the
// locks, so the page's content does not matter.
func AnyLive(path string) (bool, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return false, fmt.Errorf("open page: %w", err)
	}
	defer file.Close()
	return AnyLiveIn(file)
}

// AnyLiveIn is [AnyLive] of an open page.
func AnyLiveIn(file *os.File) (bool, error) {
	return locked(file, LockBase, Slots)
}

// locked reports whether another open file description holds a lock on a range
// of bytes (F_OFD_GETLK, fcntl(2)): a living process holds its slot's.
func locked(file *os.File, offset, length int64) (bool, error) {
	lock := unix.Flock_t{Type: unix.F_WRLCK, Whence: 0, Start: offset, Len: length}
	for {
		err := unix.FcntlFlock(file.Fd(), unix.F_OFD_GETLK, &lock)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return false, fmt.Errorf("ask for the lock of a slot: %w", err)
		}
		return lock.Type != unix.F_UNLCK, nil
	}
}
