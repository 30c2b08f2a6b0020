package daemon

import (
	"bufio"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/agent/gpulock"
	"github.com/divvy-gpu/divvy/internal/install/installtest"
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
		_, _ = os.Stdout.WriteString("held\n")
		_, _ = os.Stdin.Read(make([]byte, 1)) // until its end
		return
	}
	uuid := "GPU-" + t.Name() + "-" + filepath.Base(t.TempDir()) + time.Now().Format("150405.000000000")
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), "DAEMON_TEST_HOLD="+uuid)
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWUSER | unix.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}, GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
	}
	input, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	output, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); errors.Is(err, syscall.EPERM) {
		installtest.Missing(t, "users", err)
	} else if err != nil {
		t.Fatal(err)
	}
	defer func() { input.Close(); _ = cmd.Wait() }()
	if said, err := bufio.NewReader(output).ReadString('\n'); err != nil || said != "held\n" {
		t.Fatalf("it says %q, %v", said, err)
	}
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
