package users

import (
	"strings"
	"syscall"
	"testing"
)

// doctor finds a configuration that the agent has not read, which holds nobody to anything,
// and judges by the file that the agent has read.
func TestDoctorFindsAConfigurationThatIsNotInForce(t *testing.T) {
	s := newServer(t)
	says := func(words ...string) {
		t.Helper()
		out := s.run("u1", "divvy", "doctor").out
		for _, each := range words {
			if !strings.Contains(out, each) {
				t.Errorf("doctor does not say %q:\n%s", each, out)
			}
		}
	}
	agent := s.agent()
	s.write("/etc/divvy/agent.yaml", head+"users: {u1: {memory: 16Gi}}\n")
	says("warn  agent configuration: /etc/divvy/agent.yaml is not in force: the agent started without it", "→ ask an administrator to start the agent again")
	agent.kill(syscall.SIGTERM)
	agent = s.agent()
	says("ok    agent configuration: /etc/divvy/agent.yaml\n", "ok    your rights: at most 16Gi of memory")
	s.write("/etc/divvy/agent.yaml", head+"users: {u1: {memory: 32Gi}}\n")
	says("warn  agent configuration: /etc/divvy/agent.yaml is not in force: the agent started with another content")
	s.asRoot("rm", "/etc/divvy/agent.yaml")
	says("warn  agent configuration: /etc/divvy/agent.yaml, with which the agent started, is gone")
	agent.kill(syscall.SIGTERM)
	s.write("/opt/other.yaml", head+"users: {u1: {memory: 8Gi}}\n")
	s.write("/etc/divvy/agent.yaml", head+"users: {u1: {memory: 32Gi}}\n")
	s.agent("--config", "/opt/other.yaml")
	says("ok    agent configuration: /opt/other.yaml\n", "ok    your rights: at most 8Gi of memory")
}

// An agent that takes up a GPU which was left out goes on with the configuration with which
// it started, also if the file has become faulty meanwhile.
func TestConfigurationIsReadOnce(t *testing.T) {
	s := newServer(t)
	inject := func(args ...string) {
		s.asRoot(append([]string{"env", "DIVVY_RUNDIR=/opt/gpus", "divvy", "simgpu", "inject", "gpus"}, args...)...)
	}
	inject("--gpu", "5", "--call", "silent")
	s.write("/etc/divvy/agent.yaml", head+"users: {u1: {memory: 4Gi}}\n")
	agent := s.agent()
	if left := s.list().LeftOut; len(left) != 1 {
		t.Fatalf("left out are %v", left)
	}
	s.write("/etc/divvy/agent.yaml", head+"users: {u1: {memory: 16Gi}}\nfault: yes\n")
	inject("--clear")
	s.eventually("the GPU is served", func() bool {
		list, err := s.List(t.Context()) // while it starts again nobody answers
		return strings.Contains(agent.said.String(), "starts again to serve") && err == nil && len(list.GPUs) == 8 && s.run("u1", "divvy", "ls").status == 0
	})
	s.refused("u1", []string{"at most 4Gi"}, "divvy", "run", "--memory", "8Gi", "--", "true")
}
