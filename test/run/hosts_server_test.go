package run

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/divvy-gpu/divvy/internal/launch"
	"github.com/divvy-gpu/divvy/internal/remote/relay"
)

// server is a host that serves others.
type server struct {
	*host
	// name is what clients call it, as HOST:PORT.
	name string
	dir  string
	cmd  *exec.Cmd
	log  logged
}

// logged is what a process says while it runs.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements [io.Writer].
func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// handed are the ports that tests of this process have had.
var handed sync.Map

// freePort is a port of this machine at which nobody listens, and which the kernel gives to nobody who asks for any: it is free for a
// moment before the server takes it. No other test of this process gets it.
func freePort(t *testing.T) int {
	t.Helper()
	for range 100 {
		port := 20000 + rand.IntN(10000) // below all ranges of net.ipv4.ip_local_port_range that are usual
		if _, had := handed.LoadOrStore(port, true); had {
			continue
		}
		if l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			_ = l.Close()
			return port
		}
	}
	t.Fatal("no port is free")
	return 0
}

// newServers starts so many servers, each on a host of its own.
func newServers(t *testing.T, n int) (all []*server) {
	t.Helper()
	t.Parallel()
	for range n {
		all = append(all, newServer(t, "a100-80g"))
	}
	return all
}

func newServer(t *testing.T, machine string) *server {
	t.Helper()
	s := &server{host: startHost(t, machine), dir: filepath.Join(t.TempDir(), "serve")}
	s.name = fmt.Sprintf("127.0.0.1:%d", freePort(t))
	s.ok("serve", "init", "--dir", s.dir, "127.0.0.1")
	file := filepath.Join(s.dir, "serve.yaml")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, bytes.ReplaceAll(text, []byte(`listen: ":7117"`), []byte(fmt.Sprintf("listen: %q", s.name))), 0o600); err != nil {
		t.Fatal(err)
	}
	s.serve()
	return s
}

// serve starts the server's process.
func (s *server) serve() {
	s.t.Helper()
	s.cmd = s.command(filepath.Join(string(s.tree), "bin", "divvy"), "serve", "--dir", s.dir, "--simgpu", "m")
	s.cmd.Stderr = &s.log
	s.cmd.WaitDelay = longest
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(s.stop)
	s.eventually("the server serves", func() bool {
		if strings.Contains(s.log.String(), "address already in use") {
			s.t.Fatal(s.log.String())
		}
		return strings.Contains(s.log.String(), "serving other hosts")
	})
}

// stop ends the server's process; a second call does nothing.
func (s *server) stop() {
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
}

// newClient is a machine without GPUs that the servers let in, with these flags of `divvy serve admit`.
func newClient(t *testing.T, servers []*server, flags ...string) *host {
	t.Helper()
	rundir, err := os.MkdirTemp("/dev/shm", "divvy-test-")
	if err != nil {
		t.Fatal(err)
	}
	c := &host{t: t, tree: servers[0].tree, rundir: rundir, bundles: t.TempDir()}
	t.Cleanup(func() {
		c.eventually("the client's shares are gone", func() bool {
			left, err := os.ReadDir(filepath.Join(rundir, "remote"))
			return len(left) == 0 || err != nil
		})
		if err := os.RemoveAll(rundir); err != nil {
			t.Error(err)
		}
	})
	who, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	for i, s := range servers {
		args := []string{"serve", "admit", "laptop", "--dir", s.dir, "--out", filepath.Join(c.bundles, fmt.Sprintf("%d.pem", i))}
		if os.Getuid() == 0 {
			args = append(args, "--user", who.Username)
		}
		s.ok(append(args, flags...)...)
		s.eventually("the server knows the client", func() bool {
			return !strings.Contains(c.divvy("run", "--remote", s.name, "--when-used", "--", "true").err, "laptop")
		})
	}
	c.eventually("nothing is left of what asked for that", func() bool { return len(c.relays()) == 0 && len(c.listAway()) == 0 })
	return c
}

// names are the servers' in a list.
func names(servers ...*server) string {
	var all []string
	for _, s := range servers {
		all = append(all, s.name)
	}
	return strings.Join(all, ",")
}

// runOn is `divvy run` with a share on other hosts.
func (h *host) runOn(hosts string, args ...string) outcome {
	h.t.Helper()
	return h.divvy(append([]string{"run", "--remote", hosts}, args...)...)
}

// listAway are the client's shares.
func (h *host) listAway() []relay.Listed {
	h.t.Helper()
	var document struct {
		Remote []relay.Listed `json:"remote"`
	}
	if err := json.Unmarshal([]byte(h.ok("ls", "-o", "json")), &document); err != nil {
		h.t.Fatal(err)
	}
	return document.Remote
}

// relays are the processes that keep shares of a client.
func (h *host) relays() (pids []int) {
	h.t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		h.t.Fatal(err)
	}
	for _, entry := range entries {
		line, _ := os.ReadFile(filepath.Join("/proc", entry.Name(), "cmdline"))
		environment, _ := os.ReadFile(filepath.Join("/proc", entry.Name(), "environ"))
		words := strings.Split(string(line), "\x00")
		pid, err := strconv.Atoi(entry.Name())
		if err == nil && len(words) > 1 && filepath.Base(words[0]) == "divvy" && words[1] == launch.RelayCommand && strings.Contains(string(environment), "DIVVY_RUNDIR="+h.rundir+"\x00") {
			pids = append(pids, pid)
		}
	}
	return pids
}
