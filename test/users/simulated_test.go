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
	if out := s.ok("u2", "divvy", "topo"); !strings.Contains(out, "GPU7") {
		t.Errorf("u2 sees of the machine\n%s", out)
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

// What is done to a machine that serves all users is done by root alone.
func TestFaultsOfASharedMachine(t *testing.T) {
	s := newBareServer(t)
	s.agent("--simgpu", "a800x8")
	for _, act := range [][]string{
		{"inject", "a800x8", "--xid", "79"}, {"inject", "a800x8", "--clear"}, {"stop", "a800x8", "--force"},
		{"slice", "a800x8", "--of", "1", "--to", "1ms"}, {"clock", "a800x8", "--by", "1ms"},
	} {
		s.refused("u1", []string{"a800x8 belongs to root: only they and root can do this"}, append([]string{"divvy", "simgpu"}, act...)...)
	}
	names := func() outcome { return s.run("u1", "divvy", "simgpu", "exec", "a800x8", "--", "gpubench", "nvml") }
	if o := names(); o.status != 0 {
		t.Fatalf("without a fault: %+v", o)
	}
	for _, gpu := range []string{"0", "7"} {
		s.asRoot("divvy", "simgpu", "inject", "a800x8", "--gpu", gpu, "--call", "nvmlDeviceGetMemoryInfo", "--return", "999")
	}
	s.asRoot("divvy", "simgpu", "inject", "a800x8", "--gpu", "0", "--clear")
	if o := names(); o.status == 0 {
		t.Errorf("GPU 7 has a fault: %+v", o)
	}
	s.asRoot("divvy", "simgpu", "inject", "a800x8", "--clear")
	if o := names(); o.status != 0 {
		t.Errorf("after --clear: %+v", o)
	}
	for _, user := range []string{"u1", "root"} {
		if o := s.run(user, "divvy", "ls", "--simgpu", "a800x8"); o.status != 0 || !strings.Contains(o.out, "Simulated machine a800x8, system agent") {
			t.Errorf("%s, ls --simgpu: %+v", user, o)
		}
	}
}

// An agent that does not come to serve leaves no machine behind that it started, and
// stops none that was there.
func TestRefusedAgentLeavesNoMachine(t *testing.T) {
	s := newBareServer(t)
	s.write("/etc/divvy/agent.yaml", head+"outside: punish\n")
	s.refused("root", []string{"outside:"}, "divvy", "agent", "--simgpu", "t4")
	s.asRoot("sh", "-c", "! ls -d /run/divvy/simgpu/t4")
	s.asRoot("divvy", "simgpu", "start", "t4") // in root's run directory
	s.refused("root", []string{"outside:"}, "divvy", "agent", "--simgpu", "t4")
	s.asRoot("ls", "-d", "/run/divvy/simgpu/t4")
	s.write("/etc/divvy/agent.yaml", head)
	s.agent("--simgpu", "t4")
	s.refused("root", []string{"already runs"}, "divvy", "agent", "--simgpu", "a800x8")
	s.asRoot("sh", "-c", "! ls -d /run/divvy/simgpu/a800x8")
}
