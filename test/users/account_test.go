package users

import (
	"strings"
	"testing"
)

// A user who is renamed or deleted while their share runs can go on with it, within the
// limits that count now, and root finds it; an agent that starts knows the new name.
func TestAccountsChangeWhileSharesRun(t *testing.T) {
	s := newServer(t)
	s.write("/etc/divvy/agent.yaml", head+"others: {memory: 4Gi}\ngroups: {students: {memory: 6Gi}}\n")
	agent := s.agent()
	for user, name := range map[string]string{"u1": "deleted", "u2": "renamed", "u3": "successor"} {
		s.hold(user, "256Mi", "--memory", "1Gi", "--name", name)
	}
	s.asRoot("sh", "-c", `sed -i '/^u1:/d; s/^u2:/ada:/; s/^u3:/u2:/' /etc/passwd
sed -i '/^u1:/d; s/u1,u2,u3/ada,u2/; s/^u2:/ada:/' /etc/group`)
	as := func(uid string, args ...string) outcome {
		return s.run("root", append([]string{"setpriv", "--reuid", uid, "--regid", uid, "--clear-groups", "--"}, args...)...)
	}
	well := func(o outcome) {
		t.Helper()
		if o.status != 0 {
			t.Errorf("exit status %d, %s", o.status, o.err)
		}
	}
	well(as("2001", "divvy", "set", "deleted", "--memory", "2Gi"))
	well(as("2002", "divvy", "set", "renamed", "--memory", "2Gi"))
	for uid, most := range map[string]string{"2001": "at most 4Gi", "2002": "at most 6Gi"} { // one is in no group any more
		if o := as(uid, "divvy", "run", "--memory", "7Gi", "--", "true"); o.status != 125 || !strings.Contains(o.err, most) {
			t.Errorf("user %s: %+v", uid, o)
		}
	}
	agent.kill(9)
	s.agent()
	list := s.list()
	for name, user := range map[string]string{"deleted": "u1", "renamed": "ada", "successor": "u2"} {
		if _, there := find(list, user, name); !there {
			t.Errorf("there is no %s/%s: %+v", user, name, list.Tenants)
		}
	}
	well(s.run("root", "divvy", "stop", "u1/deleted"))
	well(as("2002", "divvy", "stop", "ada/renamed"))
	well(as("2003", "divvy", "stop", "successor"))
	s.eventually("all have ended", func() bool { return len(s.list().Tenants) == 0 })
}
