package users

import (
	"strings"
	"syscall"
	"testing"
)

// Every user may have a share of backend remote of a system agent. Its command reaches neither the driver nor the pages of
// anybody's share, also not by other processes of its user, and its limit is that of any share.
func TestRemoteOfUsers(t *testing.T) {
	s := newServer(t, "driver.cuda=12.4")
	s.agent()
	neighbour := s.hold("u2", "1Gi", "--memory", "2Gi", "--name", "beside")
	held := s.hold("u1", "1Gi", "--backend", "remote", "--memory", "2Gi", "--name", "apart")
	l := s.list()
	apart, _ := find(l, "u1", "apart")
	beside, _ := find(l, "u2", "beside")
	if len(apart.Shares) != 1 || apart.Shares[0].Backend != "remote" || apart.Shares[0].UUID != beside.Shares[0].UUID || apart.Shares[0].Used < gib {
		t.Errorf("shares %+v and %+v", apart.Shares, beside.Shares)
	}
	if len(l.Outside) > 0 {
		t.Errorf("processes without a share: %+v", l.Outside)
	}
	if o := s.run("u1", "divvy", "run", "--backend", "remote", "--memory", "1Gi", "--", "gpubench", "alloc", "--bytes", "256Mi", "--count", "9"); !strings.Contains(o.out, "CUDA_ERROR_OUT_OF_MEMORY") || !strings.Contains(o.out, `"allocations":2,`) {
		t.Errorf("past the limit: %+v", o)
	}
	// What it looks for lies in the directory of shares. Its own has the client alone, and by processes outside nothing is seen.
	const look = `ls "$1"; ls "$1"/*; cat "$1"/*/state; for p in /proc/[0-9]*; do ls -d "$p/root$1"/*/state; done 2>/dev/null; true`
	place := strings.TrimSuffix(apart.Dir, "/"+apart.ID)
	looked := func(flags ...string) outcome {
		t.Helper()
		args := append(append([]string{"divvy", "run", "--memory", "1Gi"}, flags...), "--", "sh", "-c", look, "sh", place)
		return s.run("u1", args...)
	}
	if o := looked(); !strings.Contains(o.out, "/state") || !strings.Contains(o.out, beside.ID) {
		t.Errorf("the command of another share sees no pages, so this test finds nothing:\n%s\n%s", o.out, o.err)
	}
	if o := looked("--backend", "remote"); strings.Contains(o.out, apart.ID) || strings.Contains(o.out, beside.ID) || strings.Contains(o.out, "/state") || !strings.Contains(o.out, "client") {
		t.Errorf("the command sees:\n%s\n%s", o.out, o.err)
	}
	held.end()
	neighbour.end()
	s.eventually("the shares are gone", func() bool { return len(s.list().Tenants) == 0 })
}

// A command of backend remote cannot change its share: neither by a connection to the agent of its own, nor by the one that
// `divvy run` left it, nor by a child or in a user namespace below. Its user can, from outside.
func TestRemoteCannotBeChangedFromWithin(t *testing.T) {
	s := newServer(t, "driver.cuda=12.4")
	s.agent()
	const inherited = `import json, os, socket
asked = json.dumps({"id": 77, "method": "set", "params": {"tenant": "apart", "memory": "20Gi"}}).encode() + b"\n"
for fd in map(int, os.listdir("/proc/self/fd")):
    try:
        with socket.socket(fileno=os.dup(fd)) as s:
            if s.getpeername() == "/run/divvy/agent.sock":
                s.settimeout(60)
                s.sendall(asked)
                print("inherited", s.recv(65536).decode())
    except OSError:
        pass`
	const script = `divvy set apart --memory 20Gi; unshare -Ur divvy set apart --memory 20Gi
python3 -c "$0"; (sleep 0.01; python3 -c "$0"); exec gpubench alloc --bytes 1Gi --count 5`
	o := s.run("u1", "divvy", "run", "--backend", "remote", "--memory", "2Gi", "--name", "apart", "--", "sh", "-c", script, inherited)
	if !strings.Contains(o.out, `"allocations":1,`) || strings.Count(o.out, "inherited") != 2 || strings.Count(o.out+o.err, "outside of shares") != 4 {
		t.Errorf("the command changes its share: %+v", o)
	}
	held := s.hold("u1", "1Gi", "--backend", "remote", "--memory", "2Gi", "--name", "outside")
	for _, user := range []string{"u1", "root"} {
		name := map[string]string{"u1": "outside", "root": "u1/outside"}[user]
		if o := s.run(user, "divvy", "set", name, "--memory", "3Gi"); o.status != 0 {
			t.Errorf("%s from outside: %+v", user, o)
		}
	}
	held.end()
}

// A share of backend remote goes on while agents come and go: that of its user, a system agent that takes it over, and the
// one after that. All of them know what it is, and change and end it.
func TestRemoteOutlivesAgents(t *testing.T) {
	s := newServer(t, "driver.cuda=12.4")
	held := s.hold("u1", "1Gi", "--backend", "remote", "--gpu", "0", "--memory", "2Gi", "--name", "apart")
	whole := func(when string, limit uint64) {
		t.Helper()
		apart, _ := find(s.list(), "u1", "apart")
		if len(apart.Shares) != 1 || apart.Shares[0].Backend != "remote" || apart.Shares[0].Limit != limit || apart.Shares[0].Used < gib {
			t.Errorf("%s: %+v", when, apart.Shares)
		}
	}
	agent := s.agent()
	s.eventually("the share is taken over", func() bool { return len(s.list().Tenants) == 1 })
	whole("taken over", 2*gib)
	beside := s.hold("u2", "1Gi", "--memory", "2Gi", "--gpu", "0", "--name", "beside")
	agent.kill(syscall.SIGKILL)
	s.agent()
	s.eventually("the shares are found again", func() bool { return len(s.list().Tenants) == 2 })
	whole("found again", 2*gib)
	s.ok("u1", "divvy", "set", "apart", "--memory", "3Gi")
	whole("changed", 3*gib)
	if l := s.list(); len(l.Outside) > 0 {
		t.Errorf("processes without a share: %+v", l.Outside)
	}
	s.ok("u1", "divvy", "stop", "apart")
	held.end()
	beside.end()
	s.eventually("the shares are gone", func() bool { return len(s.list().Tenants) == 0 })
}
