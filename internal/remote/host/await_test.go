package host

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/remote/server"
	"github.com/divvy-gpu/divvy/internal/remote/wire"
	"github.com/divvy-gpu/divvy/internal/servefile"
)

// asking is a request that waits.
type asking struct {
	told []wire.Queued
	e    *entry
	err  error
	over bool
}

// ask has a client ask and wait.
func ask(ctx context.Context, b *book, memory uint64) *asking {
	a := &asking{}
	take := wire.Take{Request: asks(v1alpha1.Bytes(memory), 0, 1), Wait: true}
	go func() {
		a.e, _, a.err = b.count(ctx, server.Client{Name: "ada"}, take, 80*gib, func(q wire.Queued) { a.told = append(a.told, q) })
		a.over = true
	}()
	synctest.Wait()
	return a
}

// A client that waits has what it asks for when it has given back enough, in the order in which it asked.
func TestWaitWithinBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := bookOf(servefile.Client{Memory: 10 * gib})
		first := ask(t.Context(), b, 8*gib)
		large, small := ask(t.Context(), b, 6*gib), ask(t.Context(), b, gib)
		if first.e == nil || first.err != nil || len(first.told) > 0 {
			t.Errorf("%+v", first)
		}
		if large.over || len(large.told) != 1 || large.told[0].Place != 1 || !strings.Contains(large.told[0].Reason, "10Gi of memory, and asks for 6Gi while it has 8Gi") {
			t.Errorf("%+v", large)
		}
		if small.over || len(small.told) != 1 || small.told[0] != (wire.Queued{Place: 2, Of: 2, Reason: "client ada has other requests that wait"}) {
			t.Errorf("%+v", small)
		}
		b.release(first.e)
		synctest.Wait()
		if large.e == nil || small.e == nil || large.err != nil || small.err != nil {
			t.Errorf("%+v, %+v", large, small)
		}
		if got := b.sum("ada"); got.Memory != 7*gib || len(b.waiting) > 0 {
			t.Errorf("%+v, %v", got, b.waiting)
		}
	})
}

// What is beyond a bound by itself is refused at once, and so is everything of a client that is taken out. Who gives up keeps no
// place.
func TestWaitInVain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := bookOf(servefile.Client{Memory: 10 * gib})
		refused, held := new(wire.Refused), (*asking)(nil)
		for range 2 { // also while it has all that it may have
			if large := ask(t.Context(), b, 10*gib+1); !errors.As(large.err, &refused) || refused.Code != wire.CodeBounds || len(large.told) > 0 {
				t.Errorf("%+v", large)
			}
			if held == nil {
				held = ask(t.Context(), b, 10*gib)
			}
		}
		ctx, giveUp := context.WithCancel(t.Context())
		gone, next := ask(ctx, b, gib), ask(t.Context(), b, gib)
		giveUp()
		synctest.Wait()
		if !errors.Is(gone.err, context.Canceled) || gone.e != nil {
			t.Errorf("%+v", gone)
		}
		if places := slices.Collect(func(yield func(int) bool) {
			for _, q := range next.told {
				if !yield(q.Place) {
					return
				}
			}
		}); !slices.Equal(places, []int{2, 1}) {
			t.Errorf("it had the places %v", places)
		}
		b.replace(&servefile.File{})
		synctest.Wait()
		if !errors.As(next.err, &refused) || refused.Code != wire.CodeClient || len(b.waiting) > 0 {
			t.Errorf("%+v", next)
		}
		b.release(held.e)
	})
}
