package users

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/divvy-gpu/divvy/test/multiuser"
)

// ownAgent is the pid, as the test sees it, of the agent that a user has for themselves.
func (s *server) ownAgent(user string) int {
	s.t.Helper()
	uid := multiuser.UID(user)
	found, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		s.t.Fatal(err)
	}
	for _, path := range found {
		line, err := os.ReadFile(path)
		if err != nil || !strings.Contains(string(line), "agent\x00--ephemeral") {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err != nil {
			s.t.Fatal(err)
		}
		if owner(pid) == uid && s.Has(pid) {
			return pid
		}
	}
	s.t.Fatalf("%s has no agent", user)
	return 0
}

func owner(pid int) int {
	info, err := os.Stat(fmt.Sprintf("/proc/%d", pid))
	if err != nil {
		return -1
	}
	return int(info.Sys().(*syscall.Stat_t).Uid)
}

func (s *server) signal(pid int, signal syscall.Signal) {
	s.t.Helper()
	if err := syscall.Kill(pid, signal); err != nil {
		s.t.Fatalf("signal %d: %v", pid, err)
	}
}

// killed kills a process that is no child of the test's, and waits until it has nothing any more.
func (s *server) killed(pid int) {
	s.t.Helper()
	s.signal(pid, syscall.SIGKILL)
	s.eventually("the process is gone", func() bool {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		return err != nil || len(text) == 0
	})
}

// alive reports whether a process runs; a zombie does not.
func (s *server) alive(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, found := strings.Cut(string(text), ") ")
	return err == nil && found && rest[0] != 'Z'
}

// uuids are those of the server's GPUs, in their order.
func (s *server) uuids() []string {
	s.t.Helper()
	report, err := s.Report(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	var all []string
	for _, g := range report.GPUs {
		all = append(all, g.UUID)
	}
	return all
}
