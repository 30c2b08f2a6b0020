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
	up := filepath.Join(s.Root, "home/u1/up")
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

// Whoever ends a share by an agent that is killed meanwhile asks the next one, which ends it.
func TestKilledWhileStopping(t *testing.T) {
	s := newServer(t)
	agent := s.agent()
	// It ends at the second SIGTERM.
	const stubborn = `n=0; trap 'n=$((n + 1)); echo $n >told; [ $n -lt 2 ] || exit 0' TERM; echo up; while :; do sleep 1; done`
	run := s.start("u1", true, "divvy", "run", "--memory", "1Gi", "--name", "job", "--", "sh", "-c", stubborn)
	stop := s.start("u1", false, "divvy", "stop", "--grace", "5m", "job")
	s.eventually("it was told to end", func() bool {
		text, err := os.ReadFile(filepath.Join(s.Root, "home/u1/told"))
		return err == nil && strings.TrimSpace(string(text)) == "1"
	})
	agent.kill(syscall.SIGKILL)
	s.agent()
	if status := stop.wait(); status != 0 || !strings.Contains(stop.said.String(), "asking the next one") {
		t.Errorf("stop: exit status %d, %s", status, stop.said)
	}
	if list := s.list(); len(list.Tenants) != 0 {
		t.Errorf("left are %+v", list.Tenants)
	}
	if status := run.wait(); status != 0 {
		t.Errorf("the command ended with %d", status)
	}
}
