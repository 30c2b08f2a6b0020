package pacing

import (
	"bytes"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/tenantdir"
)

// A tenant whose pages are spoilt is told once, however often the tenants change, and again after it was well.
func TestSpoiltTenantIsToldOnce(t *testing.T) {
	d := newDivision(t)
	var log bytes.Buffer
	d.loop.log = slog.New(slog.NewTextHandler(&log, nil))
	share := shareOf(v1alpha1.PolicyWeighted, 0, 1, v1alpha1.ClassOnline)
	bad := Member{backend.Tenant{ID: "bad", Dir: filepath.Join(d.dir, "bad"), UID: -1, Shares: []backend.Share{share}}, &tenantdir.Tenants{}}
	told := func(want int) {
		t.Helper()
		for range 3 {
			d.loop.rebuild(t.Context(), append([]Member{bad}, d.all...))
		}
		if got := strings.Count(log.String(), "cannot divide GPU time"); got != want {
			t.Errorf("told %d times, want %d:\n%s", got, want, log.String())
		}
	}
	told(1)
	d.loop.rebuild(t.Context(), nil)
	told(2)
}
