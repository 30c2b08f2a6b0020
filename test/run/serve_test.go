package run

import (
	"encoding/json"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/servefile"
)

// holders are the processes that hold shares of a server's clients.
func (s *server) holders() (pids []int) {
	s.t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		s.t.Fatal(err)
	}
	for _, entry := range entries {
		line, _ := os.ReadFile(filepath.Join("/proc", entry.Name(), "cmdline"))
		environment, _ := os.ReadFile(filepath.Join("/proc", entry.Name(), "environ"))
		words := strings.Split(string(line), "\x00")
		pid, err := strconv.Atoi(entry.Name())
		if err == nil && len(words) > 1 && filepath.Base(words[0]) == "divvy" && words[1] == "hold" && strings.Contains(string(environment), "DIVVY_RUNDIR="+s.rundir+"\x00") {
			pids = append(pids, pid)
		}
	}
	return pids
}

// nobody waits until nothing is left of the server's shares, holders included.
func (s *server) nobody() {
	s.t.Helper()
	s.eventually("no holder is left", func() bool { return len(s.holders()) == 0 })
	s.gone()
}

// A share of a client is an ordinary share of this host: of the client's local user, with its command, and with its client.
func TestServeShareIsOrdinary(t *testing.T) {
	s, c := one(t)
	p := c.stepsOf([]string{"--remote", s.name, "--memory", "2Gi", "--cores", "30", "--class", "offline", "--name", "far"})
	p.want("alloc", p.do("1073741824"), "0")
	far, ok := s.tenant("far")
	if !ok || far.UID != os.Getuid() || far.Remote == nil || far.Remote.Client != "laptop" || far.Remote.Address != "127.0.0.1" || len(far.Command) == 0 || filepath.Base(far.Command[0]) != "steps" {
		t.Fatalf("%+v", far)
	}
	if share := far.Shares[0]; share.Limit != 2*gib || share.Cores != 30 || share.Class != "offline" || share.Backend != "remote" {
		t.Errorf("%+v", share)
	}
	if n := len(s.holders()); n != 1 {
		t.Errorf("%d processes hold it", n)
	}
	if text := s.ok("show", "far", "--simgpu", "m"); !strings.Contains(text, "It is used by client laptop on") {
		t.Errorf("it is shown as\n%s", text)
	}
	s.ok("set", "far", "--memory", "4Gi", "--simgpu", "m")
	p.want("3 GiB in all", p.do("2147483648"), "0")
	if used := s.bytesUsed(); used < 3*gib || used > 4*gib {
		t.Errorf("the oracle sees %d bytes", used)
	}
	p.want("2 GiB more", p.do("2147483648"), outOfMemory)
	p.end()
	s.nobody()
}

// A server that is ended, as also by a terminal that is closed, tells its clients why, and leaves nothing.
func TestServeEnds(t *testing.T) {
	// A signal that the tests were started to ignore, as by nohup, the server would ignore too. One that is caught here is not.
	if signal.Ignored(syscall.SIGHUP) {
		caught := make(chan os.Signal, 1)
		signal.Notify(caught, syscall.SIGHUP)
		t.Cleanup(func() { signal.Stop(caught) })
	}
	for _, by := range []syscall.Signal{syscall.SIGTERM, syscall.SIGHUP} {
		t.Run(by.String(), func(t *testing.T) { serveEnds(t, by) })
	}
}

func serveEnds(t *testing.T, by syscall.Signal) {
	s, c := one(t)
	p := c.stepsOf([]string{"--remote", s.name, "--memory", "2Gi"})
	p.want("alloc", p.do("1073741824"), "0")
	if err := s.cmd.Process.Signal(by); err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Wait(); err != nil {
		t.Errorf("the server ended with %v", err)
	}
	p.want("after it", p.do("1048576"), deviceUnavailable)
	p.end()
	if said := p.said.String(); !strings.Contains(said, "the server of the GPU's host ends") {
		t.Errorf("the command said %q", said)
	}
	s.nobody()
}

// A server that is killed leaves nothing: whoever holds a share sees its end.
func TestServeIsKilled(t *testing.T) {
	s, c := one(t)
	p := c.stepsOf([]string{"--remote", s.name, "--memory", "2Gi"})
	q := c.stepsOf([]string{"--remote", s.name, "--memory", "1Gi"})
	p.want("alloc", p.do("1073741824"), "0")
	q.want("alloc", q.do("1048576"), "0")
	s.stop()
	p.want("after it", p.do("1048576"), deviceUnavailable)
	p.end()
	q.end()
	s.nobody()
}

// A holder that is killed ends its share alone, and its client hears of it.
func TestServeHolderIsKilled(t *testing.T) {
	s, c := one(t)
	p := c.stepsOf([]string{"--remote", s.name, "--memory", "2Gi"})
	p.want("alloc", p.do("1073741824"), "0")
	pids := s.holders()
	q := c.stepsOf([]string{"--remote", s.name, "--memory", "1Gi"})
	q.want("alloc", q.do("1048576"), "0")
	killAll(t, pids)
	s.eventually("one share is left", func() bool { return len(s.list().Tenants) == 1 })
	p.want("after it", p.do("1048576"), deviceUnavailable)
	q.want("another share", q.do("1048576"), "0")
	p.end()
	if said := p.said.String(); strings.Count(strings.TrimSpace(said), "\n") != 0 || said == "" {
		t.Errorf("the command said %q", said)
	}
	q.end()
	s.nobody()
}

// An agent that is killed and comes again takes up the share; who uses it never notices, and lists still have the client.
func TestServeAgentIsKilled(t *testing.T) {
	s, c := one(t)
	p := c.stepsOf([]string{"--remote", s.name, "--memory", "2Gi", "--name", "far"})
	p.want("alloc", p.do("1073741824"), "0")
	if err := syscall.Kill(s.agentPID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	p.want("meanwhile", p.do("1048576"), "0")
	s.eventually("the next agent knows the share", func() bool {
		far, ok := s.tenant("far")
		return ok && far.Remote != nil && far.Remote.Client == "laptop"
	})
	p.want("after it", p.do("1048576"), "0")
	p.want("beyond the limit", p.do("1073741824"), outOfMemory)
	p.end()
	s.nobody()
}

// The file counts as it is: one that is faulty changes nothing, and a client that it no longer has loses its shares.
func TestServeFileChanges(t *testing.T) {
	s, c := one(t)
	p := c.stepsOf([]string{"--remote", s.name, "--memory", "2Gi"})
	p.want("alloc", p.do("1073741824"), "0")
	file := filepath.Join(s.dir, "serve.yaml")
	if err := os.WriteFile(file, []byte("clients: {"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.eventually("the log says that the file is faulty", func() bool { return strings.Contains(s.log.String(), "cannot be read: what it said before counts") })
	p.want("beside a faulty file", p.do("1048576"), "0")
	if o := c.runOn(s.name, "--memory", "1Gi", "--", "true"); o.status != 0 {
		t.Errorf("beside a faulty file: %+v", o)
	}
	whole, err := json.Marshal(map[string]any{"apiVersion": v1alpha1.APIVersion, "kind": servefile.Kind, "listen": "127.0.0.1:1", "clients": map[string]any{}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, whole, 0o600); err != nil {
		t.Fatal(err)
	}
	s.nobody()
	if log := s.log.String(); !strings.Contains(log, "counts when the server is started again") || !strings.Contains(log, "127.0.0.1:1") {
		t.Errorf("of an address that does not count yet the log says nothing: %s", log)
	}
	p.want("after it", p.do("1048576"), deviceUnavailable)
	p.end()
	if said := p.said.String(); !strings.Contains(said, "client laptop is no longer in the file") {
		t.Errorf("the command said %q", said)
	}
	if o := c.runOn(s.name, "--memory", "1Gi", "--", "true"); o.status != 125 || !strings.Contains(o.err, "laptop") {
		t.Errorf("a client that is gone: %+v", o)
	}
}
