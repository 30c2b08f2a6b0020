package users

import (
	"strings"
	"testing"
)

const head = "apiVersion: divvy.dev/v1alpha1\nkind: AgentConfig\n"

// A faulty configuration stops the agent before it serves, with line and field.
func TestFaultyConfigurationStopsTheAgent(t *testing.T) {
	s := newServer(t)
	for text, says := range map[string]string{
		"outside: punish":                         `/etc/divvy/agent.yaml:3: outside: "punish" is not one of report, stop, kill`,
		"misuse: kill":                            "/etc/divvy/agent.yaml:3: misuse: unknown field",
		"users:\n  kim: {gpus: 1}":                `/etc/divvy/agent.yaml:4: users.kim: there is no user "kim"`,
		"groups:\n  staffs: {gpus: 1}":            `/etc/divvy/agent.yaml:4: groups.staffs: there is no group "staffs"`,
		"users: {u1: {}, \"2001\": {}}":           "/etc/divvy/agent.yaml:3: users.2001: names the same user as users.u1",
		"users:\n  u1:\n    memory: -1":           "/etc/divvy/agent.yaml:5: users.u1.memory:",
		"groups:\n  students:\n    gpus: 9":       "/etc/divvy/agent.yaml:5: groups.students.gpus: 9 is more than this machine has, 8",
		"users:\n  u2:\n\n    memory: 200Gi":      "/etc/divvy/agent.yaml:6: users.u2.memory: 200Gi is more than the GPUs of this machine have together",
		"others:\n  cores: 801":                   "/etc/divvy/agent.yaml:4: others.cores: 801 is more than",
		"apiVersion: divvy.dev/v1\noutside: stop": "/etc/divvy/agent.yaml:",
	} {
		s.write("/etc/divvy/agent.yaml", head+text+"\n")
		s.refused("root", []string{says}, "divvy", "agent")
	}
	s.write("/etc/divvy/agent.yaml", strings.Replace(head, "v1alpha1", "v1beta1", 1))
	s.refused("root", []string{`agent.yaml:1: apiVersion: "divvy.dev/v1beta1" is not what this version of Divvy reads`}, "divvy", "agent")
	s.refused("root", []string{"read the agent's configuration", "no such file"}, "divvy", "agent", "--config", "/etc/divvy/none.yaml")

	// A good one elsewhere is read instead of the faulty one.
	s.write("/opt/good.yaml", head+"outside: kill\nusers: {u1: {memory: 48Gi, gpus: 2}}\n")
	s.agent("--config", "/opt/good.yaml")
}
