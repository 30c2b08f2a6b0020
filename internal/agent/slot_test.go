package agent

import (
	"encoding/binary"
	"os"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/page"
	"github.com/divvy-gpu/divvy/internal/tenantdir"
)

func writeSlot(file *os.File, at int, pid uint32, units uint32) {
	word := func(offset int64, value uint32) {
		var data [4]byte
		binary.LittleEndian.PutUint32(data[:], value)
		if _, err := file.WriteAt(data[:], offset); err != nil {
			panic(err)
		}
	}
	word(page.OffsetOfStateSlotCount, 8)
	slot := int64(page.OffsetOfStateSlot + at*page.SizeOfSlot)
	word(slot+page.OffsetOfSlotPID, pid)
	word(slot+page.OffsetOfSlotPIDNamespace, 1)
	word(slot+page.OffsetOfSlotGeneration, 1)
	word(page.SizeOfState+page.OffsetOfGPUAmounts, units)
	journal := int64(page.SizeOfState + page.OffsetOfGPUJournal + at*page.SizeOfJournal)
	word(journal+page.OffsetOfJournalIntent+page.OffsetOfIntentCharged, units)
}

// enter makes a process of a tenant use some memory of its first GPU.
func (n *node) enter(dir string, at, pid int, bytes uint64) *slot {
	n.t.Helper()
	file, err := os.OpenFile(tenantdir.Dir(dir).State(), os.O_RDWR, 0)
	if err != nil {
		n.t.Fatal(err)
	}
	lock := unix.Flock_t{Type: unix.F_WRLCK, Start: page.LockBase + int64(at), Len: 1}
	if err := unix.FcntlFlock(file.Fd(), unix.F_OFD_SETLK, &lock); err != nil {
		n.t.Fatal(err)
	}
	writeSlot(file, at, uint32(pid), uint32(bytes/page.Unit))
	s := &slot{file: file, at: at}
	n.t.Cleanup(s.die)
	return s
}

// has tells on the share's first GPU what of the process no checkpoint can save.
func (s *slot) has(unsaved uint32) {
	at := int64(page.SizeOfState + page.OffsetOfGPUPresent + s.at*page.SizeOfPresent + page.OffsetOfPresentUnsaved)
	if _, err := s.file.WriteAt(binary.LittleEndian.AppendUint32(nil, unsaved), at); err != nil {
		panic(err)
	}
}

// export makes all that the process holds exported memory, of which a descriptor is
// open elsewhere.
func (s *slot) export(bytes uint64) {
	writeExport(s.file, uint32(bytes/page.Unit))
	writeSlot(s.file, s.at, 0, uint32(bytes/page.Unit))
}

func writeExport(file *os.File, units uint32) {
	data := binary.LittleEndian.AppendUint32(nil, page.ExportLive)
	data = binary.LittleEndian.AppendUint32(data, 0) // device
	data = binary.LittleEndian.AppendUint32(data, units)
	if _, err := file.WriteAt(data, page.OffsetOfStateExport); err != nil {
		panic(err)
	}
	if _, err := file.WriteAt([]byte{1, 0, 0, 0}, page.OffsetOfStateExportCount); err != nil {
		panic(err)
	}
}

// tell makes the ledger say something else, by another operation. A dead process says nothing.
func (s *slot) tell(used, pending, operation uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dead {
		return
	}
	data := binary.LittleEndian.AppendUint32(nil, uint32(used/page.Unit))
	data = binary.LittleEndian.AppendUint32(data, uint32(pending/page.Unit))
	data = binary.LittleEndian.AppendUint64(data, operation<<page.SlotBits|uint64(s.at))
	if _, err := s.file.WriteAt(data, page.SizeOfState+page.OffsetOfGPUAmounts); err != nil {
		panic(err)
	}
}

// die is what the kernel does when the process ends.
func (s *slot) die() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dead = true
	s.file.Close()
}

// leave is what a process does that ends in order.
func (s *slot) leave() {
	writeSlot(s.file, s.at, 0, 0)
	s.die()
}
