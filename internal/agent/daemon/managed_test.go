package daemon

import (
	"errors"
	"maps"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/divvy-gpu/divvy/internal/backend"
)

// The driver is asked anew about a GPU that was in MIG mode when it was asked, once, and about no other.
func TestManagedMemoryAfterMIG(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := map[string]bool{"GPU-a": true, "GPU-b": true}
		var asked atomic.Int32
		answered := make(chan struct{}, 1)
		m := &managed{
			ask: func() (faulting []string, err error) {
				asked.Add(1)
				<-answered
				for _, uuid := range []string{"GPU-a", "GPU-b", "GPU-c"} { // CUDA brings no memory to d
					if !in[uuid] {
						faulting = append(faulting, uuid)
					}
				}
				return faulting, nil
			},
			inMIGMode:  func() map[string]bool { return maps.Clone(in) },
			capability: func(backend.GPU) string { return "9.0" },
		}
		var learned <-chan struct{}
		why := func(uuid string) (text string) {
			text, learned = m.why(backend.GPU{UUID: uuid})
			return text
		}
		answered <- struct{}{}
		m.look()
		for range 3 {
			if why("GPU-c") != "" || !strings.Contains(why("GPU-d"), "no concurrent access") {
				t.Errorf("c: %q, d: %q", why("GPU-c"), why("GPU-d"))
			}
		}
		synctest.Wait()
		if asked.Load() != 1 {
			t.Errorf("CUDA was asked %d times", asked.Load())
		}
		delete(in, "GPU-a")
		for range 3 {
			if text := why("GPU-a"); !strings.Contains(text, "it has left MIG mode") {
				t.Errorf("while CUDA is asked: %q", text)
			}
			select {
			case <-learned:
				t.Error("an answer is told that has not come")
			default:
			}
		}
		answered <- struct{}{}
		<-learned
		synctest.Wait()
		if text := why("GPU-a"); text != "" || asked.Load() != 2 {
			t.Errorf("after MIG mode: %q, asked %d times", text, asked.Load())
		}
		// While CUDA is asked about the second, the first is in MIG mode again: nothing is known of it.
		delete(in, "GPU-b")
		if text := why("GPU-b"); !strings.Contains(text, "it has left MIG mode") {
			t.Errorf("b while CUDA is asked: %q", text)
		}
		synctest.Wait()
		in["GPU-a"] = true
		answered <- struct{}{}
		synctest.Wait()
		delete(in, "GPU-a")
		if why("GPU-b") != "" || !strings.Contains(why("GPU-a"), "it has left MIG mode") {
			t.Errorf("a: %q, b: %q", why("GPU-a"), why("GPU-b"))
		}
		answered <- struct{}{}
		synctest.Wait()
		if text := why("GPU-a"); text != "" {
			t.Errorf("after MIG mode for the second time: %q", text)
		}
	})
}

// A driver that does not answer takes swap from no GPU of which it has told, and is asked again.
func TestManagedMemoryUnanswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := map[string]bool{}
		var fault error
		asked := 0
		m := &managed{
			ask: func() ([]string, error) {
				asked++
				if fault != nil {
					return nil, fault
				}
				return []string{"GPU-a", "GPU-b"}, nil
			},
			inMIGMode:  func() map[string]bool { return maps.Clone(in) },
			capability: func(backend.GPU) string { return "9.0" },
		}
		says := func(when, uuid, want string, times int) {
			t.Helper()
			text, _ := m.why(backend.GPU{UUID: uuid})
			synctest.Wait()
			if !strings.Contains(text, want) || (text == "") != (want == "") || asked != times {
				t.Errorf("%s: %s is %q, want %q; asked %d times, want %d", when, uuid, text, want, asked, times)
			}
		}
		const silent, left = "does not tell whether it brings memory that a program touches: boom", "it has left MIG mode"
		fault = errors.New("boom")
		m.look()
		says("after a first look in vain", "GPU-a", silent, 1)
		time.Sleep(askAgain)
		says("after a pause", "GPU-a", silent, 2)
		says("after the second in vain", "GPU-a", silent, 2)
		time.Sleep(askAgain)
		fault, in["GPU-b"] = nil, true
		says("when it answers", "GPU-a", silent, 3)
		says("after an answer", "GPU-a", "", 3)
		fault = errors.New("boom")
		delete(in, "GPU-b")
		says("after MIG mode", "GPU-b", left, 4)
		says("after a look in vain", "GPU-b", silent, 4)
		says("told before", "GPU-a", "", 4)
		says("told before", "GPU-c", "no concurrent access", 4)
		time.Sleep(askAgain)
		fault = nil
		says("after a pause", "GPU-b", silent, 5)
		says("after an answer", "GPU-b", "", 5)
	})
}
