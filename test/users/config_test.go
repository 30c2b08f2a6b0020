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
		"users:\n\tu1: {gpus: 1}":                 "/etc/divvy/agent.yaml:4: a tab in the indentation: YAML takes only spaces there",
		"users:\n  u1: {}\n  u1: {}":              "/etc/divvy/agent.yaml:5: users.u1: given twice",
		"users:\n  u1:\n    gpus: -1":             `/etc/divvy/agent.yaml:5: users.u1.gpus: "-1" is not a whole number from 1 on`,
		"users:\n  u1:\n    memory: 8GB":          `/etc/divvy/agent.yaml:5: users.u1.memory: invalid amount of memory "8GB"`,
		"users:\n  u1:\n    time: 3d":             `/etc/divvy/agent.yaml:5: users.u1.time: "3d" is not a duration such as 90m or 72h`,
		"others: {memory: 100Mi}":                 "/etc/divvy/agent.yaml:3: others.memory: 100Mi leaves nothing to a program: the context of one process takes 404Mi of a GPU",
		"defaultMemory: 1%":                       "/etc/divvy/agent.yaml:3: defaultMemory: 1% leaves nothing to a program",
		"others: {time: 500ms}":                   `/etc/divvy/agent.yaml:3: others.time: "500ms" is too short: give at least 1s`,
		"idle: {after: 1s}":                       `/etc/divvy/agent.yaml:3: idle.after: "1s" is too short: give at least 5s`,
		"backends: {timeslice: [8]}":              "/etc/divvy/agent.yaml:3: backends.timeslice[0]: this machine has no GPU 8",
		"overcommit: {groups: [wheels]}":          `/etc/divvy/agent.yaml:3: overcommit.groups[0]: there is no group "wheels"`,
	} {
		s.write("/etc/divvy/agent.yaml", head+text+"\n")
		s.refused("root", []string{says}, "divvy", "agent")
	}
	s.write("/etc/divvy/agent.yaml", strings.Replace(head, "v1alpha1", "v1beta1", 1))
	s.refused("root", []string{`agent.yaml:1: apiVersion: "divvy.dev/v1beta1" is not what this version of Divvy reads`}, "divvy", "agent")
	for text, says := range map[string]string{
		"":                      "agent.yaml: the file is empty",
		"# all commented out\n": "agent.yaml: the file is empty",
		"outside: kill\n":       "agent.yaml:1: apiVersion: missing: write divvy.dev/v1alpha1",
		"kind: AgentConfig\n":   "agent.yaml:1: apiVersion: missing",
	} {
		s.write("/etc/divvy/agent.yaml", text)
		s.refused("root", []string{says}, "divvy", "agent")
	}
	s.write("/opt/good.yaml", head+"outside: kill\nusers: {u1: {memory: 48Gi, gpus: 2}}\n")
	for spoil, says := range map[string]string{
		"mkdir $f":                         "is a directory: a configuration is a file",
		"mkfifo $f":                        "is not a regular file",
		"ln -s /opt/none.yaml $f":          "is a link to /opt/none.yaml, which does not exist",
		"install -m 664 /opt/good.yaml $f": "others can write to it: run chmod go-w",
		"install -m 646 /opt/good.yaml $f": "others can write to it: run chmod go-w",
		"install -o u1 /opt/good.yaml $f":  "belongs to user u1, who could change it: run chown root",
		"install -o u1 /opt/good.yaml /opt/u1.yaml; ln -s /opt/u1.yaml $f": "belongs to user u1, who could change it: run chown root",
	} {
		s.asRoot("sh", "-c", "f=/etc/divvy/agent.yaml; rm -rf $f; "+spoil)
		s.refused("root", []string{"read the agent's configuration: /etc/divvy/agent.yaml: " + says}, "divvy", "agent")
		if o := s.run("u2", "divvy", "doctor"); !strings.Contains(o.out, "fail  agent configuration: ") || !strings.Contains(o.out, says) {
			t.Errorf("%s: doctor says\n%s", spoil, o.out)
		}
	}
	s.asRoot("sh", "-c", "rm -rf /etc/divvy/agent.yaml /run/divvy")
	s.refused("root", []string{"read the agent's configuration", "no such file"}, "divvy", "agent", "--config", "/etc/divvy/none.yaml")

	// A good one elsewhere is read instead of the faulty one.
	s.write("/etc/divvy/agent.yaml", head+"outside: punish\n")
	s.asRoot("ln", "-s", "good.yaml", "/opt/link.yaml") // as a cluster mounts it
	s.agent("--config", "/opt/link.yaml")
}
