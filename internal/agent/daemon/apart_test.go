package daemon

import (
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/agent/gpulock"
	"github.com/divvy-gpu/divvy/internal/process/processtest"
)

// A process that holds a GPU in another network namespace cannot be asked. A system agent serves the GPU all the same, and
// its log names the process, also where that is root's.
func TestNobodyApartStopsASystemAgent(t *testing.T) {
	serve := func(l *net.UnixListener) {
		for {
			if _, err := l.Accept(); err != nil {
				return
			}
		}
	}
	if uuid := os.Getenv("DAEMON_TEST_HOLD"); uuid != "" {
		set := gpulock.Set{Kind: gpulock.Simulated, Serve: serve}
		defer set.Close()
		if err := set.Take(t.Context(), uuid); err != nil {
			t.Fatal(err)
		}
		_, _ = os.Stdout.WriteString(processtest.Ready)
		_, _ = os.Stdin.Read(make([]byte, 1)) // until its end
		return
	}
	uuid := "GPU-" + t.Name() + "-" + filepath.Base(t.TempDir()) + time.Now().Format("150405.000000000")
	cmd, _ := processtest.Again(t, t.Name(), "DAEMON_TEST_HOLD="+uuid)
	var log strings.Builder
	s := &service{options: Options{Log: slog.New(slog.NewTextHandler(&log, nil))}}
	s.locks.Kind, s.locks.Serve = gpulock.Simulated, serve
	defer s.locks.Close()
	if left, err := s.reclaim(t.Context(), []string{uuid}); err != nil || len(left) > 0 || !slices.Equal(s.missed, []string{uuid}) {
		t.Errorf("%v, %v, missed %v", left, err, s.missed)
	}
	if want := fmt.Sprintf("process %d", cmd.Process.Pid); !strings.Contains(log.String(), want) || !strings.Contains(log.String(), "served all the same") {
		t.Errorf("the log does not name %s: %s", want, log.String())
	}
}
