package cli

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/agent/daemon"
	"github.com/divvy-gpu/divvy/internal/agent/gpulock"
	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/doctor"
	"github.com/divvy-gpu/divvy/internal/process"
	"github.com/divvy-gpu/divvy/internal/rundir"
	"github.com/divvy-gpu/divvy/internal/version"
)

// well is a machine on which a system agent serves one GPU and one share.
func well() sight {
	return sight{
		configured: true, by: rundir.Configured{By: "/run/divvy/system-agent"},
		list: &control.Listing{
			Info:    control.Info{PID: 7, User: "root", Version: version.Full(), Driver: "550.1"},
			GPUs:    []control.GPU{{Index: 1, Capacity: 8 << 30, Granted: 8 << 30, Cores: 100}},
			Tenants: []control.Tenant{{Name: "train", User: "u1", Shares: []control.Share{{Index: 1}}}},
		},
	}
}

func TestDoctorFindsEachFault(t *testing.T) {
	mark := &rundir.Mark{Seen: time.Now().Add(-time.Minute)}
	for name, c := range map[string]struct {
		spoil func(*sight)
		check doctor.Check // found and next are parts
	}{
		"nothing":            {func(*sight) {}, doctor.Check{Name: "agent", Status: doctor.OK, Found: "pid 7 of root serves, driver 550.1"}},
		"no agent":           {func(s *sight) { s.list, s.err = nil, control.ErrNoAgent }, doctor.Check{Name: "agent", Status: doctor.OK, Found: "none runs; `divvy run` starts one"}},
		"no simulated agent": {func(s *sight) { s.machine, s.list, s.err = "t4", nil, control.ErrNoAgent }, doctor.Check{Name: "agent of simulated machine t4", Status: doctor.OK, Found: "`divvy run --simgpu t4` starts one"}},
		"simulated by the system": {func(s *sight) {
			s.machine, s.bySystem, s.list, s.err = "t4", true, nil, control.ErrNoAgent
		}, doctor.Check{Name: "agent of simulated machine t4", Status: doctor.OK, Found: "the system agent serves the machine of that name"}},
		"away": {func(s *sight) {
			s.list, s.err = nil, &control.AwayError{System: rundir.Configured{By: "/by", Mark: mark}}
		}, doctor.Check{Name: "agent", Status: doctor.Fail, Found: "the system agent is away since", Next: "divvy agent"}},
		"for virtual machines alone": {func(s *sight) {
			s.list.Info.MachinesOnly, s.list.Info.Driver, s.list.GPUs, s.list.Tenants = true, "", nil, nil
		},
			doctor.Check{Name: "agent", Status: doctor.OK, Found: "pid 7 of root serves virtual machines alone (--vm-only)"}},
		"own agent beside it": {func(s *sight) { s.list.Info.Ephemeral = true }, doctor.Check{Name: "agent", Status: doctor.Fail, Found: "an own agent (pid 7 of root serves, driver 550.1) serves its shares and grants no more; the system agent is away", Next: "divvy agent"}},
		"system agent hidden": {func(s *sight) {
			s.list.Info.Ephemeral, s.configured = true, false
			s.held = []gpulock.Holder{{UUID: "GPU-0", PID: 9, System: true}}
		}, doctor.Check{Name: "agent", Status: doctor.Fail, Found: "the system agent, process 9, does not answer", Next: "it runs"}},
		"system agent of another namespace": {func(s *sight) {
			s.list.Info.Ephemeral, s.configured = true, false
			s.held = []gpulock.Holder{{UUID: "GPU-0", System: true, UID: 1}}
		}, doctor.Check{Name: "agent", Status: doctor.Fail, Found: "the system agent, a process of another pid namespace, does not answer", Next: "it runs in another pid namespace"}},
		"stopped": {func(s *sight) {
			s.list, s.err = nil, fmt.Errorf("dial: %w", &control.StuckError{Found: "it does not answer, because it is stopped by a signal", Next: "let it go on (`kill -CONT 7`)"})
		}, doctor.Check{Name: "agent", Status: doctor.Fail, Found: "the agent runs, and it does not answer, because it is stopped by a signal", Next: "let it go on (`kill -CONT 7`)"}},
		"history not written":  {func(s *sight) { s.list.History = "the history is not written: no space" }, doctor.Check{Name: "history", Status: doctor.Warn, Found: "the history is not written: no space", Next: "making room"}},
		"port taken":           {func(s *sight) { s.list.MetricsTaken = "gpu1:9410" }, doctor.Check{Name: "metrics and web page", Status: doctor.Warn, Found: "another program has gpu1:9410", Next: "another address"}},
		"unreachable":          {func(s *sight) { s.list, s.err = nil, errors.New("it hangs") }, doctor.Check{Name: "agent", Status: doctor.Fail, Found: "it hangs"}},
		"an older agent":       {func(s *sight) { s.list.Info.Version = "0.0.1" }, doctor.Check{Name: "agent's version", Status: doctor.Warn, Found: "the agent is of 0.0.1, and this program of " + version.Full(), Next: "start the agent again"}},
		"an agent of old":      {func(s *sight) { s.list.Info.Version = "" }, doctor.Check{Name: "agent's version", Status: doctor.Warn, Found: "does not tell which", Next: "start the agent again"}},
		"waiting":              {func(s *sight) { s.list.Waiting = []control.Waiting{{Reason: "it is full"}} }, doctor.Check{Name: "agent", Status: doctor.OK, Found: "1 request waits, the first since"}},
		"left out":             {func(s *sight) { s.list.LeftOut = []int{3} }, doctor.Check{Name: "GPU 3", Status: doctor.Warn, Found: "GPU 3 is left out: the driver has not answered", Next: "dmesg"}},
		"silent":               {func(s *sight) { s.list.GPUs[0].Fault = "its figures are not known" }, doctor.Check{Name: "GPU 1", Status: doctor.Warn, Found: "it takes no new shares: its figures are not known", Next: "another GPU"}},
		"unwatched":            {func(s *sight) { s.list.GPUs[0].Unwatched = "the driver does not tell" }, doctor.Check{Name: "GPU 1", Status: doctor.Warn, Found: "the driver does not tell"}},
		"memory overcommitted": {func(s *sight) { s.list.GPUs[0].Granted++ }, doctor.Check{Name: "GPU 1", Status: doctor.Warn, Found: "its shares add up to more than it has", Next: "end or lower"}},
		"cores overcommitted":  {func(s *sight) { s.list.GPUs[0].Cores = 101 }, doctor.Check{Name: "GPU 1", Status: doctor.Warn, Found: "101 of 100 cores", Next: "end or lower"}},
		"excess of a GPU":      {func(s *sight) { s.list.GPUs[0].Excess = "6Gi belong to no process" }, doctor.Check{Name: "GPU 1", Status: doctor.Warn, Found: "6Gi belong to no process", Next: "divvy ls"}},
		"taken over":           {func(s *sight) { s.list.Tenants[0].Cooperative = true }, doctor.Check{Name: "share u1/train", Status: doctor.Warn, Found: "it was taken over", Next: "start its command again"}},
		"page unreadable":      {func(s *sight) { s.list.Tenants[0].Fault = "its state page is truncated" }, doctor.Check{Name: "share u1/train", Status: doctor.Warn, Found: "truncated", Next: "`divvy stop u1/train`"}},
		"past by overhead":     {func(s *sight) { s.list.Tenants[0].Shares[0].Past = "it is 72Mi past its limit" }, doctor.Check{Name: "share u1/train", Status: doctor.Warn, Found: "on GPU 1: it is 72Mi past", Next: "divvy set u1/train --memory"}},
		"excess of a share":    {func(s *sight) { s.list.Tenants[0].Shares[0].Excess = "it has 9Gi" }, doctor.Check{Name: "share u1/train", Status: doctor.Warn, Found: "on GPU 1: it has 9Gi"}},
	} {
		s := well()
		c.spoil(&s)
		checks := s.checks()
		if s.list == nil && len(checks) != 1 || name == "nothing" && len(checks) != 1 || len(checks) > 2 {
			t.Errorf("%s: %+v", name, checks)
		}
		last := checks[len(checks)-1]
		if last.Name != c.check.Name || last.Status != c.check.Status || !strings.Contains(last.Found, c.check.Found) || !strings.Contains(last.Next, c.check.Next) {
			t.Errorf("%s: %+v, want %+v", name, last, c.check)
		}
		if last.Next != "" && strings.Contains(last.Found, last.Next) {
			t.Errorf("%s: it says twice what to do: %+v", name, last)
		}
	}
}

// Who stops an agent is told to let it go on: that is known before the doctor has waited long enough.
func TestDoctorWaitsForWhatIsTold(t *testing.T) {
	if agentTime <= control.GreetTime {
		t.Errorf("an agent is waited for for %v, and known to be stuck after %v", agentTime, control.GreetTime)
	}
}

// Who has the agent's port is named.
func TestDoctorNamesTheHolderOfAPort(t *testing.T) {
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	self := fmt.Sprintf("process %d (%s) of %s", os.Getpid(), process.Command(os.Getpid()), process.UserName(os.Getuid()))
	for _, at := range []string{address, ":" + port} {
		if got := holderOf(at); got != self {
			t.Errorf("%s: %q, want %q", at, got, self)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	for _, at := range []string{address, "", "gpu1:9410", "127.0.0.1:x"} {
		if got := holderOf(at); got != "another program" {
			t.Errorf("%s: %q", at, got)
		}
	}
}

func TestDoctorFindsWhoHoldsGPUs(t *testing.T) {
	another := gpulock.Holder{UUID: "GPU-0", UID: 1001, PID: 99, User: "u1"}
	serving := gpulock.Holder{UUID: "GPU-1", PID: 7, User: "root"}
	for name, c := range map[string]struct {
		change func(*sight)
		status doctor.Status
		next   string
	}{
		"beside a system agent":         {func(*sight) {}, doctor.Warn, "end that process"},
		"while the system agent starts": {func(s *sight) { s.list = nil }, doctor.Warn, "takes it over when it starts"},
		"without a system agent":        {func(s *sight) { s.list, s.configured = nil, false }, doctor.Warn, another.Remedy(os.Getuid())},
	} {
		s := well()
		c.change(&s)
		held := []gpulock.Holder{another}
		if s.list != nil {
			held = append(held, serving)
		}
		checks := s.holderChecks(held)
		if len(checks) != 1 || checks[0].Status != c.status || !strings.Contains(checks[0].Found, "GPU-0 by the agent of user u1, process 99") || !strings.Contains(checks[0].Next, c.next) {
			t.Errorf("%s: %+v", name, checks)
		}
	}
}

// The GPUs of a system agent that hangs are not said to be somebody else's.
func TestDoctorKnowsTheHungAgent(t *testing.T) {
	self, err := process.Find(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	for pid, want := range map[int]int{self.PID: 0, self.PID + 1: 1} {
		s := well()
		s.list, s.err, s.by.Mark = nil, errors.New("it does not answer"), &rundir.Mark{Agent: self}
		if checks := s.holderChecks([]gpulock.Holder{{UUID: "GPU-0", PID: pid, User: "root"}}); len(checks) != want {
			t.Errorf("process %d: %+v", pid, checks)
		}
	}
}

// eight is a machine of eight GPUs on which a context takes 404 MiB.
func eight() (daemon.Machine, error) {
	return daemon.Machine{GPUs: slices.Repeat([]backend.GPU{{Total: 80 << 30, ContextBytes: 404 << 20}}, 8)}, nil
}

// The bundle has the configuration with which the agent started that serves every user.
func TestConfigurationOfTheAgent(t *testing.T) {
	served, usual, own, none := well(), well(), well(), sight{}
	served.list.Info.Config, own.list.Info.Config = "/srv/agent.yaml", "/srv/agent.yaml"
	own.list.Info.Ephemeral = true
	for name, c := range map[string]struct {
		sight sight
		want  string
	}{
		"with --config": {served, "/srv/agent.yaml"}, "without one": {usual, daemon.DefaultConfig}, "own agent": {own, daemon.DefaultConfig}, "no agent": {none, daemon.DefaultConfig},
	} {
		if got := c.sight.configFile(daemon.DefaultConfig); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// A file that could not be compared with the machine is said to be so.
func TestDoctorTellsOfNoComparison(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent.yaml")
	if err := os.WriteFile(path, []byte("apiVersion: divvy.dev/v1alpha1\nkind: AgentConfig\nothers: {gpus: 9}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	checks := sight{}.configurationChecks(path, func() (daemon.Machine, error) { return daemon.Machine{}, errors.New("no driver") })
	if checks[0].Status != doctor.OK || !strings.Contains(checks[0].Found, "not compared with the machine's GPUs: no driver") {
		t.Errorf("%+v", checks)
	}
}

// The machine is the one that the system agent serves.
func TestDoctorTakesTheAgentsMachine(t *testing.T) {
	s := well()
	s.list.GPUs[0].Total, s.list.GPUs[0].Reserved, s.list.GPUs[0].ContextBytes, s.list.LeftOut = 9<<30, 1<<30, 5, []int{2, 3}
	m, err := (&app{}).served(s)
	if err != nil || m.Unknown != 2 || len(m.GPUs) != 1 || m.GPUs[0].Total != 9<<30 || m.GPUs[0].Capacity() != 8<<30 || m.GPUs[0].ContextBytes != 5 {
		t.Errorf("%+v, %v", m, err)
	}
}

func TestDoctorChecksTheConfiguration(t *testing.T) {
	const head = "apiVersion: divvy.dev/v1alpha1\nkind: AgentConfig\n"
	path := filepath.Join(t.TempDir(), "agent.yaml")
	if checks := (sight{}).configurationChecks(path, eight); len(checks) != 0 {
		t.Errorf("without a file: %+v", checks)
	}
	for text, want := range map[string]struct {
		status doctor.Status
		found  string
	}{
		head:                         {doctor.OK, path},
		head + "outside: punish\n":   {doctor.Fail, path + ":3: outside: "},
		head + "users:\n\tu1: {}\n":  {doctor.Fail, path + ":4: a tab in the indentation"},
		"":                           {doctor.Fail, "the file is empty"},
		head + "limits: {gpus: 1}\n": {doctor.Fail, path + ":3: limits: unknown field"},
		head + "others: {gpus: 8}\n": {doctor.OK, path},
		head + "others: {gpus: 9}\n": {doctor.Fail, path + ":3: others.gpus: 9 is more than this machine has, 8"},
		head + "others:\n  gpus: 9\n  cores: many\n": {doctor.Fail, path + ":4: others.gpus: 9 is more than this machine has, 8\n" + path + ":5: others.cores: \"many\""},
		head + "others: {memory: 404Mi}\n":           {doctor.Fail, path + ":3: others.memory: 404Mi leaves nothing to a program"},
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		checks := sight{}.configurationChecks(path, eight)
		if checks[0].Status != want.status || !strings.Contains(checks[0].Found, want.found) || (checks[0].Next == "") != (want.status == doctor.OK) {
			t.Errorf("%q: %+v", text, checks)
		}
		if rights := len(checks) == 2 && checks[1].Name == "your rights"; rights != (want.status == doctor.OK) {
			t.Errorf("%q: %+v", text, checks)
		}
	}
}

// A configuration that the agent has not read holds nobody to anything.
func TestDoctorFindsAConfigurationThatIsNotInForce(t *testing.T) {
	dir := t.TempDir()
	path, other, text := filepath.Join(dir, "agent.yaml"), filepath.Join(dir, "other.yaml"), []byte("apiVersion: divvy.dev/v1alpha1\nkind: AgentConfig\n")
	if err := errors.Join(os.WriteFile(path, text, 0o600), os.WriteFile(other, text, 0o600)); err != nil {
		t.Fatal(err)
	}
	rules, err := daemon.ReviewConfig(path, daemon.Machine{})
	if err != nil {
		t.Fatal(err)
	}
	_, sum := rules.Source()
	for name, c := range map[string]struct {
		info control.Info
		want []doctor.Check // found and next are parts
	}{
		"in force":           {control.Info{Config: path, ConfigSum: sum}, []doctor.Check{{Status: doctor.OK, Found: path}, {Status: doctor.OK}}},
		"another file":       {control.Info{Config: other, ConfigSum: sum}, []doctor.Check{{Status: doctor.OK, Found: other}, {Status: doctor.OK}}},
		"written later":      {control.Info{}, []doctor.Check{{Status: doctor.Warn, Found: path + " is not in force: the agent started without it", Next: "start the agent again"}}},
		"changed":            {control.Info{Config: path, ConfigSum: "0"}, []doctor.Check{{Status: doctor.Warn, Found: path + " is not in force: the agent started with another content", Next: "start the agent again"}}},
		"a user's own agent": {control.Info{Ephemeral: true}, []doctor.Check{{Status: doctor.OK, Found: path}, {Status: doctor.OK}}},
		"a container's":      {control.Info{Config: "/nowhere/agent.yaml", ConfigSum: sum}, nil},
	} {
		s := well()
		s.list.Info = c.info
		checks := s.configurationChecks(path, eight)
		if len(checks) != len(c.want) {
			t.Errorf("%s: %+v", name, checks)
			continue
		}
		for i, want := range c.want {
			if checks[i].Status != want.Status || !strings.Contains(checks[i].Found, want.Found) || !strings.Contains(checks[i].Next, want.Next) {
				t.Errorf("%s: %+v, want %+v", name, checks[i], want)
			}
		}
	}
}

// Processes in shares that have ended are named with what ends them, but for the agent, which lets go of them by itself.
func TestDoctorFindsProcessesOfEndedShares(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "tenants", "0123abcd")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	file, err := os.Create(filepath.Join(dir, "state"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := file.Truncate(4096); err != nil {
		t.Fatal(err)
	}
	page, err := unix.Mmap(int(file.Fd()), 0, 4096, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Munmap(page) }()
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	self := fmt.Sprintf("process %d (", os.Getpid())
	checks := well().leftProcesses(t.Context())
	if len(checks) != 1 || !strings.Contains(checks[0].Found, self) || !strings.Contains(checks[0].Next, fmt.Sprint(os.Getpid())) {
		t.Errorf("%+v", checks)
	}
	agent := well()
	agent.list.Info.PID = os.Getpid()
	for _, c := range agent.leftProcesses(t.Context()) {
		if strings.Contains(c.Found, self) {
			t.Errorf("of the agent itself: %+v", c)
		}
	}
}
