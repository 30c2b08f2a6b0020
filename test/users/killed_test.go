package users

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Whoever asks an agent that is killed before it answers asks the next one: the command
// runs, in one share.
func TestKilledWhileCreating(t *testing.T) {
	s := newServer(t)
	agent := s.agent()
	up := filepath.Join(s.root, "home/u1/up")
	for n := range 10 {
		run := s.start("u1", false, "divvy", "run", "--memory", "13Gi", "--gpu", "0", "--", "sh", "-c", "touch up; read x")
		// The moments are spread over what creating takes; that is all that time decides.
		time.Sleep(time.Duration(n) * 12 * time.Millisecond)
		agent.kill(syscall.SIGKILL)
		agent = s.agent()
		s.eventually("the command runs", func() bool {
			_, err := os.Stat(up)
			stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", run.cmd.Process.Pid))
			if err != nil && strings.Contains(string(stat), ") Z ") {
				t.Fatalf("after %d: exit status %d, %s", n, run.wait(), run.said)
			}
			return err == nil
		})
		list := s.list()
		if len(list.Tenants) != 1 || list.GPUs[0].Granted != 13*gib || list.Tenants[0].Fault != "" {
			t.Errorf("after %d: %+v", n, list.Tenants)
		}
		run.end()
		t.Logf("round %d: %s", n, run.said)
		s.eventually("the share has ended", func() bool { return len(s.list().Tenants) == 0 })
		s.asRoot("rm", "/home/u1/up")
	}
}
