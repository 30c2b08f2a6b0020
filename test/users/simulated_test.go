package users

import (
	"strings"
	"testing"
)

// Without a GPU a system agent serves a simulated machine to all users, who do nothing
// for it that they would not do on a real one.
func TestSystemAgentOfASimulatedMachine(t *testing.T) {
	s := newBareServer(t)
	s.refused("u1", []string{"driver"}, "divvy", "run", "--memory", "1Gi", "--", "gpubench", "info")
	s.refused("u1", []string{"only root can"}, "divvy", "agent", "--simgpu", "a800x8")
	s.refused("root", []string{`unknown machine "b1000x9"`}, "divvy", "agent", "--simgpu", "b1000x9")
	agent := s.agent("--simgpu", "a800x8")
	for _, user := range []string{"u1", "u2", "root"} {
		if o := s.run(user, "divvy", "run", "--memory", "2Gi", "--", "gpubench", "alloc", "--bytes", "512Mi", "--count", "9"); !strings.Contains(o.out, "CUDA_ERROR_OUT_OF_MEMORY") {
			t.Errorf("%s: %+v", user, o)
		}
		if out := s.ok(user, "divvy", "run", "--layer", "env", "--memory", "2Gi", "--", "gpubench", "info"); !strings.Contains(out, `"devices":[{`) {
			t.Errorf("%s, layer env: %s", user, out)
		}
	}
	s.hold("u1", "1Gi", "--memory", "4Gi", "--name", "train")
	out := s.ok("u2", "divvy", "ls")
	if !strings.Contains(out, "Simulated machine a800x8, system agent") || !strings.Contains(out, "train  u1") {
		t.Errorf("u2 sees\n%s", out)
	}
	// A share outlives the agent, and the next one finds the machine and the share.
	agent.kill(9)
	s.agent("--simgpu", "a800x8")
	if tenant, ok := find(s.list(), "u1", "train"); !ok || tenant.Shares[0].Used < gib {
		t.Errorf("after the agent's death: %+v", tenant)
	}
	s.ok("u1", "divvy", "stop", "train")
	// Outside every share a user is on the same machine, and is named.
	outside := s.start("u3", true, "divvy", "simgpu", "exec", "a800x8", "--", "gpubench", "hold", "--bytes", "256Mi")
	s.eventually("u3 is named", func() bool { return strings.Contains(s.ok("u2", "divvy", "ls"), "of u3 (gpubench) uses") })
	outside.end()
}

// While the agent of a simulated machine is away, who asks for a share waits for it as on
// a real machine, and everybody is told how it was started.
func TestSystemAgentOfASimulatedMachineIsAway(t *testing.T) {
	s := newBareServer(t)
	agent := s.agent("--simgpu", "t4")
	agent.kill(9)
	for user, says := range map[string]string{"root": "start it (`divvy agent --simgpu t4`)", "u1": "ask an administrator to start it (`divvy agent --simgpu t4` as root)"} {
		o := s.run(user, "divvy", "doctor")
		if o.status != 1 || !strings.Contains(o.out, "fail  agent: the system agent is away since") || !strings.Contains(o.out, says) ||
			!strings.Contains(o.out, "ok    driver libraries: the system agent serves the simulated machine t4") {
			t.Errorf("%s: doctor says\n%s", user, o.out)
		}
	}
	waiting := s.start("u1", false, "divvy", "run", "--memory", "1Gi", "--", "gpubench", "info")
	s.agent("--simgpu", "t4")
	if status := waiting.wait(); status != 0 {
		t.Errorf("who asked while the agent was away: exit status %d, %s", status, waiting.said)
	}
}
