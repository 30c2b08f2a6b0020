package agentconfig

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// lab stands for the accounts of a machine: ada and eve are students, eve is also an
// operator, bob is in no group, and nobody is known as kim.
type lab struct{}

var (
	labUsers  = map[string]int{"root": 0, "ada": 1001, "1001": 1001, "eve": 1002, "bob": 1003, "daemon": 2}
	labGroups = map[string]int{"students": 2001, "operators": 2002}
)

func (lab) User(name string) (int, error)  { return lookUp(labUsers, "user", name) }
func (lab) Group(name string) (int, error) { return lookUp(labGroups, "group", name) }
func (lab) Groups(uid int) ([]int, error) {
	if uid == unreachable {
		return nil, errors.New("the directory does not answer")
	}
	return map[int][]int{1001: {100, 2001}, 1002: {2001, 2002}}[uid], nil
}

// unreachable is a user whose groups nobody can tell.
const unreachable = 1999

func lookUp(of map[string]int, what, name string) (int, error) {
	id, ok := of[name]
	if !ok {
		return 0, fmt.Errorf("there is no %s %q", what, name)
	}
	return id, nil
}

const head = "apiVersion: divvy.dev/v1alpha1\nkind: AgentConfig\n"

func parse(t *testing.T, text string) *Config {
	t.Helper()
	c, err := Parse("agent.yaml", []byte(head+text), lab{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestWithoutAFile(t *testing.T) {
	for _, c := range []*Config{nil, parse(t, "")} {
		if c.Outside() != OutsideReport || c.Idle() != (Idle{}) && c.Idle().After != 0 || !c.DefaultMemory().IsZero() {
			t.Errorf("%v %v %v", c.Outside(), c.Idle(), c.DefaultMemory())
		}
		if c.Limits(1001) != (Limits{}) || c.MayOvercommit(1001) || !c.MayOvercommit(0) || c.Listed(1001) || c.Named(1001) {
			t.Error("a file that says nothing says something of a user")
		}
		if err := c.Check(Machine{}); err != nil {
			t.Error(err)
		}
	}
}

func TestWhatIsSaid(t *testing.T) {
	c := parse(t, `
outside: kill
defaultMemory: 25%
idle: {after: 90m, action: end}
overcommit: {users: [bob], groups: [operators]}
`)
	if c.Outside() != OutsideKill || c.Idle() != (Idle{90 * time.Minute, IdleEnd}) || c.DefaultMemory() != v1alpha1.Percent(25) {
		t.Errorf("%v %v %v", c.Outside(), c.Idle(), c.DefaultMemory())
	}
	for uid, may := range map[int]bool{0: true, 1001: false, 1002: true, 1003: true, 4711: false, unreachable: false} {
		if c.MayOvercommit(uid) != may {
			t.Errorf("user %d may overcommit: %v", uid, !may)
		}
	}
	if c := parse(t, "idle: {after: 1h}"); c.Idle() != (Idle{time.Hour, IdleReport}) {
		t.Errorf("%v", c.Idle())
	}
}

// A user's own entry counts alone, then the most generous group, then the others.
func TestWhoseLimitsCount(t *testing.T) {
	c := parse(t, `
users:
  bob: {memory: 1Gi}
groups:
  students: {memory: 24Gi, gpus: 1, cores: 50, time: 8h, weight: 1}
  operators: {memory: 16Gi, gpus: 4, time: 4h, weight: 5}
others: {gpus: 1}
`)
	students := Limits{Memory: 24 << 30, GPUs: 1, Cores: 50, Time: 8 * time.Hour, Weight: 1}
	both := Limits{Memory: 24 << 30, GPUs: 4, Time: 8 * time.Hour, Weight: 5}
	for uid, want := range map[int]Limits{0: {}, 1001: students, 1002: both, 1003: {Memory: 1 << 30}, 4711: {GPUs: 1}} {
		if got := c.Limits(uid); got != want {
			t.Errorf("user %d: %+v, want %+v", uid, got, want)
		}
	}
	strictest := Limits{Memory: 16 << 30, GPUs: 1, Cores: 50, Time: 4 * time.Hour, Weight: 1}
	if got := c.Limits(unreachable); got != strictest || c.Listed(unreachable) {
		t.Errorf("a user whose groups cannot be asked for: %+v, listed %v", got, c.Listed(unreachable))
	}
	for uid, listed := range map[int]bool{0: false, 1001: true, 1002: true, 1003: true, 4711: false} {
		if c.Listed(uid) != listed || c.Named(uid) != (uid == 1003) {
			t.Errorf("user %d: listed %v, named %v", uid, c.Listed(uid), c.Named(uid))
		}
	}
	own := parse(t, "users: {ada: {}}\ngroups: {students: {gpus: 1}}")
	if own.Limits(1001) != (Limits{}) || !own.Named(1001) {
		t.Errorf("an empty entry of one's own counts alone: %+v", own.Limits(1001))
	}
}

func TestFaults(t *testing.T) {
	for _, test := range []struct{ text, want string }{
		{"", "agent.yaml: the file is empty"},
		{"[]", "agent.yaml:1: a configuration is a mapping of fields"},
		{"a: [", "agent.yaml:1: did not find expected node content"},
		{"a: 1\n", "agent.yaml:1: apiVersion: missing: write divvy.dev/v1alpha1\nagent.yaml:1: kind: missing: write AgentConfig"},
		{"apiVersion: divvy.dev/v1\nkind: AgentConfig\nshares: 3", `agent.yaml:1: apiVersion: "divvy.dev/v1" is not what this version of Divvy reads, which is divvy.dev/v1alpha1`},
		{"apiVersion: divvy.dev/v1alpha1\nkind: WebhookConfig\n", `agent.yaml:2: kind: "WebhookConfig" is not what this version of Divvy reads, which is AgentConfig`},
		{head + "---\n" + head, "agent.yaml: more than one document: a file holds one configuration"},
		{head + "limits: {}", "agent.yaml:3: limits: unknown field; known here: apiVersion, backends, defaultMemory, groups, history, idle, kind, metrics, nicShares, nics, others, outside, overcommit, swapMemory, turnMemory, users, web, workers"},
		{head + "outside: kill\noutside: stop", "agent.yaml:4: outside: given twice"},
		{head + "outside: punish", `agent.yaml:3: outside: "punish" is not one of report, stop, kill`},
		{head + "outside: [kill]", "agent.yaml:3: outside: must be one word of report, stop, kill"},
		{head + "defaultMemory: 0", `agent.yaml:3: defaultMemory: invalid amount of memory "0": it must be greater than zero`},
		{head + "defaultMemory: -4Gi", `agent.yaml:3: defaultMemory: invalid amount of memory "-4Gi": it must be greater than zero`},
		{head + "defaultMemory:", "agent.yaml:3: defaultMemory: must be an amount of memory such as 48Gi; for no limit leave the field out"},
		{head + "idle: {}", "agent.yaml:3: idle.after: missing: say after how long a share is idle, such as 12h"},
		{head + "idle: {after: 4s}", `agent.yaml:3: idle.after: "4s" is too short: give at least 5s`},
		{head + "idle: {after: 1h, action: kill}", `agent.yaml:3: idle.action: "kill" is not one of report, end`},
		{head + "idle: true", "agent.yaml:3: idle: must be a mapping of fields"},
		{head + "users:\n  kim: {gpus: 1}", `agent.yaml:4: users.kim: there is no user "kim"`},
		{head + "users:\n  root: {gpus: 1}", "agent.yaml:4: users.root: root has no limits: leave it out"},
		{head + "users:\n  ada: {}\n  \"1001\": {}", "agent.yaml:5: users.1001: names the same user as users.ada"},
		{head + "users:\n  ada: {}\n  ada: {}", "agent.yaml:5: users.ada: given twice"},
		{head + "users:\n  ada:", "agent.yaml:4: users.ada: must be a mapping of fields"},
		{head + "users: [ada]", "agent.yaml:3: users: must be a mapping of fields"},
		{head + "users:\n  [ada]: {}", "agent.yaml:4: users: a field's name is one word"},
		{head + "users:\n  ada:\n    memory: 50%", `agent.yaml:5: users.ada.memory: "50%": give an amount such as 48Gi: this is the sum of shares that may be on several GPUs`},
		{head + "users:\n  ada:\n    gpus: -1", `agent.yaml:5: users.ada.gpus: "-1" is not a whole number from 1 on`},
		{head + "users:\n  ada:\n    gpus: 0", `agent.yaml:5: users.ada.gpus: "0" is not a whole number from 1 on`},
		{head + "users:\n  ada:\n    cores: 1.5", `agent.yaml:5: users.ada.cores: "1.5" is not a whole number from 1 on`},
		{head + "users:\n  ada:\n    cores: 99999999999999999999", `agent.yaml:5: users.ada.cores: "99999999999999999999" is not a whole number from 1 on`},
		{head + "users:\n  ada:\n    weight: 1001", `agent.yaml:5: users.ada.weight: "1001" is not a whole number from 1 to 1000`},
		{head + "users:\n  ada:\n    time: 3 days", `agent.yaml:5: users.ada.time: "3 days" is not a duration such as 90m or 72h`},
		{head + "users:\n  ada:\n    time: -8h", `agent.yaml:5: users.ada.time: "-8h" is too short: give at least 1s`},
		{head + "others: {time: 999ms}", `agent.yaml:3: others.time: "999ms" is too short: give at least 1s`},
		{head + "users:\n\tada: {}", "agent.yaml:4: a tab in the indentation: YAML takes only spaces there"},
		{head + "users:\n  ada:\n  \tgpus: 1\n", "agent.yaml:5: a tab in the indentation: YAML takes only spaces there"},
		{"# nothing\n", "agent.yaml: the file is empty"},
		{"\n\n", "agent.yaml: the file is empty"},
		{"---\n", "agent.yaml:2: a configuration is a mapping of fields"},
		{"null\n", "agent.yaml:1: a configuration is a mapping of fields"},
		{head + "defaultMemory: 8GB", `agent.yaml:3: defaultMemory: invalid amount of memory "8GB": use a suffix Ki, Mi, Gi, Ti, k, M, G or T, or a percentage such as 50%`},
		{head + "others: {memory: 8 Gi}", `agent.yaml:3: others.memory: invalid amount of memory "8 Gi": write a number and a suffix, such as 4Gi`},
		{head + "others: {memory: .inf}", `agent.yaml:3: others.memory: invalid amount of memory ".inf": use a suffix Ki, Mi, Gi, Ti, k, M, G or T, or a percentage such as 50%`},
		{head + "others: {time: 8}", `agent.yaml:3: others.time: "8" is not a duration such as 90m or 72h`},
		{head + "others: {time: 1d}", `agent.yaml:3: others.time: "1d" is not a duration such as 90m or 72h`},
		{head + "others: {weight: 0}", `agent.yaml:3: others.weight: "0" is not a whole number from 1 to 1000`},
		{head + "others: {cores: 50%}", `agent.yaml:3: others.cores: "50%" is not a whole number from 1 on`},
		{head + "overcommit: {user: [ada]}", "agent.yaml:3: overcommit.user: unknown field: did you mean users?; known here: groups, users"},
		{head + "users:\n  ada:\n    weigth: 1", "agent.yaml:5: users.ada.weigth: unknown field: did you mean weight?; known here: cores, gpus, memory, swapMemory, time, weight"},
		{head + "groups:\n  staff: {gpus: 1}", `agent.yaml:4: groups.staff: there is no group "staff"`},
		{head + "others: {gpus: many}", `agent.yaml:3: others.gpus: "many" is not a whole number from 1 on`},
		{head + "overcommit: [ada]", "agent.yaml:3: overcommit: must be a mapping of fields"},
		{head + "overcommit:\n  users: ada", "agent.yaml:4: overcommit.users: must be a list of users"},
		{head + "overcommit:\n  users: [ada, kim]", `agent.yaml:4: overcommit.users[1]: there is no user "kim"`},
		{head + "overcommit:\n  groups: [operators, operators]", "agent.yaml:4: overcommit.groups[1]: names the same group twice"},
		{head + "overcommit:\n  users: [[]]", "agent.yaml:4: overcommit.users[0]: must be the name of a user"},
		{head + "users: &x {ada: {}}\ngroups: *x", "agent.yaml:4: groups: YAML aliases are not read: write the value"},
		{head + "outside: never\nidle: {after: soon}", "agent.yaml:3: outside: \"never\" is not one of report, stop, kill\nagent.yaml:4: idle.after: \"soon\" is not a duration such as 90m or 72h"},
	} {
		_, err := Parse("agent.yaml", []byte(test.text), lab{})
		if err == nil || err.Error() != test.want {
			t.Errorf("%q:\n got %v\nwant %s", test.text, err, test.want)
		}
		if !errors.Is(err, ErrConfig) {
			t.Errorf("%q: %v is no ErrConfig", test.text, err)
		}
	}
	if _, err := Parse("big", []byte(head+strings.Repeat("#", MaxBytes)), lab{}); err == nil || !strings.Contains(err.Error(), "larger than") {
		t.Errorf("a large file: %v", err)
	}
}

func TestLimitsForPeople(t *testing.T) {
	for want, l := range map[string]Limits{
		"no limits": {}, "at most 1 GPU, 1 core": {GPUs: 1, Cores: 1}, "at most 2 GPUs, 50 cores": {GPUs: 2, Cores: 50},
		"at most 2h for a share": {Time: 2 * time.Hour}, "at most 1h30m for a share": {Time: 90 * time.Minute},
		"at most 1h0m5s for a share": {Time: time.Hour + 5*time.Second}, "at most 10m for a share": {Time: 10 * time.Minute},
		"at most 20s for a share": {Time: 20 * time.Second},
	} {
		if got := l.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestLimitsAboveTheMachine(t *testing.T) {
	machine := Machine{GPUs: 2, Memory: 160 << 30, Largest: 79 << 30}
	if err := parse(t, "defaultMemory: 79Gi\nothers: {memory: 160Gi, gpus: 2, cores: 200}").Check(machine); err != nil {
		t.Errorf("what the machine just has: %v", err)
	}
	c := parse(t, `
defaultMemory: 80Gi
users:
  ada: {memory: 161Gi}
groups:
  students:
    gpus: 3
    cores: 201
others:
  memory: 1Ti
`)
	want := `agent.yaml:4: defaultMemory: 80Gi is more than a GPU of this machine has for tenants, 79Gi
agent.yaml:6: users.ada.memory: 161Gi is more than the GPUs of this machine have together, 160Gi
agent.yaml:9: groups.students.gpus: 3 is more than this machine has, 2
agent.yaml:10: groups.students.cores: 201 is more than the GPUs of this machine have together, 200
agent.yaml:12: others.memory: 1Ti is more than the GPUs of this machine have together, 160Gi`
	if err := c.Check(machine); err == nil || err.Error() != want || !errors.Is(err, ErrConfig) {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
}

// A part of swapMemory is not more than all of it. Where the file does not say how much that is, a flag of the agent may.
func TestSwapMemoryOfAUserIsAPart(t *testing.T) {
	for _, fine := range []string{
		"swapMemory: 64Gi\nothers: {swapMemory: 64Gi}",
		"others: {swapMemory: 64Gi}",
		"swapMemory: 64Gi\nothers: {gpus: 1}",
	} {
		if err := parse(t, fine).Check(Machine{GPUs: 1}); err != nil {
			t.Errorf("%s: %v", fine, err)
		}
	}
	c := parse(t, "swapMemory: 64Gi\nusers:\n  ada: {swapMemory: 65Gi}\nothers: {swapMemory: 1Ti}")
	want := "agent.yaml:5: users.ada.swapMemory: 65Gi is more than all shares have together by swapMemory, 64Gi\n" +
		"agent.yaml:6: others.swapMemory: 1Ti is more than all shares have together by swapMemory, 64Gi"
	if err := c.Check(Machine{GPUs: 1}); err == nil || err.Error() != want || !errors.Is(err, ErrConfig) {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
}

// Who corrects a file learns of all its faults at once, in its order.
func TestReviewTellsAllFaults(t *testing.T) {
	text := head + "users:\n  ada:\n    gpus: 9\n    cores: many\n    memory: 1Ti\n"
	want := "agent.yaml:5: users.ada.gpus: 9 is more than this machine has, 2\n" +
		"agent.yaml:6: users.ada.cores: \"many\" is not a whole number from 1 on\n" +
		"agent.yaml:7: users.ada.memory: 1Ti is more than the GPUs of this machine have together, 160Gi"
	if _, err := Review("agent.yaml", []byte(text), lab{}, Machine{GPUs: 2, Memory: 160 << 30, Largest: 79 << 30}); err == nil || err.Error() != want || !errors.Is(err, ErrConfig) {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
	if _, err := Review("agent.yaml", []byte(text), lab{}, Machine{}); err == nil || strings.Contains(err.Error(), "\n") {
		t.Errorf("of a machine that is not known: %v", err)
	}
	if c, err := Review("agent.yaml", []byte(head+"others: {gpus: 2}"), lab{}, Machine{GPUs: 2}); err != nil || c.Limits(1).GPUs != 2 {
		t.Errorf("a file in order: %v", err)
	}
	for _, text := range []string{"", "a: [", "kind: Other\n"} {
		if c, err := Review("agent.yaml", []byte(text), lab{}, Machine{GPUs: 2}); c != nil || !errors.Is(err, ErrConfig) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// A limit that leaves nothing beside a process's context allows nobody anything.
func TestLimitsBelowAContext(t *testing.T) {
	machine := Machine{GPUs: 1, Memory: 80 << 30, Largest: 80 << 30, Context: 404 << 20}
	const text = "defaultMemory: 404Mi\nothers: {memory: 100Mi}\nusers: {ada: {memory: 405Mi}}"
	want := "agent.yaml:3: defaultMemory: 404Mi leaves nothing to a program: the context of one process takes 404Mi of a GPU\n" +
		"agent.yaml:4: others.memory: 100Mi leaves nothing to a program: the context of one process takes 404Mi of a GPU"
	if err := parse(t, text).Check(machine); err == nil || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
	machine.Context = 0 // not known
	if err := parse(t, text+"\ngroups: {students: {gpus: 1}}").Check(machine); err != nil {
		t.Error(err)
	}
	if err := parse(t, "others: {gpus: 1}").Check(Machine{GPUs: 1, Memory: 80 << 30, Largest: 80 << 30, Context: 404 << 20}); err != nil {
		t.Errorf("no limit of memory: %v", err)
	}
}

// The example that the documents show is a valid file.
func TestExample(t *testing.T) {
	text, err := os.ReadFile("../../examples/agent.yaml")
	if err != nil {
		t.Fatal(err)
	}
	c, err := Parse("agent.yaml", text, anybody{})
	if err != nil {
		t.Fatal(err)
	}
	// Of the machine for which it is written: eight GPUs of 80 GiB.
	if err := c.Check(Machine{GPUs: 8, Memory: 640 << 30, Largest: 79 << 30}); err != nil {
		t.Error(err)
	}
	if c.Outside() != OutsideReport || c.Idle().After == 0 || c.DefaultMemory().IsZero() || len(c.users) == 0 || len(c.groups) == 0 || c.others == nil {
		t.Errorf("the example leaves something out: %+v", c)
	}
}

// anybody has every user and every group.
type anybody struct{}

func (anybody) User(name string) (int, error)  { return 1000 + len(name), nil }
func (anybody) Group(name string) (int, error) { return 1000 + len(name), nil }
func (anybody) Groups(int) ([]int, error)      { return nil, nil }

// Whatever a file says, reading it ends, and what was read has no impossible limits.
func FuzzParse(f *testing.F) {
	f.Add(head + "users:\n  ada: {memory: 24Gi, gpus: 1, cores: 50, time: 8h, weight: 1}\n")
	f.Add(head + "others: {memory: 50%}\noutside: kill\nidle: {after: 1h, action: end}\n")
	f.Add(head + "overcommit: {users: [bob], groups: [operators]}\ndefaultMemory: 25%\n")
	f.Add("&a [*a, *a]")
	f.Add("? {a: b}\n: c")
	f.Fuzz(func(t *testing.T, text string) {
		c, err := Parse("f", []byte(text), lab{})
		if (c == nil) == (err == nil) || err != nil && !errors.Is(err, ErrConfig) {
			t.Fatalf("%v and %v", c, err)
		}
		if err != nil {
			return
		}
		for _, e := range c.entries() {
			l := e.limits
			if l.GPUs < 0 || l.Cores < 0 || l.Weight < 0 || l.Weight > v1alpha1.MaxWeight || l.Time != 0 && l.Time < leastTime {
				t.Errorf("%+v", l)
			}
		}
		if idle := c.Idle(); idle.After != 0 && idle.After < leastIdle || c.Limits(0) != (Limits{}) {
			t.Errorf("%+v", idle)
		}
		_ = c.Check(Machine{GPUs: 8, Memory: 640 << 30, Largest: 80 << 30})
	})
}

func TestMetrics(t *testing.T) {
	for text, want := range map[string]string{
		"metrics: {address: '127.0.0.1:9410'}": "127.0.0.1:9410", "metrics: {address: ':9410'}": ":9410",
		"metrics: {address: '[::1]:9410'}": "[::1]:9410", "metrics: {address: none}": NoMetrics, "metrics: {}": "", "": "",
	} {
		c, err := Parse("agent.yaml", []byte(head+text), nil)
		if err != nil || c.Metrics().Address != want {
			t.Errorf("%q: %q, %v", text, c.Metrics().Address, err)
		}
	}
	if c, err := Parse("agent.yaml", []byte(head+"metrics: {dcgm: true}"), nil); err != nil || !c.Metrics().DCGM {
		t.Errorf("under DCGM's names: %v", err)
	}
	if _, err := Parse("agent.yaml", []byte(head+"metrics: {dcgm: some}"), nil); err == nil || !strings.Contains(err.Error(), "agent.yaml:3: metrics.dcgm: must be true or false") {
		t.Errorf("neither on nor off: %v", err)
	}
	for _, text := range []string{"9410", "localhost:9410", "':port'", "':70000'", "off", "[1]", "''", "127.0.0.1"} {
		_, err := Parse("agent.yaml", []byte(head+"metrics: {address: "+text+"}"), nil)
		if err == nil || !strings.Contains(err.Error(), "agent.yaml:3: metrics.address: ") {
			t.Errorf("%q: %v", text, err)
		}
	}
}
