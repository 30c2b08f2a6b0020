package suspensions_test

import (
	"context"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/install/installtest"
	"github.com/divvy-gpu/divvy/test/suspensions"
)

// Nothing is lost in random suspensions under pressure, whoever is killed meanwhile. `make bench-swap ONLY=suspend` has a
// thousand of them.
func TestNothingIsLost(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("the driver has checkpoints on x86-64 alone")
	}
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	defer cancel()
	r, err := suspensions.Run(ctx, suspensions.Options{Tree: installtest.Tree(t), Count: 24, Kills: true, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d suspensions, %d agents and %d helpers killed, longest %s, the driver's own %s", r.Suspensions, r.Agents, r.Helpers, slices.Max(r.Took), r.Driver)
	if r.Changed > 0 || r.Lost > 0 {
		t.Errorf("%d bytes are changed and %d programs lost", r.Changed, r.Lost)
	}
	if r.Agents == 0 || r.Helpers == 0 {
		t.Errorf("%d agents and %d helpers were killed", r.Agents, r.Helpers)
	}
}
