package cli

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/control"
)

// Who reads from a named pipe that nobody writes to ends by a signal.
func TestSignalEndsReadingFromAPipe(t *testing.T) {
	for name, read := range map[string]func(ctx context.Context, pipe string) error{
		"a recorded host": func(ctx context.Context, pipe string) error { _, err := recordedHost(ctx, pipe); return err },
		"facts of one":    func(ctx context.Context, pipe string) error { _, err := (&app{}).facts(ctx, pipe); return err },
		"a topology":      func(ctx context.Context, pipe string) error { _, err := (&app{}).host(ctx, pipe, ""); return err },
	} {
		pipe := filepath.Join(t.TempDir(), "pipe")
		if err := unix.Mkfifo(pipe, 0o600); err != nil {
			t.Fatal(err)
		}
		ctx, signalled := context.WithCancel(t.Context())
		signalled()
		if err := read(ctx, pipe); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", name, err)
		}
		writer, err := os.OpenFile(pipe, os.O_WRONLY, 0) // whoever still opens it goes on
		if err != nil {
			t.Fatal(err)
		}
		if err := writer.Close(); err != nil {
			t.Error(err)
		}
	}
	// What can be read is read.
	if host, err := recordedHost(t.Context(), filepath.Join(hosts, "vm", "a100.host")); err != nil || host == nil {
		t.Errorf("a file: %v, %v", host, err)
	}
}

// A GPU is named by its PCI address as well, in the notation of sysfs or of the driver.
func TestClaimOfAGPUByItsAddress(t *testing.T) {
	for _, name := range []string{"0000:3b:00.0", "00000000:3B:00.0"} {
		l := succession(t, deeds{control.MethodTakeDevice: func() (any, error) { return deviceClaim("vm1", v1alpha1.BackendPassthrough, ""), nil }})
		status, said := l.call("vm", "claim", "--gpu", name, "--form", "passthrough")
		asked := l.of(control.MethodTakeDevice)
		if status != 0 || len(asked) != 1 || !strings.Contains(asked[0], `"pci":"0000:3b:00.0"`) || strings.Contains(asked[0], `"gpu"`) {
			t.Errorf("%s: status %d, asked %v: %s", name, status, asked, said)
		}
	}
}
