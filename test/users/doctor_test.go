package users

import (
	"strings"
	"testing"
)

// doctor finds what keeps several users of one server from what they expect. Other faults
// of theirs are found in the tests that make them.
func TestDoctorOnAServer(t *testing.T) {
	s := newServer(t)
	says := func(user string, words ...string) {
		t.Helper()
		o := s.run(user, "divvy", "doctor")
		for _, each := range words {
			if !strings.Contains(o.out, each) {
				t.Errorf("%s: doctor does not say %q:\n%s", user, each, o.out)
			}
		}
	}
	s.hold("u1", "1Gi", "--gpu", "2", "--memory", "8Gi", "--name", "train")
	says("u2", "warn  GPU held: GPU 2", "by the agent of user u1, process ")
	s.write("/etc/divvy/agent.yaml", head+"overcommit: {users: [u3]}\nusers: {u1: {memory: 16Gi, gpus: 2}}\n")
	says("u2", "fail  agent: the system agent is away, and has not run since this machine started")
	says("u1", "fail  agent: an own agent (pid ", "of u1 serves", "grants no more")
	s.agent()
	says("u2", "ok    agent: pid ", "ok    your rights: no limits; you may not use --overcommit: neither you nor a group of yours is listed",
		"warn  share u1/train: it was taken over from its user's own agent and is co-operative", "→ start its command again")
	says("u1", "ok    your rights: at most 16Gi of memory, 2 GPUs; you may not use --overcommit")
	says("u3", "ok    your rights: no limits; you may use --overcommit")
	s.hold("u3", "1Gi", "--gpu", "2", "--memory", "20Gi", "--overcommit", "--name", "over")
	says("u2", "warn  GPU 2: its shares add up to more than it has: 28Gi of 23.4Gi")
	s.asRoot("env", "DIVVY_RUNDIR=/opt/gpus", "divvy", "simgpu", "inject", "gpus", "--gpu", "5", "--call", "silent")
	s.eventually("the silent GPU is found", func() bool {
		out := s.run("u2", "divvy", "doctor").out
		return strings.Contains(out, "warn  GPU 5: it takes no new shares: ") && strings.Contains(out, "does not answer about GPU 5")
	})
	s.asRoot("env", "DIVVY_RUNDIR=/opt/gpus", "divvy", "simgpu", "inject", "gpus", "--clear")
}

// A run directory that is a plain file is named to everybody, with what they can do.
func TestRunDirectoryIsAFile(t *testing.T) {
	s := newServer(t)
	s.asRoot("touch", "/run/divvy")
	for user, remedy := range map[string]string{"root": "/run/divvy is not a directory: remove it", "u1": "/run/divvy is not a directory: ask an administrator to remove it"} {
		for _, command := range [][]string{{"run", "--memory", "1Gi", "--", "true"}, {"ls"}, {"stop", "train"}} {
			s.refused(user, []string{remedy}, append([]string{"divvy"}, command...)...)
		}
		if o := s.run(user, "divvy", "doctor"); o.status != 1 || !strings.Contains(o.out, "fail  system run directory: /run/divvy is not a directory") {
			t.Errorf("%s: doctor says\n%s", user, o.out)
		}
	}
}
