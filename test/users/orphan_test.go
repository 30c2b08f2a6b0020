package users

import (
	"syscall"
	"testing"
)

// `divvy stop` ends also who has left its parents in a share without a mount namespace and
// never used a GPU, whatever user it became in a share of root's, and nobody else who has
// one of the two things that tell it.
func TestStopEndsOrphansWithoutANamespace(t *testing.T) {
	s := newServer(t)
	s.agent()
	const orphan = `(setsid $BECOME sleep 31011 </dev/null >/dev/null 2>&1 &); until pgrep -x -P 1 sleep >/dev/null; do :; done; echo up; read line`
	become := "setpriv --reuid u2 --regid u2 --init-groups "
	bystander := s.start("u2", false, "sleep", "31012")
	for _, c := range []struct{ name, user, become string }{
		{"of the same user", "u1", ""},
		{"without its environment", "u1", "env -i"},
		{"of another user", "root", become},
		{"of another user and a copy of it", "root", become + "unshare --user --map-root-user"},
	} {
		t.Run(c.name, func(t *testing.T) {
			run := s.start(c.user, true, "env", "BECOME="+c.become, "divvy", "run", "--layer", "env", "--memory", "1Gi", "--name", "job", "--", "sh", "-c", orphan)
			defer func() {
				for _, pid := range s.running("sleep", "31011") {
					s.signal(pid, syscall.SIGKILL)
				}
			}()
			job, found := find(s.list(), c.user, "job")
			if !found {
				t.Fatal("there is no share")
			}
			// Who says that they were started in it was not.
			said := s.start("u2", false, "env", "LD_LIBRARY_PATH="+job.Dir, "sleep", "31013")
			s.eventually("those outside the share run", func() bool {
				return len(s.running("sleep", "31012")) == 1 && len(s.running("sleep", "31013")) == 1
			})
			if o := s.run(c.user, "divvy", "stop", "--grace", "0s", "job"); o.status != 0 {
				t.Errorf("stop: exit status %d, %s", o.status, o.err)
			}
			if left := s.running("sleep", "31011"); len(left) > 0 {
				t.Errorf("processes %v go on", left)
			}
			if len(s.running("sleep", "31012")) != 1 || len(s.running("sleep", "31013")) != 1 {
				t.Error("who is outside the share has ended")
			}
			said.kill(syscall.SIGKILL)
			run.wait()
		})
	}
	bystander.kill(syscall.SIGKILL)
}
