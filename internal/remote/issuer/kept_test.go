package issuer

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

type ends time.Time

func (e ends) NotAfter() time.Time { return time.Time(e) }

// A certificate is renewed in the middle of its time, and one that nobody renews is used to its end and no longer.
func TestKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		asked, said := 0, 0
		var away error
		ask := func(context.Context) (ends, error) {
			asked++
			return ends(time.Now().Add(time.Hour)), away
		}
		k, err := Keep(ctx, ask, func(error) { said++ })
		if err != nil {
			t.Fatal(err)
		}
		at := func(after time.Duration, questions int, works bool) {
			t.Helper()
			time.Sleep(after)
			synctest.Wait()
			if _, err := k.Get(); asked != questions || (err == nil) != works {
				t.Errorf("asked %d times, want %d; %v", asked, questions, err)
			}
		}
		at(29*time.Minute, 1, true)
		at(2*time.Minute, 2, true)
		away = errors.New("away")
		at(28*time.Minute, 2, true)
		at(2*time.Minute, 9, true) // each ten seconds
		if said != 7 {
			t.Errorf("said %d times", said)
		}
		at(time.Hour, asked+360, false)
		if _, err := k.Get(); !errors.Is(err, away) {
			t.Error(err)
		}
		away = nil
		at(10*time.Second, asked+1, true)
		cancel()
		synctest.Wait()
		at(time.Hour, asked, false)
		away = errors.New("away")
		if _, err := Keep(t.Context(), ask, func(error) {}); !errors.Is(err, away) {
			t.Error(err)
		}
	})
}
