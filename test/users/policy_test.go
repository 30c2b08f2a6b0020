package users

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/agent/control"
)

// What was promised to one user is not given to another: overcommit is a right.
func TestOvercommitIsARight(t *testing.T) {
	s := newServer(t)
	s.write("/etc/divvy/agent.yaml", head+"overcommit: {users: [u3], groups: [students]}\n")
	s.agent()
	first := s.hold("u4", "1Gi", "--memory", "20Gi", "--cores", "60", "--gpu", "0", "--name", "job")
	full := []string{"divvy", "run", "--memory", "20Gi", "--gpu", "0"}
	over := append(full, "--overcommit", "--", "true")
	full = append(full, "--", "true")
	said := s.refused("u5", []string{"GPU 0 has", "the share needs 20Gi; u4/job holds 20Gi", "ask for at most", "add --wait"}, full...)
	if strings.Contains(said, "overcommit") {
		t.Errorf("a user without the right is offered it: %s", said)
	}
	s.refused("u5", []string{"--overcommit is the right of root"}, over...)
	s.refused("u5", []string{"GPU 0 has 40 of 100 cores left to guarantee and the share needs 100; u4/job holds", "ask for at most 40 or add --wait"}, "divvy", "run", "--memory", "1Gi", "--cores", "100", "--gpu", "0", "--", "true")
	for _, user := range []string{"u1", "u3", "root"} { // by group, by name
		s.refused(user, []string{"or add --overcommit"}, full...)
		s.ok(user, over...)
	}
	first.end()
}

// Limits hold for the sum of a user's shares, at the start and while they run.
func TestLimitsOfUsersAndGroups(t *testing.T) {
	s := newServer(t)
	s.write("/etc/divvy/agent.yaml", head+`defaultMemory: 2Gi
users:
  u1: {memory: 12Gi, gpus: 1}
groups:
  students: {memory: 6Gi, weight: 2, cores: 50}
others: {memory: 4Gi}
`)
	s.agent()
	s.hold("u2", "1Gi", "--memory", "4Gi", "--name", "train") // a student
	s.refused("u2", []string{"you have 4Gi of memory, the request needs 3Gi more, and the administrator lets you have at most 6Gi in all: ask for at most 2Gi", "divvy stop train", "--wait"}, "divvy", "run", "--memory", "3Gi", "--", "true")
	s.refused("u2", []string{"the administrator lets you have at most 6Gi of memory in all, and the request needs 7Gi: ask for at most 2Gi"}, "divvy", "run", "--memory", "7Gi", "--wait", "--", "true")
	s.refused("u2", []string{"weight 2"}, "divvy", "run", "--memory", "1Gi", "--weight", "3", "--", "true")
	s.refused("u2", []string{"you have 4Gi of memory, would have 7Gi with this change, and the administrator lets you have at most 6Gi in all: ask for at most 6Gi"}, "divvy", "set", "train", "--memory", "7Gi")
	s.ok("u2", "divvy", "set", "train", "--memory", "5Gi")
	s.ok("root", "divvy", "set", "u2/train", "--memory", "8Gi")
	s.ok("u1", "divvy", "run", "--memory", "12Gi", "--", "true") // an entry of one's own counts alone
	s.refused("u1", []string{"1 GPU, and the request needs 2: ask for at most 1"}, "divvy", "run", "--gpus", "2", "--memory", "1Gi", "--", "true")
	s.refused("u4", []string{"the administrator lets you have at most 4Gi"}, "divvy", "run", "--memory", "5Gi", "--", "true")
	s.hold("u4", "256Mi", "--name", "default")
	if tenant, _ := find(s.list(), "u4", "default"); tenant.Shares[0].Limit != 2*gib {
		t.Errorf("who names no memory gets %d bytes", tenant.Shares[0].Limit)
	}
}

// A limit below what is in use, however often it is set, gives nobody memory that is in
// use: not its user beyond what they may have, and not a neighbour.
func TestLoweredLimitsSellNothingInUse(t *testing.T) {
	s := newServer(t)
	s.write("/etc/divvy/agent.yaml", head+"users:\n  u1: {memory: 20Gi}\n")
	s.agent()
	held := s.hold("u1", "12Gi", "--memory", "20Gi", "--gpu", "0", "--name", "job")
	for _, memory := range []string{"1Gi", "16Gi", "1Gi", "1Gi", "2Gi", "1Gi"} {
		s.ok("u1", "divvy", "set", "job", "--memory", memory, "--below-used")
		s.refused("u1", []string{"at most 20Gi in all"}, "divvy", "run", "--memory", "10Gi", "--gpu", "1", "--", "true")
		s.refused("u2", []string{"GPU 0 has", "u1/job holds 1"}, "divvy", "run", "--memory", "13Gi", "--gpu", "0", "--", "true")
		if granted := s.list().GPUs[0].Granted; granted < 12*gib || granted > 20*gib {
			t.Errorf("after %s: %d bytes of GPU 0 are granted", memory, granted)
		}
	}
	waiting := s.start("u2", false, "divvy", "run", "--wait", "--memory", "13Gi", "--gpu", "0", "--", "true")
	s.eventually("u2 waits", func() bool { return len(s.list().Waiting) == 1 })
	held.end()
	if status := waiting.wait(); status != 0 {
		t.Errorf("who waited for the memory: exit status %d, %s", status, waiting.said)
	}
}

// Names are per user, and nobody reads another user's command line.
func TestNamesAndCommandsArePerUser(t *testing.T) {
	s := newServer(t)
	s.agent()
	s.hold("u1", "256Mi", "--memory", "1Gi", "--name", "train")
	second := s.start("u2", true, "divvy", "run", "--memory", "1Gi", "--name", "train", "--", "env", "WANDB_API_KEY=secret123", "gpubench", "hold", "--bytes", "256Mi")
	for user, reads := range map[string]bool{"u1": false, "u2": true, "root": true} {
		out := s.ok(user, "divvy", "ls", "-o", "json")
		if strings.Contains(out, "secret123") != reads {
			t.Errorf("%s reads u2's command: %v", user, !reads)
		}
		var document struct{ Agents []control.Listing }
		if err := json.Unmarshal([]byte(out), &document); err != nil || len(document.Agents[0].Tenants) != 2 {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	// Nor from a file of the agent's.
	s.ok("root", "sh", "-c", "grep -rq secret123 /run/divvy /dev/shm")
	if o := s.run("u3", "sh", "-c", "grep -rl secret123 /run/divvy /dev/shm 2>/dev/null"); o.out != "" {
		t.Errorf("u3 reads u2's command in %s", o.out)
	}
	if out := s.ok("u3", "divvy", "ls"); !strings.Contains(out, "SHARE  USER  AGE") || !strings.Contains(out, "train  u1") || !strings.Contains(out, "train  u2") {
		t.Errorf("the table:\n%s", out)
	}
	s.refused("u1", []string{`you have a share named "train"`}, "divvy", "run", "--memory", "1Gi", "--name", "train", "--", "true")
	s.refused("u3", []string{"train belongs to", "only they and root"}, "divvy", "stop", "train")
	s.refused("u1", []string{"u2/train belongs to u2"}, "divvy", "stop", "u2/train")
	s.refused("root", []string{"2 users have a share train", "u1/train or u2/train"}, "divvy", "stop", "train")
	s.ok("u1", "divvy", "stop", "train")
	if _, there := find(s.list(), "u2", "train"); !there {
		t.Error("u1 stopped u2's share")
	}
	s.ok("root", "divvy", "stop", "u2/train")
	second.wait()
	s.eventually("both have ended", func() bool { return len(s.list().Tenants) == 0 })
}

// Where all GPUs are full the refusal says it once, with who holds them.
func TestRefusalOnAFullServer(t *testing.T) {
	s := newServer(t)
	s.agent()
	for _, user := range []string{"u1", "u2", "u3", "u4", "u5", "u6", "u1", "u2"} {
		s.hold(user, "64Mi")
	}
	said := s.refused("u3", []string{"each of GPUs 0 to 7 has 0 of", "u1/gpubench holds", "other shares the rest: add --wait to queue"}, "divvy", "run", "--memory", "1Gi", "--", "true")
	if strings.Count(said, "has 0 of") != 1 || strings.Contains(said, "ask for") {
		t.Errorf("it repeats itself, or gives advice that cannot help: %s", said)
	}
}

// `outside: kill` ends processes of listed users that have no share, and of no other.
func TestListedUsersOutside(t *testing.T) {
	s := newServer(t)
	s.write("/etc/divvy/agent.yaml", head+"outside: kill\ngroups: {students: {}}\n")
	s.agent()
	share := s.hold("u1", "256Mi", "--memory", "1Gi")
	other := s.start("u4", true, "gpubench", "hold", "--bytes", "256Mi")
	roots := s.start("root", true, "gpubench", "hold", "--bytes", "256Mi")
	listed := s.start("u1", false, "gpubench", "hold", "--bytes", "256Mi")
	if status := listed.wait(); status != 128+9 {
		t.Errorf("the listed user's process ended with %d", status)
	}
	s.eventually("it is told", func() bool {
		return slices.ContainsFunc(s.list().Events, func(e control.Event) bool {
			return e.Kind == control.EventOutside && e.User == "u1" && strings.Contains(e.Text, "(gpubench) of u1 was killed")
		})
	})
	s.eventually("the others are listed", func() bool {
		out := s.ok("u5", "divvy", "ls")
		return strings.Contains(out, "of u4 (gpubench) uses") && strings.Contains(out, "of root (gpubench) uses")
	})
	for name, p := range map[string]*program{"the share": share, "u4": other, "root": roots} {
		if status := p.end(); status != 0 {
			t.Errorf("%s ended with %d", name, status)
		}
	}
}
