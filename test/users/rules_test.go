package users

import (
	"strings"
	"syscall"
	"testing"

	"github.com/divvy-gpu/divvy/internal/agent/control"
)

// sleeper is a share of a user whose program uses no GPU and never ends by itself.
func (s *server) sleeper(user, name string, command ...string) *program {
	s.t.Helper()
	if len(command) == 0 {
		command = []string{"sleep", "infinity"}
	}
	return s.start(user, false, append([]string{"divvy", "run", "--memory", "1Gi", "--name", name, "--"}, command...)...)
}

// told reports whether the agent tells all users something about a share.
func (s *server) told(kind control.EventKind, user, share, words string) bool {
	for _, e := range s.list().Events {
		if e.Kind == kind && e.User == user && e.Tenant == share && strings.Contains(e.Text, words) {
			return true
		}
	}
	return false
}

// A share ends when the time that its user may have is over, also one whose program
// ignores SIGTERM, and its user is told why. Root's shares and those of users without a
// limit go on, and a share's end is announced.
func TestTimeLimit(t *testing.T) {
	s := newServer(t)
	s.write("/etc/divvy/agent.yaml", head+"users: {u1: {time: 5s}, u2: {time: 8s}, u3: {time: 1000h}}\n")
	s.agent()
	s.sleeper("root", "train")
	s.sleeper("u4", "train")
	s.sleeper("u3", "train")
	s.eventually("these shares run", func() bool { return len(s.list().Tenants) == 3 })
	short := s.sleeper("u1", "train")
	stubborn := s.sleeper("u2", "train", "sh", "-c", `trap "" TERM; while :; do sleep 1; done`)
	if status := short.wait(); status != 128+int(syscall.SIGTERM) {
		t.Errorf("the share whose time is over ended with %d, %s", status, short.said)
	}
	if status := stubborn.wait(); status != 128+int(syscall.SIGKILL) {
		t.Errorf("the share that ignores SIGTERM ended with %d, %s", status, stubborn.said)
	}
	s.eventually("the others are left", func() bool { return len(s.list().Tenants) == 3 })
	for user, limit := range map[string]string{"u1": "5s", "u2": "8s"} {
		if !s.told(control.EventLimit, user, "train", "its time is over: the administrator's limit is "+limit) {
			t.Errorf("%s is not told why: %+v", user, s.list().Events)
		}
		out, want := map[string]*program{"u1": short, "u2": stubborn}[user].said.String(), "divvy: share train is ended: its time is over: the administrator's limit is "+limit+"\n"
		if strings.Count(out, want) != 1 {
			t.Errorf("%s is not told where the program writes: %s", user, out)
		}
		if out := s.ok(user, "divvy", "ls"); !strings.Contains(out, "ended "+user+"/train: its time is over") {
			t.Errorf("%s is not told why:\n%s", user, out)
		}
	}
	for _, user := range []string{"root", "u4", "u3"} {
		tenant, there := find(s.list(), user, "train")
		if !there || (tenant.Until != nil) != (user == "u3") {
			t.Errorf("the share of %s: %+v", user, tenant)
		}
	}
	if out := s.ok("u3", "divvy", "ls"); !strings.Contains(out, "share train of u3 ends at ") {
		t.Errorf("the end is not announced:\n%s", out)
	}
}

// A share that uses no GPU ends after the time that the administrator sets, or is
// reported; one that uses a GPU does neither. Root's shares are no exception: the GPU is
// idle whosever share holds it.
func TestIdleShares(t *testing.T) {
	s := newServer(t)
	s.write("/etc/divvy/agent.yaml", head+"idle: {after: 5s, action: end}\n")
	agent := s.agent()
	var busy *program
	s.eventually("it computes", func() bool {
		if busy == nil || stateOf(busy.cmd.Process.Pid) == "Z" { // on a busy machine it may have been idle for too long before it began
			busy = s.start("u3", false, "divvy", "run", "--memory", "2Gi", "--name", "busy", "--", "gpubench", "spin", "--count", "1", "--ns", "3600000000000")
		}
		tenant, there := find(s.list(), "u3", "busy")
		return there && tenant.Shares[0].Time != nil && tenant.Shares[0].Time.Percent != nil && *tenant.Shares[0].Time.Percent > 0
	})
	for user, p := range map[string]*program{"u1": s.sleeper("u1", "notebook"), "root": s.sleeper("root", "notebook")} {
		if status := p.wait(); status != 128+int(syscall.SIGTERM) {
			t.Errorf("the idle share of %s ended with %d, %s", user, status, p.said)
		}
		if !s.told(control.EventLimit, user, "notebook", "which the administrator allows for 5s") {
			t.Errorf("%s is not told why: %+v", user, s.list().Events)
		}
	}
	agent.kill(syscall.SIGTERM)
	s.write("/etc/divvy/agent.yaml", head+"idle: {after: 5s, action: report}\n")
	s.agent()
	s.sleeper("u1", "notebook")
	s.eventually("the idle share is reported", func() bool { return s.told(control.EventIdle, "u1", "notebook", "it has used no GPU for") })
	if out := s.ok("u2", "divvy", "ls"); !strings.Contains(out, "! share notebook of u1 has used no GPU since ") {
		t.Errorf("ls does not say so:\n%s", out)
	}
	if tenant, there := find(s.list(), "u3", "busy"); !there || tenant.Idle != nil {
		t.Errorf("the share that computes: %+v, events %+v", tenant, s.list().Events)
	}
	busy.kill(syscall.SIGKILL)
}
