package process

import (
	"os"
	"syscall"
	"testing"

	"github.com/divvy-gpu/divvy/internal/process/processtest"
)

// Who started a program is whose it is, whatever it runs as.
func TestOwnerIsWhoStartedIt(t *testing.T) {
	for _, c := range []struct {
		real, effective string
		want            int
	}{{"4711", "0", 4711}, {"0", "4711", 0}, {"4711", "4712", 4711}} {
		if got := Owner(as(t, c.real, c.effective).PID); got != c.want {
			t.Errorf("real %s, effective %s: %d's", c.real, c.effective, got)
		}
	}
	if got := Owner(1 << 30); got != -1 {
		t.Errorf("nobody's process is %d's", got)
	}
}

// Root makes user namespaces for others, so who is in one says nothing.
func TestOwnerInANamespace(t *testing.T) {
	cmd := processtest.Start(t, syscall.CLONE_NEWUSER, "")
	real, _ := users(cmd.Process.Pid)
	if got := Owner(cmd.Process.Pid); got != real && got != os.Getuid() {
		t.Errorf("it is %d's", got)
	}
	if sharesUsers(cmd.Process.Pid) || !sharesUsers(os.Getpid()) || sharesUsers(1<<30) {
		t.Error("who shares our user namespace is not known")
	}
}
