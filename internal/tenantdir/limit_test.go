package tenantdir

import (
	"errors"
	"log/slog"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/backend"
)

// An agent that cannot open another file does not know that nobody lives.
func TestWantOfFilesEndsNobody(t *testing.T) {
	ts := NewTenants(Config{Root: t.TempDir(), Log: slog.New(slog.DiscardHandler)})
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	tenant := backend.Tenant{ID: "a", Dir: t.TempDir(), Shares: []backend.Share{{}}}
	if figures, err := ts.Look(t.Context(), tenant); figures.Live || err == nil {
		t.Errorf("without a page: %t, %v", figures.Live, err)
	}
	none := limit
	none.Cur = 0
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &none); err != nil {
		t.Fatal(err)
	}
	figures, err := ts.Look(t.Context(), tenant)
	if limitErr := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); limitErr != nil {
		t.Fatal(limitErr)
	}
	if !figures.Live || !errors.Is(err, unix.EMFILE) {
		t.Errorf("without files: %t, %v", figures.Live, err)
	}
}
