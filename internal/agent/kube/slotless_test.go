package kube

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/divvy-gpu/divvy/internal/agent/nri"
)

// scripted is a guard whose reason a test sets.
type scripted struct {
	changed chan struct{}
	reason  error
}

func (g *scripted) Down() (<-chan struct{}, error) { return g.changed, g.reason }

func (g *scripted) set(reason error) {
	before := g.changed
	g.changed, g.reason = make(chan struct{}), reason
	close(before)
	synctest.Wait()
}

// A node says that it offers nothing once a runtime is away for more than a restart, again
// before events are forgotten, and when it is back.
func TestSlotless(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		guard := &scripted{make(chan struct{}), nri.ErrApart}
		ctx, cancel := context.WithCancel(t.Context())
		var told []string
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			tellSlotless(ctx, guard, func(kind, reason, _, text string) { told = append(told, kind+" "+reason+" "+text) })
		}()
		expect := func(after time.Duration, want ...string) {
			t.Helper()
			time.Sleep(after) // of the bubble's clock
			synctest.Wait()
			if !slices.EqualFunc(told, want, func(got, part string) bool { return strings.Contains(got, part) }) || len(told) != len(want) {
				t.Errorf("told %q, want %q", told, want)
			}
			told = nil
		}
		expect(slotlessAfter / 2)
		guard.set(nil) // a restart, of which nothing is said
		expect(time.Hour)
		guard.set(nri.ErrOff)
		expect(slotlessAfter+time.Second, "Warning NoSharesWithoutNRI")
		expect(slotlessAgain, "disable = false")
		guard.set(errors.New("it does not answer"))
		expect(slotlessAfter+time.Second, "it does not answer")
		guard.set(nil)
		expect(time.Hour, "Normal SharesAgain")
		cancel()
		<-ended
	})
}
