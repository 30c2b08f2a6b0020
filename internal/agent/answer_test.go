package agent

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/agentconfig"
	"github.com/divvy-gpu/divvy/internal/nvml"
	"github.com/divvy-gpu/divvy/internal/process"
)

// processState is the letter of proc_pid_stat(5), Z for a process that is gone.
func processState(pid int) string {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return "Z"
	}
	return string(data[strings.LastIndexByte(string(data), ')')+2])
}

// states waits until processes are in one of the states of a text each.
func states(t *testing.T, want map[int]string) {
	t.Helper()
	for pid, of := range want {
		eventually(t, "process "+strconv.Itoa(pid)+" is one of "+of, func() bool { return strings.Contains(of, processState(pid)) })
	}
}

// as starts a process of another user, which ends with the test.
func (n *node) as(uid int) int {
	n.t.Helper()
	cmd := exec.Command("sleep", "1000")
	if uid != os.Getuid() {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
	}
	return n.askerOf(uid, cmd).cmd.Process.Pid
}

// answering is an agent with an answer that goes to processes of user 4711 too.
func (n *node) answering(answer agentconfig.Outside) *running {
	c := n.settings(n.backend)
	c.Misuse, c.Listed = answer, func(uid int) bool { return uid == 4711 || uid == 999 }
	return n.startAs(c)
}

// Only a share's own processes on its GPU are signalled for what it did.
func TestSharesAreAnswered(t *testing.T) {
	for answer, want := range map[agentconfig.Outside]string{agentconfig.OutsideReport: "SRD", agentconfig.OutsideStop: "T", agentconfig.OutsideKill: "ZX"} {
		t.Run(string(answer), func(t *testing.T) {
			n := newNode(t)
			r := n.answering(answer)
			guilty, innocent, stranger := n.asker(os.Getuid()), n.asker(os.Getuid()), n.asker(os.Getuid())
			created := n.grant(r, guilty, onFirst(0))
			n.grant(r, innocent, onFirst(0))
			n.driver.list(
				nvml.Process{PID: guilty.cmd.Process.Pid}, nvml.Process{PID: innocent.cmd.Process.Pid}, nvml.Process{PID: stranger.cmd.Process.Pid},
				nvml.Process{PID: os.Getpid()}, nvml.Process{PID: os.Getppid()}, nvml.Process{PID: 1}, nvml.Process{PID: 1 << 30},
			)
			signalled := r.answerShare(t.Context(), created.Tenant.ID, firstID)
			if (len(signalled) == 1) != (answer != agentconfig.OutsideReport) {
				t.Errorf("signalled %v", signalled)
			}
			states(t, map[int]string{guilty.cmd.Process.Pid: want, innocent.cmd.Process.Pid: "SRD", stranger.cmd.Process.Pid: "SRD"})
			listed, err := r.Listing(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, one := range listed.Tenants {
				if got := one.Shares[0].Signalled; one.ID == created.Tenant.ID && got != uint64(len(signalled)) || one.ID != created.Tenant.ID && got != 0 {
					t.Errorf("%s: %d processes are counted as signalled", one.ID, got)
				}
			}
			if got := r.answerShare(t.Context(), created.Tenant.ID, otherID); len(got) != 0 {
				t.Errorf("on a GPU where it is not: %v", got)
			}
		})
	}
}

// Those without a share are signalled if their user is listed and no system user.
func TestOutsideIsAnswered(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root starts processes of other users")
	}
	n := newNode(t)
	r := n.answering(agentconfig.OutsideKill)
	sharer := n.asker(os.Getuid())
	n.grant(r, sharer, onFirst(0))
	listed, unlisted, system := n.as(4711), n.as(4712), n.as(999)
	n.driver.list(
		nvml.Process{PID: sharer.cmd.Process.Pid}, nvml.Process{PID: listed}, nvml.Process{PID: unlisted}, nvml.Process{PID: system}, nvml.Process{PID: os.Getpid()},
	)
	n.list(r)
	states(t, map[int]string{listed: "ZX", unlisted: "SRD", system: "SRD", sharer.cmd.Process.Pid: "SRD"})
}

// What is done to a process without a share is told once, and listed for root while the
// process is there.
func TestAnswerOutsideIsTold(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root starts processes of other users")
	}
	n := newNode(t)
	r := n.answering(agentconfig.OutsideStop)
	pid := n.as(4711)
	n.driver.list(nvml.Process{PID: pid, Used: 3 * gib})
	n.list(r)
	l := n.list(r)
	if len(l.Outside) != 1 || l.Outside[0].Answer != "stopped (SIGSTOP)" {
		t.Errorf("root sees %+v", l.Outside)
	}
	others, err := r.list(t.Context(), control.NewPeer(process.ID{}, 4712, nil, nil), struct{}{})
	if err != nil || len(others.Outside) != 1 || others.Outside[0].Answer != "" {
		t.Errorf("others see %+v, %v", others, err)
	}
	var told []string
	for _, e := range l.Events {
		if strings.Contains(e.Text, "was stopped") && e.PID == pid && e.UUID == firstID && e.User == "4711" {
			told = append(told, e.Text)
		}
	}
	if want := fmt.Sprintf("process %d (sleep) of 4711 was stopped (SIGSTOP): it had 3Gi of GPU 0 without a share", pid); len(told) != 1 || told[0] != want {
		t.Errorf("told %q, want %q", told, want)
	}
}

// A driver that does not answer gets nobody signalled.
func TestNoAnswerWithoutTheDriver(t *testing.T) {
	n := newNode(t)
	c := n.settings(n.backend)
	c.Misuse, c.Driver = agentconfig.OutsideKill, &mute{err: nvml.ErrDriver}
	r := n.startAs(c)
	guilty := n.asker(os.Getuid())
	created := n.grant(r, guilty, onFirst(0))
	if got := r.answerShare(t.Context(), created.Tenant.ID, firstID); len(got) != 0 {
		t.Errorf("signalled %v", got)
	}
	states(t, map[int]string{guilty.cmd.Process.Pid: "SRD"})
}

// A process stays its tenant's when its parents have ended and it has a session of its
// own, if it was seen before; and so does what it starts afterwards.
func TestMembershipOutlivesDescent(t *testing.T) {
	n := newNode(t)
	r := n.start()
	a := n.askerOf(os.Getuid(), exec.Command("sh", "-c", "(setsid sleep 1000 & wait) & sleep 1000 & wait"))
	created := n.grant(r, a, onFirst(0))
	var child, grandchild process.ID
	eventually(t, "the grandchild runs", func() bool {
		for _, id := range process.Descendants(a.cmd.Process.Pid) {
			if parents := process.Ancestors(id.PID); parents[0] != a.cmd.Process.Pid {
				child, _ = process.Find(parents[0])
				grandchild = id
			}
		}
		return grandchild.PID != 0
	})
	if got := r.memberOf(grandchild); got != created.Tenant.ID {
		t.Fatalf("the grandchild is of %q", got)
	}
	if err := child.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = grandchild.Signal(syscall.SIGKILL) }()
	eventually(t, "it has another parent", func() bool { return process.Ancestors(grandchild.PID)[0] != child.PID })
	if got := r.memberOf(grandchild); got != created.Tenant.ID {
		t.Errorf("the orphan is of %q", got)
	}
	a.hangUp()
	a.kill()
	eventually(t, "the tenant has ended", n.gone(r, created))
	if got := r.memberOf(grandchild); got != "" {
		t.Errorf("the orphan is of %q, which has ended", got)
	}
}

// sleepers are the processes below one that have become what they are to be.
func sleepers(pid int) (found []int) {
	for _, id := range process.Descendants(pid) {
		name, _ := os.ReadFile("/proc/" + strconv.Itoa(id.PID) + "/comm")
		if strings.TrimSpace(string(name)) == "sleep" {
			found = append(found, id.PID)
		}
	}
	return found
}

func kill(pid int) error { return syscall.Kill(pid, syscall.SIGKILL) }
