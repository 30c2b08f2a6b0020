package users

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/divvy-gpu/divvy/test/multiuser"
)

// running are the server's processes, as the test sees them, that run a command line.
func (s *server) running(command ...string) (pids []int) {
	s.t.Helper()
	found, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		s.t.Fatal(err)
	}
	for _, path := range found {
		line, err := os.ReadFile(path)
		if err != nil || string(line) != strings.Join(command, "\x00")+"\x00" {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path))); err == nil && s.Has(pid) && s.alive(pid) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// `divvy stop` of a share of root's ends also what became another user in it, and nobody who
// is outside it, whatever they mount.
func TestStopEndsWhatBecameAnotherUser(t *testing.T) {
	s := newServer(t)
	s.agent()
	const family, apart = `sleep 31001 & (setsid sleep 31001 &) ; echo up; wait`, `unshare --user --map-root-user --mount sleep 31001 & `
	become := func(script string) []string {
		return []string{"setpriv", "--reuid", "u2", "--regid", "u2", "--init-groups", "sh", "-c", script}
	}
	bystander := s.start("u2", false, "sleep", "31002")
	for _, c := range []struct {
		name, layer string
		command     []string
	}{
		{"the command", "namespace", become(family)},
		{"runuser", "namespace", []string{"runuser", "-u", "u2", "--", "sh", "-c", family}},
		{"a child of root's shell", "namespace", append([]string{"sh", "-c", `"$@"; true`, "sh"}, become(family)...)},
		{"in namespaces of their own", "namespace", become(apart + apart + "echo up; wait")},
		{"the command without a namespace", "env", become("sleep 31001 & sleep 31001 & echo up; wait")},
	} {
		t.Run(c.name, func(t *testing.T) {
			run := s.start("root", true, append([]string{"divvy", "run", "--layer", c.layer, "--memory", "1Gi", "--name", "job", "--"}, c.command...)...)
			endAll := func() { // they have the output of what started them open
				for _, pid := range s.running("sleep", "31001") {
					s.signal(pid, syscall.SIGKILL)
				}
			}
			defer endAll()
			var pids []int
			s.eventually("both run", func() bool { pids = s.running("sleep", "31001"); return len(pids) == 2 })
			job, found := find(s.list(), "root", "job")
			if !found {
				t.Fatal("there is no share")
			}
			forger := s.start("u2", true, "unshare", "--user", "--map-root-user", "--mount", "sh", "-c",
				`mount --bind "$1" /mnt; echo up; exec sleep 31003`, "sh", job.Dir)
			s.eventually("those outside the share run", func() bool {
				return len(s.running("sleep", "31002")) == 1 && len(s.running("sleep", "31003")) == 1
			})
			for _, pid := range pids {
				if owner(pid) != multiuser.UID("u2") {
					t.Fatalf("process %d is of %d", pid, owner(pid))
				}
			}
			if o := s.run("root", "divvy", "stop", "--grace", "0s", "job"); o.status != 0 {
				t.Errorf("stop: exit status %d, %s", o.status, o.err)
			}
			for _, pid := range pids {
				if s.alive(pid) {
					t.Errorf("process %d goes on", pid)
				}
			}
			if len(s.running("sleep", "31002")) != 1 || len(s.running("sleep", "31003")) != 1 {
				t.Error("who is outside the share has ended")
			}
			forger.kill(syscall.SIGKILL)
			endAll()
			run.wait()
		})
	}
	bystander.kill(syscall.SIGKILL)
}
