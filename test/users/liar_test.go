package users

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/test/attack"
)

// lie has a program that took memory lie, and returns when it has.
func (s *server) lie(p *program) {
	s.t.Helper()
	if _, err := io.WriteString(p.input, "x"); err != nil {
		s.t.Fatal(err)
	}
	if line, err := readLine(p.output); err != nil || line != "done" {
		s.t.Fatalf("it says %q, %v", line, err)
	}
}

// inner is the pid that a process has on the server.
func (s *server) inner(pid int) int {
	s.t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		s.t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "NSpid:")
	line, _, _ := strings.Cut(rest, "\n")
	fields := strings.Fields(line)
	inner, err := strconv.Atoi(fields[len(fields)-1])
	if err != nil {
		s.t.Fatal(err)
	}
	return inner
}

// `divvy stop` ends a share of which no page tells who is in it, and whose processes have
// left their parent.
func TestStopEndsWhoHides(t *testing.T) {
	for _, layer := range []string{"namespace", "env"} {
		for _, way := range []string{"vanish", "damage"} {
			t.Run(layer+" "+way, func(t *testing.T) {
				s := newServer(t)
				s.agent()
				built := s.build(attack.BuildLiar)
				neighbour := s.hold("u1", "256Mi", "--memory", "1Gi", "--name", "neighbour")
				before := s.truth()
				args := []string{"divvy", "run", "--layer", layer, "--memory", "2Gi", "--name", "hides", "--"}
				p := s.start("u1", true, append(args, attack.Lie(built, way, gib)...)...)
				s.list() // it is seen on the GPU once
				s.lie(p)
				if held := s.truth() - before; held < gib {
					t.Fatalf("%d bytes are held", held)
				}
				s.eventually("its parent is gone", func() bool {
					tenant, there := find(s.list(), "u1", "hides")
					return !there || !tenant.Held
				})
				if _, there := find(s.list(), "u1", "hides"); !there {
					t.Error("the share is not listed")
				}
				s.ok("u1", "divvy", "stop", "--grace", "0s", "hides")
				s.eventually("all is free", func() bool { return s.truth() == before })
				if list := s.list(); len(list.Tenants) != 1 || len(list.Outside) != 0 {
					t.Errorf("left are %+v, %+v", list.Tenants, list.Outside)
				}
				if status := neighbour.end(); status != 0 {
					t.Errorf("the neighbour ended with %d", status)
				}
			})
		}
	}
}

// A share whose page names processes of others hides none of them, and gets none of them
// ended, whatever is done about processes without a share.
func TestForgedSlots(t *testing.T) {
	for _, answer := range []string{"report", "kill"} {
		t.Run(answer, func(t *testing.T) {
			s := newServer(t)
			s.write("/etc/divvy/agent.yaml", head+"outside: "+answer+"\ngroups: {students: {}}\n")
			s.agent()
			built := s.build(attack.BuildLiar)
			share := s.hold("u2", "256Mi", "--memory", "1Gi", "--name", "share")
			hog := s.start("u4", true, "gpubench", "hold", "--bytes", "4Gi")
			forge := append([]string{"divvy", "run", "--memory", "2Gi", "--name", "forger", "--"},
				attack.Lie(built, "forge", gib, s.inner(hog.pid()), s.inner(share.pid()))...)
			forger := s.start("u1", true, forge...)
			s.lie(forger)
			own := s.start("u1", false, "gpubench", "hold", "--bytes", "1Gi")
			s.eventually("the hog is listed", func() bool {
				return strings.Contains(s.ok("u5", "divvy", "ls"), "of u4 (gpubench) uses")
			})
			if answer == "kill" {
				if status := own.wait(); status != 128+9 {
					t.Errorf("the listed user's process without a share ended with %d", status)
				}
			} else if status := own.end(); status != 0 {
				t.Errorf("the forger's process without a share ended with %d", status)
			}
			s.ok("u1", "divvy", "stop", "--grace", "0s", "forger")
			for name, p := range map[string]*program{"the hog": hog, "the share": share} {
				if status := p.end(); status != 0 {
					t.Errorf("%s ended with %d", name, status)
				}
			}
			forger.wait()
			s.eventually("all shares have ended", func() bool { return len(s.list().Tenants) == 0 })
		})
	}
}
