package page

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// slotsOf makes the pages of a swap share of one GPU, in which so many processes tell of themselves.
func slotsOf(t *testing.T, slots int) (turns *Turns, config, state string) {
	t.Helper()
	dir := t.TempDir()
	config, state = filepath.Join(dir, "config"), filepath.Join(dir, "state")
	pages := Config{DeviceCount: 2, Flags: FlagSwap}
	pages.Device[1].Limit = 1 << 30
	if err := WriteConfig(config, pages, 0o600); err != nil {
		t.Fatal(err)
	}
	writeState(t, state, func(d []byte) {
		order.PutUint32(d[OffsetOfStateSlotCount:], uint32(slots))
		gpu := d[SizeOfState:]
		order.PutUint32(gpu[OffsetOfGPUAmounts:], 3)
		order.PutUint64(gpu[OffsetOfGPUResidence+OffsetOfResidenceMovedOut:], 9)
		for slot := range slots {
			order.PutUint64(d[OffsetOfStateSlot+slot*SizeOfSlot+OffsetOfSlotGeneration:], 1)
			order.PutUint64(gpu[OffsetOfGPUPresent+slot*SizeOfPresent+OffsetOfPresentThere:], uint64(slot+1))
		}
	})
	turns, err := OpenTurns(config, state, 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = turns.Close() })
	return turns, config, state
}

// live holds the locks of slots, as a living process does.
func live(t *testing.T, state string, from, count int) {
	t.Helper()
	file, err := os.OpenFile(state, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	lock := unix.Flock_t{Type: unix.F_WRLCK, Start: LockBase + int64(from), Len: int64(count)}
	if err := unix.FcntlFlock(file.Fd(), unix.F_OFD_SETLK, &lock); err != nil {
		t.Fatal(err)
	}
}

func there(living []Present) (told []uint64) {
	for _, p := range living {
		told = append(told, p.There)
	}
	return told
}

// Only what living processes tell counts, and the dead one's ledger is still the share's.
func TestPresence(t *testing.T) {
	turns, _, state := slotsOf(t, 3)
	live(t, state, 1, 1)
	told, err := turns.Read()
	if err != nil || told[0].Charged != 3*Unit || told[0].Residence.MovedOut != 9 {
		t.Fatalf("%+v, %v", told, err)
	}
	if got := there(told[0].Living); !slices.Equal(got, []uint64{2}) {
		t.Errorf("living processes tell %d", got)
	}
}

// A page that names very many processes costs no more than some questions at a time, and all have theirs.
func TestVeryManyProcesses(t *testing.T) {
	turns, _, state := slotsOf(t, Slots)
	live(t, state, 0, Slots)
	most := 0
	for range (Slots + mostAsked - 1) / mostAsked {
		before := most
		told, err := turns.Read()
		if err != nil {
			t.Fatal(err)
		}
		if most = len(told[0].Living); most-before > mostAsked {
			t.Fatalf("%d processes were asked about at once", most-before)
		}
	}
	if most != Slots {
		t.Errorf("%d of %d processes are known", most, Slots)
	}
}

// An order is what was written, and the budget beside it stays but for the one flag.
func TestOrders(t *testing.T) {
	turns, config, _ := slotsOf(t, 0)
	want := Turn{Order: 5<<TurnBits | TurnLeaving, Give: 7, Room: 8, Valid: 9}
	if err := turns.Write(0, want); err != nil {
		t.Fatal(err)
	}
	if got, err := turns.Order(0); err != nil || got != want {
		t.Errorf("%+v, %v", got, err)
	}
	if err := turns.Watch(true); err != nil {
		t.Fatal(err)
	}
	c, err := ReadConfig(config)
	if err != nil || c.Device[0].Turn != want || c.Device[0].Budget.Flags != BudgetTurns || c.Device[1] != (Device{Limit: 1 << 30}) {
		t.Errorf("%+v, %v", c.Device[:2], err)
	}
	if err := turns.Watch(false); err != nil {
		t.Fatal(err)
	}
	if c, err := ReadConfig(config); err != nil || c.Device[0].Budget.Flags != 0 {
		t.Errorf("flags %d, %v", c.Device[0].Budget.Flags, err)
	}
}

// Whatever the tenant does to its pages, reading them ends with an error.
func TestTurnsOfPagesThatAreCutShort(t *testing.T) {
	turns, config, state := slotsOf(t, 2)
	if err := errors.Join(os.Truncate(state, 0), os.Truncate(config, 0)); err != nil {
		t.Fatal(err)
	}
	if _, err := turns.Read(); !errors.Is(err, ErrCorrupt) {
		t.Errorf("reading: %v", err)
	}
	if err := turns.Write(0, Turn{Order: 1}); !errors.Is(err, ErrCorrupt) {
		t.Errorf("writing: %v", err)
	}
}

func TestTurnsOfOtherPages(t *testing.T) {
	_, config, state := slotsOf(t, 0)
	for _, gpus := range []int{0, 2} {
		if _, err := OpenTurns(config, state, gpus); !errors.Is(err, ErrCorrupt) {
			t.Errorf("as those of %d GPUs: %v", gpus, err)
		}
	}
}

// A ledger that was cleared hides nothing that the driver showed, but for what the kept part has room for.
func TestClearedLedger(t *testing.T) {
	for name, c := range map[string]struct{ swapped, kept, overhead, want uint64 }{
		"all is told":               {90, 10, 0, 90},
		"overhead in the kept part": {90, 4, 6, 90},
		"nothing is told":           {0, 0, 100, 90},
		"only the kept part is":     {0, 10, 90, 90},
		"too much is":               {300, 4_000_000, 0, 300 + 4_000_000 - 10},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			config, state := filepath.Join(dir, "config"), filepath.Join(dir, "state")
			pages := Config{DeviceCount: 2, Flags: FlagSwap}
			pages.Device[0].Overhead, pages.Device[1].Limit = c.overhead*Unit, 10*Unit
			if err := WriteConfig(config, pages, 0o600); err != nil {
				t.Fatal(err)
			}
			writeState(t, state, func(d []byte) {
				order.PutUint32(d[SizeOfState+OffsetOfGPUAmounts:], uint32(c.swapped))
				order.PutUint32(d[SizeOfState+SizeOfGPU+OffsetOfGPUAmounts:], uint32(c.kept))
			})
			turns, err := OpenTurns(config, state, 1)
			if err != nil {
				t.Fatal(err)
			}
			defer turns.Close()
			if told, err := turns.Read(); err != nil || told[0].Charged != c.want*Unit {
				t.Errorf("%d units can leave, want %d: %v", told[0].Charged/Unit, c.want, err)
			}
		})
	}
}
