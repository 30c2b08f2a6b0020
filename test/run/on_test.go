package run

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/divvy-gpu/divvy/internal/process"
)

// on runs a command on one of some hosts to its end.
func (h *host) on(hosts string, args ...string) outcome {
	h.t.Helper()
	return h.divvy(append([]string{"run", "--on", hosts}, args...)...)
}

// A command on another host has a share of a GPU there, with its limit, as the oracle sees it.
func TestOnKeepsTheLimit(t *testing.T) {
	all := newServers(t, 1)
	s, c := all[0], newClient(t, all, "--commands")
	o := c.on(s.name, "--memory", "8Gi", "--", s.bench(), "alloc", "--bytes", "1Gi", "--count", "20")
	if !strings.Contains(o.out, "CUDA_ERROR_OUT_OF_MEMORY") || !strings.Contains(o.out, `"allocations":7,`) {
		t.Errorf("%+v", o)
	}
	s.gone()
}

// Exit statuses are those of a command of this host, and what is refused there is told here.
func TestOnStatus(t *testing.T) {
	all := newServers(t, 1)
	s, c := all[0], newClient(t, all, "--commands", "--environment", "MY_*")
	for name, test := range map[string]struct {
		args   []string
		status int
		says   string
	}{
		"its status":      {[]string{"--memory", "1Gi", "--", "sh", "-c", "exit 7"}, 7, ""},
		"a signal":        {[]string{"--memory", "1Gi", "--", "sh", "-c", "kill -TERM $$"}, 143, ""},
		"not found":       {[]string{"--memory", "1Gi", "--", "/nowhere/program"}, 127, "/nowhere/program"},
		"too large":       {[]string{"--memory", "900Gi", "--", "true"}, 125, "900Gi"},
		"a variable":      {[]string{"--memory", "1Gi", "--env", "MY_STATUS=9", "--", "sh", "-c", "exit $MY_STATUS"}, 9, ""},
		"one not listed":  {[]string{"--memory", "1Gi", "--env", "HIS=9", "--", "sh", "-c", "exit ${HIS:-3}"}, 3, "HIS"},
		"one of the host": {[]string{"--memory", "1Gi", "--env", "HOME=/x", "--", "true"}, 125, "HOME"},
		"another flag":    {[]string{"--memory", "1Gi", "--remote", s.name, "--", "true"}, 125, "--remote"},
	} {
		if o := c.on(s.name, test.args...); o.status != test.status || !strings.Contains(o.err, test.says) {
			t.Errorf("%s: %+v", name, o)
		}
	}
	s.gone()
}

// Of several hosts the one with room is taken, one that is gone is said, and any host is one that there is a bundle for.
func TestOnSeveral(t *testing.T) {
	all := newServers(t, 2)
	c := newClient(t, all, "--commands")
	held := all[0].hold([]string{"--memory", "75Gi"}, all[0].bench(), "hold", "--bytes", "1Gi")
	for _, hosts := range []string{names(all...), "any"} {
		o := c.on(hosts, "--memory", "20Gi", "--", "sh", "-c", "echo there")
		if o.status != 0 || o.out != "there" || !strings.Contains(o.err, "the command runs on "+all[1].name) && hosts != "any" {
			t.Errorf("%s: %+v", hosts, o)
		}
	}
	held.end()
	all[1].stop()
	if o := c.on(names(all...), "--memory", "20Gi", "--", "sh", "-c", "echo there"); o.status != 0 || o.out != "there" || !strings.Contains(o.err, "left out: "+all[1].name+": ") {
		t.Errorf("beside a host that is gone: %+v", o)
	}
	if o := c.on(all[1].name, "--memory", "20Gi", "--", "true"); o.status != 125 {
		t.Errorf("a host that is gone: %+v", o)
	}
}

// A command that kills its attendant keeps nothing of the share by a process in a session of its own: the process ends, and until
// then the share counts.
func TestOnKilledAttendant(t *testing.T) {
	all := newServers(t, 1)
	s, c := all[0], newClient(t, all, "--commands", "--shares", "1")
	held := filepath.Join(t.TempDir(), "held")
	script := fmt.Sprintf("(setsid sh -c 'echo $$ > %[1]s.pid; exec %[2]s hold --bytes 1Gi > %[1]s' &); while ! [ -s %[1]s ]; do sleep 0.02; done; kill -KILL $PPID; sleep 1000", held, s.bench())
	if o := c.on(s.name, "--memory", "2Gi", "--", "sh", "-c", script); o.status != 128+int(syscall.SIGKILL) {
		t.Errorf("%+v", o)
	}
	text, err := os.ReadFile(held + ".pid")
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	if id, err := process.Find(pid); err == nil {
		t.Cleanup(func() { _ = id.Signal(syscall.SIGKILL) }) // it is not the test's
		s.eventually("the process has ended", func() bool { return !id.Alive() })
	}
	// On a busy machine the client may be told of the end of its command before that of the share.
	s.eventually("the share has ended", func() bool { return len(s.list().Tenants) == 0 })
	s.eventually("the next command runs", func() bool { return c.on(s.name, "--memory", "2Gi", "--", "true").status == 0 })
	s.gone()
}
