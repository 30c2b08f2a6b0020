package page

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func config() Config {
	c := Config{DeviceCount: 2, ID: Text64("t1"), Name: Text64("name")}
	c.Device[0] = Device{UUID: [16]byte{1}, Limit: 4 << 30, Weight: 1, PCIBusID: Text32("00000000:3B:00.0")}
	c.Device[1] = Device{UUID: [16]byte{2}, Limit: 1 << 30, Weight: 1}
	return c
}

func TestConfigChangesInPlace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config")
	if err := WriteConfig(path, config(), 0o644); err != nil {
		t.Fatal(err)
	}
	before, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := UpdateConfig(path, func(c *Config) { c.Device[1].Limit = 2 << 30; c.Device[0].Cores, c.Device[0].MaxCores = 30, 60 }); err != nil {
		t.Fatal(err)
	}
	after, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if !os.SameFile(before, after) {
		t.Error("the page was replaced: tenants keep the old one mapped")
	}
	got, err := ReadConfig(path)
	if err != nil {
		t.Fatal(err)
	}
	want := config()
	want.Header = got.Header
	want.Sequence = 2
	want.Device[1].Limit = 2 << 30
	want.Device[0].Cores, want.Device[0].MaxCores = 30, 60
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if after.Mode().Perm() != 0o644 || after.Size() != SizeOfConfig {
		t.Errorf("mode %v, size %d", after.Mode(), after.Size())
	}
}

// An agent that died in a change leaves the sequence odd; the next change ends
// with an even one.
func TestConfigChangeAfterADeath(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config")
	c := config()
	c.Sequence = 7
	if err := WriteConfig(path, c, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := UpdateConfig(path, func(c *Config) { c.Device[0].Limit = 1 }); err != nil {
		t.Fatal(err)
	}
	if got, err := ReadConfig(path); err != nil || got.Sequence != 8 || got.Device[0].Limit != 1 {
		t.Errorf("sequence %d, limit %d, %v", got.Sequence, got.Device[0].Limit, err)
	}
}

// A page cut short while it is mapped is an error, not the end of the program.
func TestFaultWhileStoring(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config")
	if err := WriteConfig(path, config(), 0o644); err != nil {
		t.Fatal(err)
	}
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	memory, err := unix.Mmap(int(file.Fd()), 0, SizeOfConfig, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(memory)
	if err := file.Truncate(0); err != nil {
		t.Fatal(err)
	}
	if err := store(memory, make([]byte, SizeOfConfig), make([]byte, SizeOfConfig)); !errors.Is(err, ErrCorrupt) {
		t.Errorf("%v, want ErrCorrupt", err)
	}
}

func TestFullFileSystem(t *testing.T) {
	real := allocate
	t.Cleanup(func() { allocate = real })
	allocate = func(*os.File, int64) error { return unix.ENOSPC }
	dir := t.TempDir()
	if err := WriteConfig(filepath.Join(dir, "config"), config(), 0o644); !errors.Is(err, ErrFull) {
		t.Errorf("config: %v, want ErrFull", err)
	}
	if err := CreateState(filepath.Join(dir, "state"), 1, -1); !errors.Is(err, ErrFull) {
		t.Errorf("state: %v, want ErrFull", err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// writeState makes a page with one process in slot 3 whose last complete
// operation, with id 5, left it 6 units of which 2 are overhead.
func writeState(t *testing.T, path string, edit func([]byte)) {
	t.Helper()
	if err := CreateState(path, 2, -1); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	order.PutUint32(data[OffsetOfStateSlotCount:], 4)
	slot := data[OffsetOfStateSlot+3*SizeOfSlot:]
	order.PutUint32(slot[OffsetOfSlotPID:], 77)
	order.PutUint32(slot[OffsetOfSlotHostPID:], 4077)
	order.PutUint64(slot[OffsetOfSlotGeneration:], 1)
	gpu := data[SizeOfState+SizeOfGPU:]
	order.PutUint64(gpu[OffsetOfGPUAmounts:], 1<<32|6)
	journal := gpu[OffsetOfGPUJournal+3*SizeOfJournal:]
	order.PutUint64(gpu[OffsetOfGPUApplied+3*8:], 5)
	order.PutUint32(journal[OffsetOfJournalIntent+SizeOfIntent+OffsetOfIntentCharged:], 6)
	order.PutUint32(journal[OffsetOfJournalIntent+SizeOfIntent+OffsetOfIntentOverhead:], 2)
	if edit != nil {
		edit(data)
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestReadState(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	writeState(t, path, nil)
	s, err := ReadState(path, 2)
	if err != nil {
		t.Fatal(err)
	}
	if want := (Usage{Used: 6 * Unit, Pending: Unit, Overhead: 2 * Unit}); s.Usage[1] != want || s.Usage[0] != (Usage{}) {
		t.Errorf("usage %+v", s.Usage)
	}
	if len(s.Processes) != 1 || s.Live() || !s.Dead() {
		t.Fatalf("processes %+v", s.Processes)
	}
	if p := s.Processes[0]; p.Slot != 3 || p.PID != 77 || p.HostPID != 4077 || p.Used[1] != 6*Unit {
		t.Errorf("process %+v", p)
	}
}

// Exported memory without a holder is what descriptors keep, as far as the page is
// believed: no more than is charged.
func TestMemoryByDescriptor(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	entry := func(data []byte, at int, state, device, units uint32) []byte {
		e := data[OffsetOfStateExport+at*SizeOfExport:]
		order.PutUint32(e[OffsetOfExportState:], state)
		order.PutUint32(e[OffsetOfExportDevice:], device)
		order.PutUint32(e[OffsetOfExportUnits:], units)
		return e
	}
	read := func(count uint32, units uint32) []Usage {
		t.Helper()
		writeState(t, path, func(data []byte) {
			clear(data[OffsetOfStateExport : OffsetOfStateExport+SizeOfExport])
			order.PutUint32(data[OffsetOfStateExportCount:], count)
			entry(data, 0, ExportLive, 1, units)
		})
		s, err := ReadState(path, 2)
		if err != nil {
			t.Fatal(err)
		}
		if s.ByDescriptor() != (s.Usage[1].ByDescriptor > 0) {
			t.Errorf("by descriptor: %t, %+v", s.ByDescriptor(), s.Usage)
		}
		return s.Usage
	}
	for _, c := range []struct {
		count, units uint32
		want         uint64
	}{{0, 3, 0}, {1, 3, 3}, {1, 0, 0}, {1, 1 << 31, 6}} {
		if usage := read(c.count, c.units); usage[1].ByDescriptor != c.want*Unit || usage[0].ByDescriptor != 0 {
			t.Errorf("%d entries of %d units: %+v, want %d", c.count, c.units, usage, c.want)
		}
	}
	if Exports == 1 {
		return
	}
	writeState(t, path, func(data []byte) {
		order.PutUint32(data[OffsetOfStateExportCount:], 2)
		held := entry(data, 0, ExportLive, 1, 3)
		held[OffsetOfExportHolders+8*HolderWords-1] = 0x80
		entry(data, 1, ExportFree, 1, 3)
	})
	if s, err := ReadState(path, 2); err != nil || s.ByDescriptor() {
		t.Errorf("%+v, %v", s, err)
	}
}

func TestLockKeepsASlotAlive(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	writeState(t, path, nil)
	holder, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	lock := unix.Flock_t{Type: unix.F_WRLCK, Start: LockBase + 3, Len: 1}
	if err := unix.FcntlFlock(holder.Fd(), unix.F_OFD_SETLK, &lock); err != nil {
		t.Fatal(err)
	}
	if s, err := ReadState(path, 2); err != nil || !s.Live() || s.Dead() {
		t.Errorf("%+v, %v: the holder of the lock is alive", s, err)
	}
	if live, err := AnyLive(path); err != nil || !live {
		t.Errorf("AnyLive = %v, %v", live, err)
	}
	if err := holder.Close(); err != nil {
		t.Fatal(err)
	}
	if s, err := ReadState(path, 2); err != nil || s.Live() {
		t.Errorf("%+v, %v: the lock is gone", s, err)
	}
	if live, err := AnyLive(path); err != nil || live {
		t.Errorf("AnyLive = %v, %v", live, err)
	}
}

func TestSoundStateStaysAsItIs(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	writeState(t, path, nil)
	if err := CreateState(path, 2, -1); err != nil {
		t.Fatal(err)
	}
	if s, err := ReadState(path, 2); err != nil || s.Usage[1].Used != 6*Unit {
		t.Errorf("%+v, %v: charges were lost", s, err)
	}
}

func TestDamagedPagesAreErrors(t *testing.T) {
	for name, c := range map[string]struct {
		edit func([]byte)
		want error
	}{
		"other text":  {func(d []byte) { d[0]++ }, ErrCorrupt},
		"version":     {func(d []byte) { d[OffsetOfHeaderVersion]++ }, ErrVersion},
		"size":        {func(d []byte) { d[OffsetOfHeaderSize]++ }, ErrCorrupt},
		"GPUs":        {func(d []byte) { d[OffsetOfStateDeviceCount] = 3 }, ErrCorrupt},
		"exports":     {func(d []byte) { order.PutUint32(d[OffsetOfStateExportCount:], Exports+1) }, ErrCorrupt},
		"slots":       {func(d []byte) { d[OffsetOfStateSlotCount+3] = 0xff }, ErrCorrupt},
		"all ones":    {func(d []byte) { fill(d, 0xff) }, ErrCorrupt},
		"all nothing": {func(d []byte) { fill(d, 0) }, ErrCorrupt},
	} {
		path := filepath.Join(t.TempDir(), "state")
		writeState(t, path, c.edit)
		if _, err := ReadState(path, 2); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
		if err := os.Truncate(path, 100); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadState(path, 2); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s, cut: %v, want ErrCorrupt", name, err)
		}
	}
	dir := t.TempDir()
	if _, err := ReadState(dir, 1); err == nil {
		t.Error("a folder was read")
	}
	fifo := filepath.Join(dir, "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadState(fifo, 1); err == nil {
		t.Error("a pipe was read")
	}
}

// A page of the previous layout is refused with what to do about it.
func TestPreviousVersionIsRefused(t *testing.T) {
	dir := t.TempDir()
	config, state := filepath.Join(dir, "config"), filepath.Join(dir, "state")
	if err := errors.Join(WriteConfig(config, Config{DeviceCount: 1}, 0o600), CreateState(state, 1, -1)); err != nil {
		t.Fatal(err)
	}
	for path, read := range map[string]func() error{
		config: func() error { _, err := ReadConfig(config); return err },
		state:  func() error { _, err := ReadState(state, 1); return err },
	} {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		order.PutUint32(data[OffsetOfHeaderVersion:], Version-1)
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := read(); !errors.Is(err, ErrVersion) || !strings.Contains(err.Error(), "end the tenant and start it again") {
			t.Errorf("%s: %v, want ErrVersion and what to do", path, err)
		}
	}
}

func fill(data []byte, value byte) {
	for i := range data {
		data[i] = value
	}
}

func FuzzReadState(f *testing.F) {
	f.Add([]byte{1, 0, 0, 0, 2, 0, 0, 0}, uint32(OffsetOfStateDeviceCount))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff}, uint32(OffsetOfStateSlot))
	f.Fuzz(func(t *testing.T, bytes []byte, at uint32) {
		path := filepath.Join(t.TempDir(), "state")
		writeState(t, path, func(d []byte) { copy(d[int(at)%len(d):], bytes) })
		s, err := ReadState(path, 2)
		if err == nil && (len(s.Usage) != 2 || len(s.Processes) > Slots) {
			t.Fatalf("%+v", s)
		}
	})
}

// A tenant owns its state page and may cut it short at any moment. The arbiter, which has
// it mapped, gets an error and goes on.
func TestTimesOfAPageThatIsCutShort(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	if err := CreateState(path, 1, -1); err != nil {
		t.Fatal(err)
	}
	r, err := OpenTimes(path, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := r.Read(0); err != nil {
		t.Fatal(err)
	}
	end, page := int64(SizeOfState+OffsetOfGPUWorker+Workers*SizeOfWorker), int64(os.Getpagesize())
	for _, size := range []int64{0, 100, SizeOfState + OffsetOfGPUWorker} {
		if (size+page-1)/page*page >= end {
			continue // what lies behind the cut in the same page of memory reads as zeros
		}
		if err := os.Truncate(path, size); err != nil {
			t.Fatal(err)
		}
		r.devices[0].reads = 0 // look at all workers
		if _, err := r.Read(0); !errors.Is(err, ErrCorrupt) {
			t.Errorf("cut to %d bytes: %v, want ErrCorrupt", size, err)
		}
		if err := os.Truncate(path, stateSize(1)); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Read(0); err != nil {
			t.Errorf("long again after %d bytes: %v", size, err)
		}
	}
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			for _, size := range []int64{0, stateSize(1)} {
				if err := os.Truncate(path, size); err != nil {
					t.Error(err)
				}
			}
			select {
			case <-stop:
				return
			default:
			}
		}
	}()
	cut := 0
	for range 20000 {
		r.devices[0].reads = 0
		if _, err := r.Read(0); errors.Is(err, ErrCorrupt) {
			cut++
		} else if err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	<-ended
	t.Logf("cut short in %d of 20000 readings", cut)
}
