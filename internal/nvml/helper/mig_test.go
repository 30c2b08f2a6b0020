package helper

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/divvy-gpu/divvy/internal/nvml"
)

// changeKey is the key of changes of a GPU: they can hang, and fail, apart from questions about it.
func changeKey(gpu int) int { return 100 + gpu }

// fakeMIG is what a machine has of MIG.
type fakeMIG struct {
	modes map[int]bool
	made  int
	// with is how many helpers lived when a mode was set last.
	with int
}

func (l *fakeLibrary) MIGMode(index int) (nvml.MIGMode, error) {
	err := l.call(index)
	l.machine.mu.Lock()
	defer l.machine.mu.Unlock()
	on := l.machine.mig.modes[index]
	return nvml.MIGMode{Current: on, Pending: on}, err
}

func (l *fakeLibrary) SetMIGMode(index int, on bool) error {
	err := (*fake)(l).call(changeKey(index))
	l.machine.mu.Lock()
	defer l.machine.mu.Unlock()
	l.machine.mig.with = l.machine.living
	if err == nil {
		l.machine.mig.modes[index] = on
	}
	return err
}

func (l *fakeLibrary) MIGProfiles(index int) ([]nvml.MIGProfile, error) {
	return []nvml.MIGProfile{{ID: 19, Name: "1g.10gb"}}, l.call(index)
}

func (l *fakeLibrary) MIGInstances(index int) ([]nvml.MIGInstance, error) {
	return []nvml.MIGInstance{{ID: 7, Compute: []nvml.MIGCompute{{UUID: fmt.Sprintf("MIG-%d", index)}}}}, l.call(index)
}

func (l *fakeLibrary) InstanceMemory(index int) ([]nvml.InstanceMemory, error) {
	l.machine.mu.Lock()
	defer l.machine.mu.Unlock()
	if !l.machine.mig.modes[index] {
		return nil, nil
	}
	return []nvml.InstanceMemory{{UUID: fmt.Sprintf("MIG-%d", index), Used: 3}}, nil
}

func (l *fakeLibrary) CreateMIGInstance(index, _ int, at nvml.MIGPlacement) (int, error) {
	err := (*fake)(l).call(changeKey(index))
	l.machine.mu.Lock()
	defer l.machine.mu.Unlock()
	l.machine.mig.made++
	return 7 + at.Start, err
}

func (l *fakeLibrary) DestroyMIGInstance(index, _ int) error {
	return (*fake)(l).call(changeKey(index))
}

func (l *fakeLibrary) CreateMIGCompute(index, instance int) (nvml.MIGCompute, error) {
	return nvml.MIGCompute{UUID: fmt.Sprintf("MIG-%d-%d", index, instance)}, (*fake)(l).call(changeKey(index))
}

func (l *fakeLibrary) DestroyMIGCompute(index, _, _ int) error {
	return (*fake)(l).call(changeKey(index))
}

func TestMIGAnswers(t *testing.T) {
	withDriver(t, 2, func(t *testing.T, m *double, d *Driver) {
		t.Helper()
		m.change(func() { m.mig.modes[1] = true })
		mode, err := d.MIGMode(1)
		if err != nil || mode != (nvml.MIGMode{Current: true, Pending: true}) {
			t.Errorf("mode %+v, %v", mode, err)
		}
		profiles, err := d.MIGProfiles(1)
		if err != nil || len(profiles) != 1 || profiles[0].Name != "1g.10gb" {
			t.Errorf("profiles %+v, %v", profiles, err)
		}
		instances, err := d.MIGInstances(1)
		if err != nil || len(instances) != 1 || instances[0].Compute[0].UUID != "MIG-1" {
			t.Errorf("instances %+v, %v", instances, err)
		}
		held := d.Holdings([]int{0, 1})
		if len(held[0].Instances) != 0 || len(held[1].Instances) != 1 || held[1].Instances[0].Used != 3 {
			t.Errorf("held %+v", held)
		}
		if id, err := d.CreateMIGInstance(1, 19, nvml.MIGPlacement{Start: 2, Size: 1}); err != nil || id != 9 {
			t.Errorf("made %d, %v", id, err)
		}
		if c, err := d.CreateMIGCompute(1, 9); err != nil || c.UUID != "MIG-1-9" {
			t.Errorf("made %+v, %v", c, err)
		}
		if err := errors.Join(d.DestroyMIGCompute(1, 9, 0), d.DestroyMIGInstance(1, 9)); err != nil {
			t.Error(err)
		}
	})
}

// What the driver refuses is told apart on the way from one process to another.
func TestMIGRefusals(t *testing.T) {
	withDriver(t, 1, func(t *testing.T, m *double, d *Driver) {
		t.Helper()
		for _, want := range []error{nvml.ErrInUse, nvml.ErrNoRoom, nvml.ErrNotFound, nvml.ErrDenied, nvml.ErrNoMIG, nvml.ErrReset} {
			m.change(func() { m.faults[changeKey(0)] = fmt.Errorf("refused: %w", want) })
			if err := d.DestroyMIGInstance(0, 1); !errors.Is(err, want) {
				t.Errorf("%v, want %v", err, want)
			}
		}
	})
}

// A change that takes long holds up nobody's figures, is told of in the log, and is answered in the end.
func TestChangeThatTakesLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newDouble(t, 2)
		log := new(journal)
		d, err := Open(Config{Start: m.start, Library: "lib", Limits: Usual, Log: slog.New(slog.NewTextHandler(log, nil))})
		if err != nil {
			t.Fatal(err)
		}
		defer m.close(d)
		m.hush(changeKey(0))
		begun, done := time.Now(), make(chan error)
		go func() {
			_, err := d.CreateMIGInstance(0, 19, nvml.MIGPlacement{})
			done <- err
		}()
		time.Sleep(Usual.Answer - time.Second)
		if strings.Contains(log.String(), "long") {
			t.Errorf("told too soon: %s", log)
		}
		time.Sleep(2 * time.Second)
		if !strings.Contains(log.String(), "takes long to change a GPU") {
			t.Errorf("not told: %s", log)
		}
		if got := m.answers(d); len(got) != 2 || time.Since(begun) > Usual.Answer+2*time.Second {
			t.Errorf("answers about %v after %s", got, time.Since(begun))
		}
		time.Sleep(20 * time.Second)
		m.speak(changeKey(0))
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// A process that is given up is not followed by another one before it has ended.
func TestChangeThatIsGivenUp(t *testing.T) {
	withDriver(t, 2, func(t *testing.T, m *double, d *Driver) {
		t.Helper()
		m.hush(changeKey(0))
		m.change(func() { m.asleep = true })
		begun := time.Now()
		if err := d.DestroyMIGInstance(0, 1); !errors.Is(err, nvml.ErrSilent) {
			t.Errorf("%v, want %v", err, nvml.ErrSilent)
		}
		if took := time.Since(begun); took < Usual.Change || took > Usual.Change+3*leaving {
			t.Errorf("given up after %s", took)
		}
		_, before, _ := m.counts()
		begun = time.Now()
		if err := d.DestroyMIGInstance(0, 1); !errors.Is(err, nvml.ErrSilent) || time.Since(begun) > time.Second {
			t.Errorf("while the process lives: %v after %s", err, time.Since(begun))
		}
		if _, after, worst := m.counts(); after != before || worst > 1 {
			t.Errorf("%d processes were started, %d hung at once", after-before, worst)
		}
		if err := d.DestroyMIGInstance(1, 1); err != nil {
			t.Errorf("another GPU: %v", err)
		}
		m.speak(changeKey(0))
		m.change(func() { m.asleep = false })
		synctest.Wait()
		if err := d.DestroyMIGInstance(0, 1); err != nil {
			t.Errorf("afterwards: %v", err)
		}
	})
}

// The process of changes is kept for the next one, and ends when none comes.
func TestChangesShareAProcess(t *testing.T) {
	withDriver(t, 1, func(t *testing.T, m *double, d *Driver) {
		t.Helper()
		living, started, _ := m.counts()
		for range 3 {
			if err := d.DestroyMIGInstance(0, 1); err != nil {
				t.Fatal(err)
			}
			time.Sleep(Usual.Keep / 2)
		}
		if _, now, _ := m.counts(); now != started+1 {
			t.Errorf("%d processes were started for three changes", now-started)
		}
		time.Sleep(2 * Usual.Keep)
		synctest.Wait()
		if now, _, _ := m.counts(); now != living {
			t.Errorf("%d processes are left that change nothing", now-living)
		}
	})
}

// While a mode changes the process that changes it is the only one that has the library open.
func TestAloneWithAGPU(t *testing.T) {
	withDriver(t, 3, func(t *testing.T, m *double, d *Driver) {
		t.Helper()
		m.answers(d)
		if err := d.DestroyMIGInstance(2, 1); err != nil { // a process that is kept
			t.Fatal(err)
		}
		waited := make(chan error, 1)
		err := d.Alone(0, func(l Lone) error {
			if living, _, _ := m.counts(); living != 0 {
				t.Errorf("%d processes are left", living)
			}
			if err := l.SetMIGMode(true); err != nil {
				return err
			}
			if got := m.answers(d); len(got) != 0 {
				t.Errorf("answers about %v meanwhile", got)
			}
			if c := d.Conditions([]int{1})[0]; !errors.Is(c.Err, nvml.ErrLetGo) || !errors.Is(c.Err, nvml.ErrSilent) {
				t.Errorf("meanwhile: %v", c.Err)
			}
			go func() { waited <- d.DestroyMIGInstance(1, 1) }()
			synctest.Wait()
			if living, _, _ := m.counts(); living > 1 {
				t.Errorf("%d processes live while another GPU is to be changed", living)
			}
			mode, err := l.MIGMode()
			if err != nil || !mode.Current {
				t.Errorf("the mode is %+v, %v", mode, err)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if m.mig.with != 1 {
			t.Errorf("%d processes had the library open when the mode changed", m.mig.with)
		}
		if got := m.answers(d); len(got) != 3 {
			t.Errorf("answers about %v afterwards", got)
		}
		if err := errors.Join(d.DestroyMIGInstance(2, 1), <-waited); err != nil {
			t.Error(err)
		}
	})
}

// What else has the library open lets go before and until the end, and if it does not, nobody has to.
func TestAloneLetsGo(t *testing.T) {
	withDriver(t, 2, func(t *testing.T, m *double, d *Driver) {
		t.Helper()
		held, busy := 0, error(nil)
		d.config.LetGo = func() (release func(), err error) {
			if got := m.answers(d); len(got) != 2 {
				t.Errorf("answers about %v while others are to let go", got)
			}
			held++
			return func() { held-- }, busy
		}
		err := d.Alone(0, func(l Lone) error {
			if held != 1 {
				t.Errorf("held %d times", held)
			}
			return l.SetMIGMode(true)
		})
		if err != nil || held != 0 {
			t.Errorf("%v, held %d times afterwards", err, held)
		}
		busy = errors.New("busy")
		err = d.Alone(0, func(Lone) error {
			t.Error("it was called")
			return nil
		})
		if !errors.Is(err, busy) {
			t.Errorf("%v, want %v", err, busy)
		}
	})
}

// Nobody can let go of a GPU that a helper holds which does not return.
func TestNotAloneWithASilentGPU(t *testing.T) {
	withDriver(t, 2, func(t *testing.T, m *double, d *Driver) {
		t.Helper()
		m.fallSilent(d, 1)
		err := d.Alone(0, func(Lone) error {
			t.Error("it was called")
			return nil
		})
		if !errors.Is(err, nvml.ErrSilent) {
			t.Errorf("%v, want %v", err, nvml.ErrSilent)
		}
		if got := m.answers(d); len(got) != 1 {
			t.Errorf("answers about %v afterwards", got)
		}
		m.speak(1)
	})
}
