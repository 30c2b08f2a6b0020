package socket

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// scene is a socket that a test makes anew, and a service of it that fails.
type scene struct {
	follower
	changes chan struct{}
	inode   atomic.Uint64
	calls   []time.Duration // when serve was called, since the test began
	heard   []string
}

// play follows the scene for a time on a clock of its own. Serve is called with the
// number of the call, from 0 on.
func play(t *testing.T, until time.Duration, serve func(s *scene, call int) error, meanwhile func(s *scene)) *scene {
	t.Helper()
	s := &scene{}
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		s.changes = make(chan struct{}, 1)
		s.follower = follower{
			changed:  s.changes,
			identify: func() ID { return ID{inode: s.inode.Load()} },
			serve: func(context.Context) error {
				s.calls = append(s.calls, time.Since(began))
				return serve(s, len(s.calls)-1)
			},
			told: func(err error) { s.heard = append(s.heard, err.Error()) },
		}
		ctx, cancel := context.WithTimeout(t.Context(), until)
		defer cancel()
		if meanwhile != nil {
			go meanwhile(s)
		}
		s.run(ctx)
	})
	return s
}

// change is what a directory's watch tells of.
func (s *scene) change() {
	select {
	case s.changes <- struct{}{}:
	default:
	}
}

func wait(d time.Duration) { <-time.After(d) }

var errAway = errors.New("nobody listens")

func at(seconds ...float64) []time.Duration {
	var all []time.Duration
	for _, s := range seconds {
		all = append(all, time.Duration(s*float64(time.Second)))
	}
	return all
}

func TestPausesGrow(t *testing.T) {
	s := play(t, 130*time.Second, func(*scene, int) error { return errAway }, nil)
	if want := at(0, .5, 1.5, 3.5, 7.5, 15.5, 31.5, 61.5, 91.5, 121.5); !slices.Equal(s.calls, want) {
		t.Errorf("called at %v, want %v", s.calls, want)
	}
	if want := []string{errAway.Error()}; !slices.Equal(s.heard, want) {
		t.Errorf("told %q", s.heard)
	}
}

// A socket that is made anew is served at once, and then the pauses begin again.
func TestNewSocketIsServedAtOnce(t *testing.T) {
	s := play(t, 23*time.Second, func(*scene, int) error { return errAway }, func(s *scene) {
		wait(20 * time.Second)
		s.inode.Add(1)
		s.change()
	})
	if want := at(0, .5, 1.5, 3.5, 7.5, 15.5, 20, 20.5, 21.5); !slices.Equal(s.calls, want) {
		t.Errorf("called at %v, want %v", s.calls, want)
	}
	if len(s.heard) != 2 {
		t.Errorf("told %q", s.heard)
	}
}

// One that was made anew while it was served is, too.
func TestSocketRenewedWhileServed(t *testing.T) {
	s := play(t, time.Second, func(s *scene, call int) error {
		if call < 3 {
			s.inode.Add(1)
		}
		return errAway
	}, nil)
	if want := at(0, 0, 0, 0, .5); !slices.Equal(s.calls, want) {
		t.Errorf("called at %v, want %v", s.calls, want)
	}
}

// Serve makes and removes a socket of its own in the same directory.
func TestOwnChangesShortenNoPause(t *testing.T) {
	s := play(t, 30*time.Second, func(s *scene, _ int) error { s.change(); return errAway }, func(s *scene) {
		for range 100 {
			wait(100 * time.Millisecond)
			s.change()
		}
	})
	if want := at(0, .5, 1.5, 3.5, 7.5, 15.5); !slices.Equal(s.calls, want) {
		t.Errorf("called at %v, want %v", s.calls, want)
	}
}

// What was served for long and ends begins a new row.
func TestLongServiceBeginsAnew(t *testing.T) {
	s := play(t, 2*time.Minute, func(_ *scene, call int) error {
		if call == 4 {
			wait(time.Minute)
		}
		return errAway
	}, nil)
	if want := at(0, .5, 1.5, 3.5, 7.5, 68, 69, 71, 75, 83, 99); !slices.Equal(s.calls, want) {
		t.Errorf("called at %v, want %v", s.calls, want)
	}
	if len(s.heard) != 2 {
		t.Errorf("told %q", s.heard)
	}
}

func TestOtherErrorsAreTold(t *testing.T) {
	texts := []string{"a", "a", "b", "b", "a"}
	s := play(t, 10*time.Second, func(_ *scene, call int) error { return errors.New(texts[min(call, 4)]) }, nil)
	if want := []string{"a", "b", "a"}; !slices.Equal(s.heard, want) {
		t.Errorf("told %q, want %q", s.heard, want)
	}
}

func TestEndIsNoError(t *testing.T) {
	s := play(t, time.Second, func(*scene, int) error { wait(2 * time.Second); return errAway }, nil)
	if len(s.calls) != 1 || len(s.heard) > 0 {
		t.Errorf("called at %v, told %q", s.calls, s.heard)
	}
}

// TestIdentify has real sockets: the same one is the same, another at its path is another.
func TestIdentify(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	watcher, err := Watch(path)
	if err != nil {
		t.Fatal(err)
	}
	defer watcher.Close()
	seen := map[ID]bool{{}: true}
	for range 3 {
		if got := Identify(path); got != (ID{}) {
			t.Errorf("nothing is %v", got)
		}
		listener, err := net.Listen("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		defer listener.Close() // no earlier, so that no other gets its inode
		<-watcher.Changed()
		id := Identify(path)
		if seen[id] || Identify(path) != id {
			t.Errorf("%v is %v", id, Identify(path))
		}
		seen[id] = true
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		<-watcher.Changed()
	}
	if got := Identify(filepath.Dir(path)); got != (ID{}) {
		t.Errorf("a directory is %v", got)
	}
}
