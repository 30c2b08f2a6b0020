package helper

import (
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/divvy-gpu/divvy/internal/nvml"
)

// A GPU that answers later than the others wait is no silent one: it is answered about again as soon as it answers, by
// one helper, which asks about no other GPU meanwhile.
func TestSlowGPU(t *testing.T) {
	withDriver(t, 3, func(t *testing.T, m *double, d *Driver) {
		m.hush(1)
		m.answers(d)
		waiting := m.first()
		m.speak(1)
		synctest.Wait()
		if got := m.answers(d); !slices.Equal(got, []int{0, 1, 2}) || len(m.silence(d)) != 0 {
			t.Errorf("answered about %v", got)
		}
		waiting.mu.Lock()
		defer waiting.mu.Unlock()
		// Identify each; then the memory of 0 and, as its own, of 1; then the condition.
		if want := []int{0, 1, 2, 0, 0, 1, 1, 1, 1}; !slices.Equal(waiting.asked, want) {
			t.Errorf("the first helper was asked about %v, want %v", waiting.asked, want)
		}
		if _, started, _ := m.counts(); started != 2 {
			t.Errorf("%d helpers were started", started)
		}
	})
}

// A helper that answers nothing at all, not even that its question is given up, is ended, and nobody is blamed.
func TestHelperThatAnswersNothing(t *testing.T) {
	withDriver(t, 2, func(t *testing.T, m *double, d *Driver) {
		m.first().deaf.Store(true)
		if got := m.answers(d); len(got) != 0 {
			t.Errorf("answered about %v", got)
		}
		time.Sleep(2 * Usual.Pause)
		if got := m.answers(d); len(got) != 2 || len(m.silence(d)) != 0 {
			t.Errorf("then answered about %v", got)
		}
	})
}

// journal is a log that several goroutines write and read.
type journal struct {
	mu   sync.Mutex
	text strings.Builder
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(p)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String()
}

// Whoever waits for a driver that does not let its library be opened reads so long before the wait is over.
func TestSlowOpenIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newDouble(t, 1)
		m.hush(initKey)
		var log journal
		opened := make(chan error)
		go func() {
			_, err := Open(Config{Start: m.start, Library: "lib", Limits: Usual, Log: slog.New(slog.NewTextHandler(&log, nil))})
			opened <- err
		}()
		time.Sleep(Usual.Answer - 1)
		synctest.Wait()
		if got := log.String(); got != "" {
			t.Errorf("said too early: %s", got)
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if got := log.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "has not let its library be opened yet") {
			t.Errorf("said %q", got)
		}
		if err := <-opened; !errors.Is(err, nvml.ErrSilent) {
			t.Errorf("opened: %v", err)
		}
	})
}

// A GPU that was reset while it was silent is found anew without anybody opening the library again: whoever was in a
// call has lost it, and is replaced.
func TestResetUnderSilence(t *testing.T) {
	withDriver(t, 2, func(t *testing.T, m *double, d *Driver) {
		m.fallSilent(d, 1)
		m.change(func() { m.reset[1] = 1 }) // the first helper has lost it
		m.speak(1)
		time.Sleep(2 * Usual.Pause)
		if got := m.answers(d); !slices.Equal(got, []int{0, 1}) || len(m.silence(d)) != 0 {
			t.Errorf("answered about %v", got)
		}
	})
}
