package users

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/test/attack"
)

// build puts a program on the server, and returns where.
func (s *server) build(program func(context.Context, string) error) string {
	s.t.Helper()
	if err := program(s.t.Context(), filepath.Join(s.Root, "opt")); err != nil {
		s.t.Fatal(err)
	}
	return "/opt"
}

// truth is what all shares really hold, as the simulated driver knows.
func (s *server) truth() uint64 {
	s.t.Helper()
	bytes, err := s.Used(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	return bytes
}

// bypass starts a share that tries a way. With tried it returns when it has tried; who
// is stopped or killed may not come to say so.
func (s *server) bypass(dir, way string, tried bool) *program {
	s.t.Helper()
	args := []string{"divvy", "run", "--memory", strconv.Itoa(attack.Limit), "--name", way, "--"}
	return s.start("u1", tried, append(args, attack.Command(dir, way)...)...)
}

// told is the agent's event about a share that has too much, nil if there is none.
func told(list control.Listing, name string) *control.Event {
	for i, e := range list.Events {
		if e.Kind == control.EventExcess && (e.Tenant == name || e.Tenant == "u1/"+name) {
			return &list.Events[i]
		}
	}
	return nil
}

// believed are the bytes that a program believes to hold which has tried a way.
func believed(t *testing.T, line string) (bytes uint64) {
	t.Helper()
	if _, err := fmt.Sscan(line, &bytes); err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	return bytes
}

// Every way past the memory limit is prevented, or noticed by the driver's figures and
// answered as the configuration says.
func TestWaysPastTheMemoryLimit(t *testing.T) {
	for _, answer := range []string{"report", "stop", "kill"} {
		t.Run(answer, func(t *testing.T) {
			s := newServer(t)
			s.write("/etc/divvy/agent.yaml", head+"outside: "+answer+"\n")
			s.agent()
			built := s.build(attack.Build)
			honest := s.hold("u2", "1Gi", "--memory", "2Gi", "--name", "honest")
			before := s.truth()
			for _, way := range attack.Ways {
				p := s.bypass(built, way.Name, way.Prevented || answer == "report")
				if way.Prevented {
					if held := s.truth() - before; held > attack.Limit {
						t.Errorf("%s: %d bytes are held: %s", way.Name, held, p.first)
					} else if believed := believed(t, p.first); held < believed {
						t.Errorf("%s: it took %d bytes, and the driver gave %d", way.Name, believed, held)
					}
					p.end()
					continue
				}
				s.eventually(way.Name+" is told", func() bool { return told(s.list(), way.Name) != nil })
				switch answer {
				case "report":
					if held, state := s.truth()-before, stateOf(p.pid()); held < attack.Wanted || state == "T" {
						t.Errorf("%s: %d bytes are held in state %s: %s", way.Name, held, state, p.first)
					}
					p.end()
				case "stop":
					pid := p.pid()
					s.eventually(way.Name+" is stopped", func() bool { return stateOf(pid) == "T" })
					s.ok("u1", "divvy", "stop", "--grace", "0s", way.Name)
					s.eventually(way.Name+" has ended", func() bool {
						_ = p.cmd.Process.Signal(syscall.SIGCONT) // nsenter stops with its child, if later
						return stateOf(p.cmd.Process.Pid) == "Z"
					})
					p.wait()
				case "kill":
					if status := p.wait(); status != 137 {
						t.Errorf("%s: exit status %d", way.Name, status)
					}
				}
				s.eventually(way.Name+" has nothing left", func() bool { return s.truth() == before })
			}
			if text := told(s.list(), "honest"); text != nil || stateOf(honest.pid()) == "T" {
				t.Errorf("the honest one: %+v", text)
			}
			honest.end()
		})
	}
}

// guarded is a server with an agent that kills, on a machine with fields set as given.
func guarded(t *testing.T, set ...string) *server {
	t.Helper()
	s := newServer(t, set...)
	s.write("/etc/divvy/agent.yaml", head+"outside: kill\n")
	s.agent()
	return s
}

// Where the driver hides what processes have, the shares of a GPU are compared together,
// and nobody is ended for it.
func TestWaysPastTheLimitWhereFiguresAreHidden(t *testing.T) {
	s := guarded(t, "sampling.processes=hidden")
	p := s.bypass(s.build(attack.Build), "name", true)
	s.eventually("the GPU is told", func() bool {
		for _, g := range s.list().GPUs {
			if strings.Contains(g.Excess, "granted together") && strings.Contains(g.Hidden, "does not tell") {
				return true
			}
		}
		return false
	})
	if tenant, ok := find(s.list(), "u1", "name"); !ok || tenant.Shares[0].Observed != nil || stateOf(p.pid()) == "" {
		t.Errorf("shown %+v", tenant)
	}
	if out := s.ok("u1", "divvy", "ls"); !strings.Contains(out, "*") || !strings.Contains(out, "does not tell what each process has") {
		t.Errorf("the list does not say so:\n%s", out)
	}
	if status := p.end(); status != 0 {
		t.Errorf("it ended with status %d", status)
	}
}

// Processes of which each counts in an account of its own, mounted over the share's, have
// more than the share together.
func TestAnotherAccount(t *testing.T) {
	s := guarded(t)
	before := s.truth()
	s.write("/opt/accounts.sh", `share=$(echo /dev/shm/divvy-0/tenants/*)
own() {
	cp "$share/state" "$HOME/$1"
	exec unshare --user --map-root-user --mount sh -c 'mount --bind "$0" "$1/state" && exec gpubench hold --bytes 1500Mi' "$HOME/$1" "$share" >&2
}
exec 3<&0
for n in 1 2 3 4; do { (own $n); echo $? >> "$HOME/ends"; } <&3 & done
wait
`)
	p := s.start("u1", false, "divvy", "run", "--memory", "2Gi", "--name", "accounts", "--", "sh", "/opt/accounts.sh")
	s.eventually("some are killed", func() bool { return strings.Contains(s.run("u1", "cat", "ends").out, "137") })
	s.eventually("it is told", func() bool { return told(s.list(), "accounts") != nil })
	p.end() // who came late has no more than the share
	s.eventually("nothing is left", func() bool { return s.truth() == before })
}

// Pids of another namespace accuse nobody.
func TestFiguresOfForeignProcesses(t *testing.T) {
	s := guarded(t, "sampling.processes=foreign")
	p := s.bypass(s.build(attack.Build), "name", true)
	s.eventually("it is said", func() bool {
		for _, g := range s.list().GPUs {
			if strings.Contains(g.Hidden, "another pid namespace") {
				return true
			}
		}
		return false
	})
	if list := s.list(); told(list, "name") != nil {
		t.Errorf("told %+v", list.Events)
	}
	if status := p.end(); status != 0 {
		t.Errorf("it ended with status %d", status)
	}
}

// Late figures come too late for nobody: who has too much is killed, and who takes and
// gives back within the limit is not.
func TestLateFigures(t *testing.T) {
	s := guarded(t, "sampling.processLag=1500ms")
	built := s.build(attack.Build)
	script := "for i in 1 2 3 4 5 6; do gpubench alloc --bytes 1500Mi --count 1 && gpubench storm --processes 3 --count 100; done"
	honest := s.start("u2", false, "divvy", "run", "--memory", "2Gi", "--name", "honest", "--", "sh", "-c", script)
	p := s.bypass(built, "name", false)
	if status := p.wait(); status != 137 {
		t.Errorf("exit status %d", status)
	}
	if status := honest.wait(); status != 0 {
		t.Errorf("the honest one: exit status %d, %s", status, honest.said.String())
	}
	list := s.list()
	if told(list, "name") == nil || told(list, "honest") != nil {
		t.Errorf("told %+v", list.Events)
	}
}

// stateOf is the letter of proc_pid_stat(5) of a process.
func stateOf(pid int) string {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	return string(data[strings.LastIndexByte(string(data), ')')+2])
}
