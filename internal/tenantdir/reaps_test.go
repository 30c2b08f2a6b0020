package tenantdir

import (
	"context"
	"errors"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/divvy-gpu/divvy/internal/backend"
)

// However many of a user's tenants have a reaper that stands still, looks wait for it a bounded
// time, and not at all for it at the tenants of others.
func TestReapersThatStandStill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r reaps
		const stuck = 5 * time.Second
		var running, most atomic.Int32
		stand := func(context.Context) error {
			most.Store(max(most.Load(), running.Add(1)))
			time.Sleep(stuck)
			running.Add(-1)
			return errors.New("killed")
		}
		begun := time.Now()
		for range 3 {
			for i := range 50 {
				if done, err := r.run(t.Context(), "user 1", Dir(strconv.Itoa(i)), stand); done || err != nil {
					t.Fatalf("tenant %d: %v, %v", i, done, err)
				}
				if done, err := r.run(t.Context(), "user 2", "other", func(context.Context) error { return nil }); !done || err != nil {
					t.Fatalf("another user's: %v, %v", done, err)
				}
			}
		}
		if waited := time.Since(begun); waited < mostReapWait || waited >= 2*mostReapWait {
			t.Errorf("looks waited %v", waited)
		}
		time.Sleep(200 * stuck)
		if most.Load() != 1 {
			t.Errorf("%d of one user's ran at once", most.Load())
		}
		begun = time.Now()
		if done, err := r.run(t.Context(), "user 1", "1", func(context.Context) error { return nil }); !done || err != nil || time.Since(begun) > 0 {
			t.Errorf("afterwards: %v, %v after %v", done, err, time.Since(begun))
		}
	})
}

// The dead that come again and again keep the reaper busy for a part of the time.
func TestReapersPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r reaps
		begun, runs := time.Now(), 0
		for time.Since(begun) < 10*time.Second {
			done, err := r.run(t.Context(), "user 1", "a", func(context.Context) error {
				runs++
				time.Sleep(5 * time.Millisecond)
				return nil
			})
			if !done {
				time.Sleep(time.Millisecond)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if runs < 400 || runs > 510 {
			t.Errorf("%d runs of 5 ms in 10 s", runs)
		}
		time.Sleep(mostReapPause)
	})
}

// A reaper outlives who asked for it first.
func TestReaperOutlivesTheLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r reaps
		ctx, cancel := context.WithCancel(t.Context())
		ended := false
		go func() { time.Sleep(time.Millisecond); cancel() }()
		done, err := r.run(ctx, "user 1", "a", func(ctx context.Context) error {
			time.Sleep(10 * time.Millisecond)
			ended = ctx.Err() == nil
			return ctx.Err()
		})
		if done || err != nil {
			t.Errorf("%v, %v", done, err)
		}
		time.Sleep(time.Second)
		if !ended {
			t.Error("it was broken off")
		}
	})
}

func TestOwnerOfReaps(t *testing.T) {
	contained := backend.Tenant{ID: "a", UID: 1, Layer: backend.LayerContainer}
	if x, y := costsOf(contained), costsOf(backend.Tenant{ID: "b", UID: 1, Layer: backend.LayerContainer}); x == y {
		t.Errorf("two containers' are %q", x)
	}
	if x, y := costsOf(backend.Tenant{ID: "a", UID: 1}), costsOf(backend.Tenant{ID: "b", UID: 1}); x != y {
		t.Errorf("one user's are %q and %q", x, y)
	}
}
