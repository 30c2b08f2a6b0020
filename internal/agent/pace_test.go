package agent

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/divvy-gpu/divvy/internal/backend"
)

// counting counts the looks at tenants.
type counting struct {
	*pages
	looks atomic.Int32
}

func (b *counting) Look(ctx context.Context, t backend.Tenant) (backend.Figures, error) {
	b.looks.Add(1)
	return b.pages.Look(ctx, t)
}

// What the notices of all of a user's shares cost is bounded, however many they are, and
// another user's death is followed up at once.
func TestLooksAreBoundedPerUser(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		b := &counting{pages: n.backend}
		a := n.idleWith(b)
		const shares, users = 50, 2
		dirs := map[string]string{}
		for i := range shares + users - 1 {
			key := fmt.Sprint(i)
			dirs[key] = n.prepared(&running{Agent: a}, claimed(key, gib, 0))
			one := a.tenants[tenancyID(key)]
			one.Layer, one.UID, one.connection = backend.LayerEnv, 4711+i/shares, true
		}
		const long = 3 * time.Second
		for begun := time.Now(); time.Since(begun) < long; {
			for i := range shares {
				a.lookSoon(t.Context(), tenancyID(fmt.Sprint(i)))
			}
			time.Sleep(time.Millisecond) // of the bubble's clock
		}
		if got, most := int(b.looks.Load()), int((long+ofUser.ahead)/ofUser.step)+shares; got > most || got < most/2 {
			t.Errorf("%d looks in %s, want at most %d", got, long, most)
		}
		other := fmt.Sprint(shares)
		n.enter(dirs[other], 0, 4711, gib).die()
		before := n.reaps.Load()
		a.lookSoon(t.Context(), tenancyID(other))
		synctest.Wait()
		if n.reaps.Load() != before+1 {
			t.Error("another user's death is not followed up at once")
		}
		a.running.Wait()
	})
}
