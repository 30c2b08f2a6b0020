package agent

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/process"
)

// foreign is a command of root's that starts one as another user and waits for it.
const foreign = "setpriv --reuid 4712 --clear-groups sleep 1000 & wait"

// childAs waits for the child of a process that has become a user.
func childAs(t *testing.T, pid, uid int) (child process.ID) {
	t.Helper()
	eventually(t, "the child is another user's", func() bool {
		for _, id := range process.Descendants(pid) {
			if child = id; id.BelongsTo(uid) && !id.BelongsTo(0) {
				return true
			}
		}
		return false
	})
	t.Cleanup(func() { _ = child.Signal(syscall.SIGKILL) })
	return child
}

// Whoever ends a share ends nothing of other users that descends from it.
func TestStopSparesOtherUsers(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root starts processes of other users")
	}
	n := newNode(t)
	r := n.start()
	a := n.askerOf(0, exec.Command("sh", "-c", foreign))
	created := n.grant(r, a, ask(gib))
	child := childAs(t, a.cmd.Process.Pid, 4712)
	if tenant := r.memberOf(child); tenant != "" {
		t.Errorf("another user's process is of %q", tenant)
	}
	a.hangUp()
	if _, err := r.stop(t.Context(), a.peer, control.StopParams{Tenant: created.Tenant.ID}); err != nil {
		t.Error(err)
	}
	_ = a.cmd.Wait() // by the signal
	if !child.Alive() {
		t.Error("another user's process is ended")
	}
}

// A process of another user that a record names as the holder is not signalled, nor does
// anything that descends from it belong to the share.
func TestStopSparesAHolderOfAnotherUser(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root starts processes of other users")
	}
	n := newNode(t)
	r := n.start()
	victim := exec.Command("sh", "-c", "sleep 1000 & wait")
	victim.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 4712, Gid: 4712}}
	a := n.askerOf(4711, victim)
	created := n.grant(r, a, ask(gib))
	eventually(t, "the child runs", func() bool { return len(process.Descendants(victim.Process.Pid)) > 0 })
	child := process.Descendants(victim.Process.Pid)[0]
	if tenant := r.memberOf(child); tenant != "" {
		t.Errorf("another user's process is of %q", tenant)
	}
	h := &hunt{agent: r.Agent, tenant: r.tenants[created.Tenant.ID], known: map[process.ID]bool{}, foreign: map[process.ID]bool{}}
	h.search(t.Context(), true)
	if left := h.signal(map[process.ID]bool{}, syscall.SIGKILL); left {
		t.Error("somebody is waited for who is not signalled")
	}
	if !a.peer.Process.Alive() || !child.Alive() {
		t.Error("another user's processes are ended")
	}
	if says := h.remains(); !strings.Contains(says, "as another user") || !strings.Contains(says, " of 4712") {
		t.Errorf("it says %q", says)
	}
}

// A request on a connection whose maker has ended is granted nothing.
func TestCreateWantsAHolder(t *testing.T) {
	n := newNode(t)
	r := n.start()
	a := n.asker(os.Getuid())
	a.kill()
	if _, err := r.create(t.Context(), a.peer, ask(gib)); control.CodeOf(err) != control.CodeInvalid || !strings.Contains(err.Error(), "has ended") {
		t.Errorf("it gets %v", err)
	}
	if l := n.list(r); len(l.Tenants) != 0 {
		t.Errorf("there are %+v", l.Tenants)
	}
}
