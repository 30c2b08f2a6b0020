package daemon

import (
	"maps"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

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
		why := func(uuid string) string { return m.why(backend.GPU{UUID: uuid}) }
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
		}
		answered <- struct{}{}
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
