package users

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/agent/control"
)

// said is all that a program prints.
func (o outcome) said() string { return o.out + "\n" + o.err }

// While the system agent is away nobody grants what it has granted, nobody says that
// there are no shares, and who needs it waits for it.
func TestSystemAgentAway(t *testing.T) {
	s := newServer(t)
	agent := s.agent()
	held := s.hold("u1", "1Gi", "--memory", "20Gi", "--gpu", "0", "--name", "u1job")
	agent.kill(syscall.SIGKILL)
	for user, says := range map[string]string{"u1": "1 of yours uses a GPU", "u2": "0 of yours use a GPU, others have 1", "root": "start it (`divvy agent`)"} {
		o := s.run(user, "divvy", "ls")
		for _, words := range []string{says, "the system agent is away since", "/run/divvy/system-agent"} {
			if o.status != 1 || !strings.Contains(o.said(), words) || strings.Contains(o.said(), "No shares") {
				t.Errorf("%s, ls: exit status %d, %s does not say %q", user, o.status, o.said(), words)
			}
		}
	}
	s.refused("u1", []string{"cannot be told", "away since", "ask an administrator"}, "divvy", "stop", "u1job")
	s.refused("u1", []string{"cannot be told", "away since"}, "divvy", "set", "u1job", "--memory", "1Gi")
	if o := s.run("u1", "divvy", "doctor"); o.status != 1 || !strings.Contains(o.out, "fail  agent: the system agent is away since") {
		t.Errorf("doctor: exit status %d\n%s", o.status, o.out)
	}
	own := s.start("u3", false, "divvy", "agent", "--ephemeral")
	if status := own.wait(); status != 1 || !strings.Contains(own.said.String(), "a system agent is configured") {
		t.Errorf("an own agent: exit status %d, %s", status, own.said)
	}
	moved := s.start("u3", false, "env", "DIVVY_RUNDIR=/home/u3/run", "divvy", "agent")
	if status := moved.wait(); status != 1 || !strings.Contains(moved.said.String(), "a system agent is configured") {
		t.Errorf("an own agent in another run directory: exit status %d, %s", status, moved.said)
	}
	s.refused("u3", []string{"a system agent is configured", "leave out DIVVY_RUNDIR"}, "env", "DIVVY_RUNDIR=/home/u3/run", "divvy", "run", "--memory", "1Gi", "--", "true")
	waiting := s.start("u2", false, "divvy", "run", "--memory", "23Gi", "--gpu", "0", "--", "true") // not for ever
	s.eventually("it waits", func() bool { return strings.Contains(waiting.said.String(), "waiting for it") })
	s.agent()
	if status := waiting.wait(); status != 125 || !strings.Contains(waiting.said.String(), "waiting for it") || !strings.Contains(waiting.said.String(), "GPU 0 has") {
		t.Errorf("who waited for the agent: exit status %d, %s", status, waiting.said)
	}
	for _, e := range s.list().Events {
		if e.Kind == control.EventFault { // its own shares are nobody's to take over
			t.Errorf("told %+v", e)
		}
	}
	if tenant, ok := find(s.list(), "u1", "u1job"); !ok || tenant.Shares[0].Limit != 20*gib {
		t.Errorf("the share of before: %+v", tenant)
	}
	held.end()
}

// Whoever waits for the system agent in vain is told what to do, with status 125.
func TestSystemAgentStaysAway(t *testing.T) {
	s := newServer(t)
	s.write("/etc/divvy/agent.yaml", "")
	o := s.run("u1", "divvy", "run", "--memory", "1Gi", "--", "true")
	for _, words := range []string{"waiting for it", "has not run since this machine started", "/etc/divvy/agent.yaml", "ask an administrator"} {
		if o.status != 125 || !strings.Contains(o.err, words) {
			t.Errorf("exit status %d, %q does not say %q", o.status, o.err, words)
		}
	}
	if o := s.run("u1", "divvy", "doctor"); !strings.Contains(o.out, "fail  agent configuration: ") || !strings.Contains(o.out, "fail  agent: the system agent is away") {
		t.Errorf("doctor says\n%s", o.out)
	}
}

// What root did before keeps nobody out, and a system agent mends what an older Divvy
// left.
func TestRootTriedItBefore(t *testing.T) {
	s := newServer(t)
	s.ok("root", "divvy", "simgpu", "start", "t4")
	held := s.hold("root", "1Gi", "--memory", "8Gi", "--gpu", "3", "--name", "rootjob")
	s.ok("u1", "divvy", "run", "--gpu", "0", "--memory", "1Gi", "--", "gpubench", "info")
	s.asRoot("install", "-d", "-m", "700", "/run/divvy") // as older versions made it
	s.agent()
	s.ok("u1", "divvy", "run", "--memory", "1Gi", "--", "gpubench", "info")
	if tenant, ok := find(s.list(), "root", "rootjob"); !ok || tenant.Shares[0].Limit != 8*gib {
		t.Errorf("root's own share was not taken over: %+v", tenant)
	}
	held.end()
	s.eventually("root's share has ended", func() bool { return len(s.list().Tenants) == 0 })
}

// Root's own agent grants shares beside those that it granted before, though it keeps them where a system agent does. It
// grants none beside those that a system agent left.
func TestRootsSharesBesideEachOther(t *testing.T) {
	s := newServer(t)
	first := s.hold("root", "1Gi", "--gpu", "0", "--memory", "2Gi")
	s.ok("root", "divvy", "run", "--gpu", "0", "--memory", "2Gi", "--", "true")
	first.end()
	s.eventually("root's own agent has ended", func() bool { return s.run("root", "pgrep", "-f", "agent --ephemeral").status != 0 })
	agent := s.agent()
	second := s.hold("u1", "1Gi", "--gpu", "0", "--memory", "2Gi")
	agent.kill(syscall.SIGKILL)
	s.asRoot("rm", "/run/divvy/system-agent")
	s.refused("root", []string{"GPU 0 ", "a system agent granted to user u1"}, "divvy", "run", "--gpu", "0", "--memory", "1Gi", "--", "true")
	second.end()
}

// A run directory that cannot serve all users is refused, with what to do.
func TestSpoiltRunDirectory(t *testing.T) {
	s := newServer(t)
	for _, c := range []struct {
		spoil string
		says  string
		check string
	}{
		{"install -d -o u1 -m 755 /run/divvy", "belongs to user u1: remove it", "belongs to user u1"},
		{"ln -s /home/u1 /run/divvy", "is not a directory: remove it", "is not a directory"},
		{"install -d -m 777 /run/divvy", "chmod go-w /run/divvy", "others can write"},
		{"install -d /run/divvy; mount -t tmpfs -o ro,mode=755 tmpfs /run/divvy", "mount /run/divvy writable", "cannot be written to"},
	} {
		s.asRoot("sh", "-c", c.spoil)
		s.refused("root", []string{c.says}, "divvy", "agent")
		if o := s.run("root", "divvy", "doctor"); o.status != 1 || !strings.Contains(o.out, "fail  system run directory: /run/divvy "+c.check) &&
			!strings.Contains(o.out, "fail  system run directory: "+c.check) {
			t.Errorf("%s: doctor says\n%s", c.spoil, o.out)
		}
		s.asRoot("sh", "-c", "umount /run/divvy 2>/dev/null; rm -rf /run/divvy")
	}
	s.agent()
}

// Users' own agents live beside each other on different GPUs, and a refusal names the
// GPU, who holds it, and what its reader can do.
func TestOwnAgentsBesideEachOther(t *testing.T) {
	s := newServer(t)
	first := s.hold("u1", "1Gi", "--gpu", "7", "--memory", "8Gi", "--name", "train")
	second := s.hold("u2", "1Gi", "--gpu", "1", "--memory", "4Gi")
	s.refused("u3", []string{"GPU 7 ", "user u1, process ", "ask an administrator"}, "divvy", "run", "--gpu", "7", "--memory", "1Gi", "--", "true")
	s.refused("root", []string{"GPU 7 ", "user u1, process ", "start the agent for all users (`divvy agent`), which takes it over"}, "divvy", "run", "--gpu", "7", "--memory", "1Gi", "--", "true")
	for _, user := range []string{"u3", "root"} {
		o := s.run(user, "divvy", "ls")
		for _, words := range []string{"held by the agent of user u1, process ", "held by the agent of user u2, process "} {
			if o.status != 0 || !strings.Contains(o.out, words) {
				t.Errorf("%s, ls: exit status %d, %q does not say %q", user, o.status, o.out, words)
			}
		}
	}
	if o := s.run("root", "divvy", "doctor"); !strings.Contains(o.out, "warn  GPU held: ") {
		t.Errorf("doctor says\n%s", o.out)
	}
	s.ok("u3", "divvy", "run", "--memory", "23Gi", "--", "gpubench", "info") // any other GPU
	waiting := s.start("u3", false, "divvy", "run", "--wait", "--gpu", "7", "--memory", "20Gi", "--", "true")
	first.end()
	if status := waiting.wait(); status != 0 {
		t.Errorf("who waited for the GPU: exit status %d, %s", status, waiting.said)
	}
	second.end()
	if left := s.ok("root", "ls", "/var/tmp"); left != "" { // only for machines where /dev/shm cannot serve
		t.Errorf("in /var/tmp lies %s", left)
	}
	s.eventually("nobody holds a GPU", func() bool { return !strings.Contains(s.run("u3", "divvy", "ls").out, "held by") })
}

// When a user's own agent is killed, nobody else's grants what its shares have.
func TestKilledOwnAgentKeepsItsGPU(t *testing.T) {
	s := newServer(t)
	held := s.hold("u1", "1Gi", "--gpu", "7", "--memory", "20Gi", "--name", "train")
	s.killed(s.ownAgent("u1"))
	s.refused("u2", []string{"GPU 7 ", "shares of user u1 whose agent has ended"}, "divvy", "run", "--gpu", "7", "--memory", "20Gi", "--", "true")
	s.ok("u2", "divvy", "run", "--memory", "20Gi", "--", "true")
	s.refused("u1", []string{"GPU 7 has"}, "divvy", "run", "--gpu", "7", "--memory", "20Gi", "--", "true") // their next agent knows it
	held.end()
	s.ok("u2", "divvy", "run", "--wait", "--gpu", "7", "--memory", "20Gi", "--", "true")
}

// A system agent takes over what users' own agents granted, whether these live, were
// killed, or answer nobody.
func TestSystemAgentTakesOver(t *testing.T) {
	s := newServer(t)
	programs := map[string]*program{}
	own := map[string]int{}
	for i, user := range []string{"u1", "u2", "u3"} {
		gpu := string(rune('0' + i))
		programs[user] = s.hold(user, "1Gi", "--gpu", gpu, "--memory", "20Gi", "--cores", "30", "--name", "job")
		own[user] = s.ownAgent(user)
	}
	s.killed(own["u2"])
	s.signal(own["u3"], syscall.SIGSTOP)
	s.agent()
	list := s.list()
	for i, user := range []string{"u1", "u2", "u3"} {
		var found []control.Tenant
		for _, tenant := range list.Tenants {
			if tenant.User == user {
				found = append(found, tenant)
			}
		}
		if len(found) != 1 {
			t.Fatalf("%s has %+v", user, found)
		}
		share := found[0].Shares[0]
		if share.Index != i || share.Limit != 20*gib || share.Cores != 30 || share.Used < gib || !found[0].Cooperative || found[0].Name != "job" {
			t.Errorf("%s has %+v", user, found[0])
		}
		s.refused("u4", []string{"GPU " + string(rune('0'+i)) + " has"}, "divvy", "run", "--gpu", string(rune('0'+i)), "--memory", "10Gi", "--", "true")
	}
	if len(list.Outside) > 0 {
		t.Errorf("processes of shares are said to be outside: %+v", list.Outside)
	}
	if o := s.run("u1", "divvy", "ls"); o.status != 0 || strings.Count(o.out, "co-operative") != 3 {
		t.Errorf("ls: exit status %d\n%s", o.status, o.said())
	}
	s.eventually("the own agent that answered has ended", func() bool { return !s.alive(own["u1"]) })
	tenant, _ := find(list, "u1", list.Tenants[0].Name)
	s.ok("u1", "divvy", "set", tenant.Name, "--memory", "12Gi")
	if o := s.run("u1", "divvy", "set", tenant.Name, "--memory", "25Gi"); o.status == 0 {
		t.Errorf("more than the GPU has: %s", o.said())
	}
	s.signal(own["u3"], syscall.SIGCONT)
	s.eventually("the own agent that slept has ended", func() bool { return !s.alive(own["u3"]) })
	for _, p := range programs {
		p.end()
	}
	s.eventually("all shares have ended", func() bool { return len(s.list().Tenants) == 0 })
	if left, err := filepath.Glob(s.Root + "/dev/shm/divvy-*/tenants/*"); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// Of two system agents one serves, also with different run directories.
func TestTwoSystemAgents(t *testing.T) {
	s := newServer(t)
	s.agent()
	s.refused("root", []string{"already runs in /run/divvy (process ", "divvy ls"}, "divvy", "agent")
	s.refused("root", []string{"already runs in /run/divvy (process "}, "env", "DIVVY_RUNDIR=/root/run", "divvy", "agent")
	s.ok("u1", "divvy", "run", "--memory", "1Gi", "--", "gpubench", "info")
}

// Who waits keeps the place when the agent is killed, and is told place and reason.
func TestWaitingOutlivesTheAgent(t *testing.T) {
	s := newServer(t)
	agent := s.agent()
	held := s.hold("u1", "1Gi", "--memory", "23Gi", "--gpu", "0")
	var waiting []*program
	for i, user := range []string{"u2", "u3", "u4"} {
		waiting = append(waiting, s.start(user, false, "divvy", "run", "--wait", "--memory", "20Gi", "--gpu", "0", "--", "sh", "-c", "echo; read x"))
		s.eventually(user+" waits", func() bool { return len(s.list().Waiting) == i+1 })
	}
	list := s.list()
	before := list.Waiting
	if len(before) != len(waiting) {
		t.Fatalf("%d of %d wait: %+v; the agent says %s", len(before), len(waiting), list.Events, agent.said)
	}
	agent.kill(syscall.SIGKILL)
	s.eventually("all see that it is away", func() bool {
		return !slices.ContainsFunc(waiting, func(p *program) bool { return !strings.Contains(p.said.String(), "waiting for it") })
	})
	s.agent()
	s.eventually("all wait again", func() bool {
		after := s.list().Waiting
		for i := range after {
			if after[i].User != before[i].User || !after[i].Since.Equal(before[i].Since) {
				t.Fatalf("they wait as %+v, before as %+v", after, before)
			}
		}
		return len(after) == 3 && !strings.Contains(after[2].Reason, "not come back")
	})
	held.end()
	for i, user := range []string{"u2", "u3", "u4"} {
		s.eventually(user+" is served", func() bool { return len(s.list().Tenants) == 1 && s.list().Tenants[0].User == user })
		if left := len(s.list().Waiting); left != 2-i {
			t.Errorf("%d wait while %s is served", left, user)
		}
		if status := waiting[i].end(); status != 0 && status != 1 { // read's own
			t.Errorf("%s: exit status %d, %s", user, status, waiting[i].said)
		}
	}
	for place, words := range map[int]string{0: "waiting, place 1 of 1: GPU 0 has", 2: "waiting, place 3 of 3"} {
		if said := waiting[place].said.String(); !strings.Contains(said, words) {
			t.Errorf("%q does not say %q", said, words)
		}
	}
}

// However often a system agent is killed while it takes over, each share is there once
// in the end, and each GPU has one agent.
func TestKilledWhileTakingOver(t *testing.T) {
	s := newServer(t)
	users := []string{"u1", "u2", "u3"}
	for i, user := range users {
		s.hold(user, "1Gi", "--gpu", strconv.Itoa(i), "--memory", "20Gi", "--name", "job")
	}
	for n := range 12 {
		agent := s.start("root", false, "divvy", "agent")
		// The moments are spread over what taking over takes; that is all that time decides.
		time.Sleep(time.Duration(n) * 15 * time.Millisecond)
		s.eventually("the agent is there", func() bool {
			text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", agent.cmd.Process.Pid, agent.cmd.Process.Pid))
			return err == nil && len(text) > 0
		})
		agent.kill(syscall.SIGKILL)
	}
	s.agent()
	list := s.list()
	if len(list.Tenants) != len(users) {
		t.Fatalf("taken over are %+v", list.Tenants)
	}
	for _, tenant := range list.Tenants {
		if tenant.Fault != "" || tenant.Shares[0].Limit != 20*gib || tenant.Shares[0].Used < gib {
			t.Errorf("%+v", tenant)
		}
	}
	for i := range users {
		if granted := list.GPUs[i].Granted; granted != 20*gib {
			t.Errorf("%d bytes of GPU %d are granted", granted, i)
		}
	}
}
