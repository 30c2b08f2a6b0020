package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/nvml"
	"github.com/divvy-gpu/divvy/internal/page"
	"github.com/divvy-gpu/divvy/internal/process"
	"github.com/divvy-gpu/divvy/internal/tenantdir"
)

func (n *node) config(created *control.Created) page.Config {
	n.t.Helper()
	c, err := page.ReadConfig(tenantdir.Dir(created.Tenant.Dir).Config())
	if err != nil {
		n.t.Fatal(err)
	}
	return c
}

// Stop ends the asker and its children, also those that ignore SIGTERM.
func TestStop(t *testing.T) {
	for name, script := range map[string]string{
		"willing":   "sleep 1000 & sleep 1000 & wait",
		"unwilling": `trap "" TERM; sleep 1000 & while :; do wait; sleep 1000; done`,
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			c := n.settings(n.backend)
			var told []string
			c.Tell = func(id process.ID, uid int, line string) error {
				told = append(told, fmt.Sprintf("%d of %d, alive %v: %s", id.PID, uid, id.Alive(), line))
				return errors.New("it takes no line")
			}
			r := n.startAs(c)
			a := n.askerOf(os.Getuid(), exec.Command("sh", "-c", script))
			pid := a.cmd.Process.Pid
			eventually(t, "the children run", func() bool { return len(process.Descendants(pid)) > 0 })
			family := process.Descendants(pid)
			created := n.grant(r, a, ask(gib))
			a.hangUp()
			// A page that names somebody else's process must not get it killed.
			bystander := exec.Command("sleep", "1000")
			if err := bystander.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = bystander.Process.Kill(); _ = bystander.Wait() })
			slot := n.enter(created.Tenant.Dir, 0, bystander.Process.Pid, gib/2)
			n.list(r)
			slot.leave()

			_, err := r.stop(t.Context(), a.peer, control.StopParams{Tenant: created.Tenant.ID, Grace: 300 * time.Millisecond})
			if err != nil {
				t.Fatal(err)
			}
			if !n.gone(r, created)() {
				t.Error("stop answered before the tenant had ended")
			}
			want := fmt.Sprintf("%d of %d, alive true: divvy: share %s is ended: %s stopped it (divvy stop)", pid, os.Getuid(), created.Tenant.Name, process.UserName(os.Getuid()))
			if !slices.Equal(told, []string{want}) {
				t.Errorf("told %q, want %q", told, want)
			}
			for _, id := range family {
				if id.Alive() {
					t.Errorf("process %d is left", id.PID)
				}
			}
			if id, err := process.Find(bystander.Process.Pid); err != nil || !id.Alive() {
				t.Error("a process that was only named in the page was killed")
			}
		})
	}
}

func TestStopRefusesAStrangeGrace(t *testing.T) {
	n := newNode(t)
	r := n.start()
	a := n.asker(os.Getuid())
	created := n.grant(r, a, ask(gib))
	for _, grace := range []time.Duration{-1, time.Hour} {
		if _, err := r.stop(t.Context(), a.peer, control.StopParams{Tenant: created.Tenant.ID, Grace: grace}); control.CodeOf(err) != control.CodeInvalid {
			t.Errorf("grace %s: %v", grace, err)
		}
	}
}

func TestProcessesOutsideAreTold(t *testing.T) {
	n := newNode(t)
	n.interval = 10 * time.Millisecond
	r := n.start()
	a := n.askerOf(os.Getuid(), exec.Command("sh", "-c", "sleep 1000 & wait"))
	created := n.grant(r, a, askOn("0", gib))
	eventually(t, "the child runs", func() bool { return len(process.Descendants(a.cmd.Process.Pid)) > 0 })
	child := process.Descendants(a.cmd.Process.Pid)[0].PID
	inSlot, stranger := n.mapper(tenantdir.Dir(created.Tenant.Dir).State()), n.asker(os.Getuid()).cmd.Process.Pid
	slot := n.enter(created.Tenant.Dir, 0, inSlot, gib/2)
	n.enter(created.Tenant.Dir, 1, stranger, gib/2) // a slot may name anybody
	n.driver.list(nvml.Process{PID: inSlot, Used: 1}, nvml.Process{PID: stranger, Used: 2}, nvml.Process{PID: child, Used: 3}, nvml.Process{PID: 1 << 30})
	want := map[int]string{stranger: "", child: created.Tenant.Name}
	eventually(t, "those outside are listed", func() bool { return len(n.list(r).Outside) == len(want) })
	for _, o := range n.list(r).Outside {
		if tenant, ok := want[o.PID]; !ok || tenant != o.Tenant || o.UUID != firstID || (o.Owner == created.Tenant.User) != (tenant != "") {
			t.Errorf("outside %+v", o)
		}
	}
	slot.leave()
	eventually(t, "one that lost its slot is listed", func() bool { return len(n.list(r).Outside) == 3 })
	n.driver.list()
	eventually(t, "those that left are not", func() bool { return len(n.list(r).Outside) == 0 })
	told := 0
	for _, e := range n.list(r).Events {
		if e.Kind == control.EventOutside {
			told++
		}
	}
	if told != 3 {
		t.Errorf("told %d times: %+v", told, n.list(r).Events)
	}
}

// Stop ends a process that left its share's page and its parents, once it was seen.
func TestStopEndsThoseThatLeft(t *testing.T) {
	n := newNode(t)
	r := n.start()
	a := n.asker(os.Getuid())
	created := n.grant(r, a, ask(gib))
	left, err := process.Find(n.mapper(tenantdir.Dir(created.Tenant.Dir).State()))
	if err != nil || r.memberOf(left) != created.Tenant.ID {
		t.Fatalf("it is of %q, %v", r.memberOf(left), err)
	}
	a.hangUp()
	if _, err := r.stop(t.Context(), a.peer, control.StopParams{Tenant: created.Tenant.ID}); err != nil || left.Alive() {
		t.Errorf("stop left it: %v", err)
	}
}

// A page that names nobody hides nobody: who has it mapped or locked is ended, and nobody
// else of the same user.
func TestStopEndsThoseWhomNoPageNames(t *testing.T) {
	for _, way := range []string{mapFile, lockFile} {
		t.Run(way, func(t *testing.T) {
			n := newNode(t)
			r := n.start()
			a := n.asker(os.Getuid())
			created := n.grant(r, a, ask(gib))
			other := n.grant(r, n.asker(os.Getuid()), ask(gib))
			unnamed, err := process.Find(n.user(way, tenantdir.Dir(created.Tenant.Dir).State()))
			bystander, otherErr := process.Find(n.mapper(tenantdir.Dir(other.Tenant.Dir).State()))
			if err != nil || otherErr != nil {
				t.Fatal(err, otherErr)
			}
			a.hangUp()
			if _, err := r.stop(t.Context(), a.peer, control.StopParams{Tenant: created.Tenant.ID}); err != nil || unnamed.Alive() {
				t.Errorf("stop left it: %v", err)
			}
			if !bystander.Alive() {
				t.Error("stop ended a process of another share")
			}
		})
	}
}

// A share whose page names nobody goes on while somebody has a slot of it locked, and one
// that nobody has locked while a process of it is on the GPU.
func TestAPageThatNamesNobodyEndsNoShare(t *testing.T) {
	for _, way := range []string{mapFile, lockFile} {
		t.Run(way, func(t *testing.T) {
			n := newNode(t)
			n.interval = 10 * time.Millisecond
			r := n.start()
			a := n.asker(os.Getuid())
			created := n.grant(r, a, onFirst(0))
			pid := n.user(way, tenantdir.Dir(created.Tenant.Dir).State())
			if way == mapFile {
				n.driver.list(nvml.Process{PID: pid, Used: 1})
				n.list(r)
			}
			a.hangUp()
			a.kill()
			n.list(r)
			eventually(t, "its holder is gone", func() bool { return !n.list(r).Tenants[0].Held })
			if l := n.list(r); len(l.Tenants) != 1 {
				t.Fatalf("it ended: %+v", l.Events)
			}
			if err := kill(pid); err != nil {
				t.Fatal(err)
			}
			eventually(t, "it has ended", n.gone(r, created))
		})
	}
}

// A process with the number of one that has ended is not that one.
func TestAnotherProcessOfThePidIsNoMember(t *testing.T) {
	n := newNode(t)
	r := n.start()
	a := n.asker(os.Getuid())
	created := n.grant(r, a, onFirst(0))
	r.mu.Lock()
	r.tenants[created.Tenant.ID].Holder.Start++
	r.mu.Unlock()
	id, err := process.Find(a.cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	if got := r.memberOf(id); got != "" {
		t.Errorf("it is of %q", got)
	}
}

// Stop says why a share does not end.
func TestStopNamesWhatRemains(t *testing.T) {
	n := newNode(t)
	r := n.start()
	a := n.asker(os.Getuid())
	created := n.grant(r, a, ask(gib))
	h := &hunt{agent: r.Agent, tenant: r.tenants[created.Tenant.ID], known: map[process.ID]bool{}}
	if got := h.remains(); !strings.Contains(got, "connection to the agent open") {
		t.Errorf("with a connection: %q", got)
	}
	a.hangUp()
	eventually(t, "the connection is closed", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return !h.tenant.connection
	})
	r.mu.Lock()
	h.tenant.fault = "damaged"
	r.mu.Unlock()
	if got := h.remains(); !strings.Contains(got, "whom the agent cannot find") || !strings.HasSuffix(got, "; damaged") {
		t.Errorf("with a damaged page: %q", got)
	}
	id, err := process.Find(a.cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	h.known[id] = true
	if got, want := h.remains(), "process "+strconv.Itoa(id.PID)+" (sleep) goes on after SIGKILL"; !strings.HasPrefix(got, want) {
		t.Errorf("with a process: %q, want %q", got, want)
	}
}

// Whose the processes are on a GPU that another user's agent holds, that agent knows.
func TestProcessesOfAnotherAgentAreNotOutside(t *testing.T) {
	n := newNode(t)
	c := n.settings(n.backend)
	c.Locks = elsewhere{}
	r := n.startAs(c)
	n.driver.list(nvml.Process{PID: n.asker(os.Getuid()).cmd.Process.Pid, Used: gib})
	if l := n.list(r); len(l.Outside) != 0 {
		t.Errorf("outside are %+v", l.Outside)
	}
}

// elsewhere is a machine all GPUs of which another agent holds.
type elsewhere struct{}

func (elsewhere) Take(context.Context, string) error { return os.ErrExist }
func (elsewhere) Give(string)                        {}
func (elsewhere) Has(string) bool                    { return false }
func (elsewhere) Elsewhere(context.Context, string) (string, []string) {
	return "another user's agent holds it", nil
}

// Those that appear after others were killed are stopped first, but not for ever: where somebody appears in each look, they are all
// killed after half of the time.
func TestStopStopsForHalfOfItsTime(t *testing.T) {
	n := newNode(t)
	r := n.start()
	created := n.grant(r, n.asker(os.Getuid()), ask(gib))
	h := &hunt{agent: r.Agent, tenant: r.tenants[created.Tenant.ID], known: map[process.ID]bool{}}
	signalled := map[process.ID]bool{{PID: 1 << 30}: true} // somebody was killed
	appear := func() process.ID {
		cmd := exec.Command("sleep", "1000")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
		id, err := process.Find(cmd.Process.Pid)
		if err != nil {
			t.Fatal(err)
		}
		h.known[id] = true
		return id
	}
	h.stopUntil = time.Now().Add(time.Hour)
	first := appear()
	if left := h.signal(signalled, unix.SIGKILL); !left || signalled[first] {
		t.Errorf("who has just appeared is killed at once: %v", signalled)
	}
	eventually(t, "it is stopped", func() bool { return process.Stopped(first.PID) })
	h.stopUntil = time.Now()
	second := appear()
	if left := h.signal(signalled, unix.SIGKILL); !left || !signalled[first] || !signalled[second] {
		t.Errorf("signalled are %v", signalled)
	}
	eventually(t, "both have ended", func() bool { return !first.Alive() && !second.Alive() })
}
