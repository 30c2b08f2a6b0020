package users

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/divvy-gpu/divvy/internal/agent/control"
)

// A system agent whose run directory is removed makes it again, with mark and socket:
// nobody is told that there is no agent, and its shares are those of before.
func TestRunDirectoryRemoved(t *testing.T) {
	s := newServer(t)
	agent := s.agent()
	held := s.hold("u1", "1Gi", "--memory", "20Gi", "--gpu", "0", "--name", "job")
	for _, remove := range []string{"rm -rf /run/divvy", "rm /run/divvy/system-agent", "rm /run/divvy/agent.sock", "mv /run/divvy /run/old"} {
		s.asRoot("sh", "-c", remove)
		for s.place() != "drwxr-xr-x -rw-r--r-- Srw-rw-rw-" {
			if o := s.run("u2", "divvy", "run", "--memory", "22Gi", "--gpu", "0", "--", "true"); o.status == 0 {
				t.Fatalf("after %s the memory is granted again: %s", remove, o.said())
			}
			if o := s.run("u2", "divvy", "ls"); o.status == 0 && strings.Contains(o.said(), "No shares") {
				t.Fatalf("after %s u2 is told: %s", remove, o.said())
			}
		}
		if tenant, ok := find(s.list(), "u1", "job"); !ok || tenant.Shares[0].Limit != 20*gib {
			t.Errorf("after %s the share is %+v", remove, tenant)
		}
		s.ok("u2", "divvy", "run", "--memory", "2Gi", "--gpu", "0", "--", "gpubench", "info")
	}
	s.asRoot("rm", "-rf", "/run/divvy")
	s.refused("root", nil, "divvy", "agent") // whichever of the two makes the directory
	s.eventually("the agent is found again", func() bool { return strings.HasSuffix(s.place(), "Srw-rw-rw-") })
	agent.kill(syscall.SIGKILL)
	s.agent() // which has the checkpoint that was written again
	if _, ok := find(s.list(), "u1", "job"); !ok {
		t.Errorf("the next agent has %+v", s.list().Tenants)
	}
	held.end()
}

// Users' own agents that take over where a system agent was grant nothing that its
// shares have, and what was set last stays, whichever agent set it: own agent, system
// agent, own agent, system agent.
func TestAgentsInTurn(t *testing.T) {
	s := newServer(t)
	train := s.hold("u1", "1Gi", "--gpu", "0", "--memory", "4Gi", "--name", "train")
	agent := s.agent()
	other := s.hold("u2", "1Gi", "--gpu", "0", "--memory", "10Gi", "--name", "other")
	s.ok("u1", "divvy", "set", "train", "--memory", "12Gi")
	for turn, memory := range []string{"9Gi", "11Gi"} {
		before := []uint64{12 * gib, 13 * gib}[turn]
		agent.kill(syscall.SIGKILL)
		s.asRoot("rm", "-rf", "/run/divvy/system-agent", "/run/divvy/agent.sock") // an administrator wants none
		s.refused("u3", []string{"GPU 0 "}, "divvy", "run", "--gpu", "0", "--memory", "8Gi", "--", "true")
		s.refused("u2", []string{"GPU 0 "}, "divvy", "run", "--gpu", "0", "--memory", "8Gi", "--", "true")
		s.refused("u1", []string{"GPU 0 ", "a system agent granted to user u2, and that agent is gone"}, "divvy", "run", "--gpu", "0", "--memory", "8Gi", "--", "true")
		s.refused("u1", nil, "divvy", "set", "train", "--memory", "20Gi")
		if o := s.ok("u1", "divvy", "ls", "-o", "json"); !strings.Contains(o, fmt.Sprintf(`"limit": %d`, before)) {
			t.Errorf("u1's own agent does not know what was set, %d:\n%s", before, o)
		}
		s.ok("u1", "divvy", "set", "train", "--memory", memory)
		agent = s.agent()
		list := s.list()
		tenant, ok := find(list, "u1", "train")
		if want := []uint64{9 * gib, 11 * gib}[turn]; !ok || tenant.Shares[0].Limit != want {
			t.Errorf("the system agent has %+v, want %d", tenant, want)
		}
		if list.GPUs[0].Granted > list.GPUs[0].Capacity || len(list.Tenants) != 2 {
			t.Errorf("%+v of %+v", list.Tenants, list.GPUs[0])
		}
		s.ok("u1", "divvy", "set", "train", "--memory", "13Gi")
		s.refused("u1", []string{"GPU 0 "}, "divvy", "set", "train", "--memory", "14Gi")
	}
	train.end()
	other.end()
}

// place is what the run directory, the mark and the socket are.
func (s *server) place() string {
	modes := []string{}
	for _, path := range []string{"", "system-agent", "agent.sock"} {
		info, err := os.Lstat(filepath.Join(s.Root, "run/divvy", path))
		if err != nil {
			return err.Error()
		}
		modes = append(modes, info.Mode().String())
	}
	return strings.Join(modes, " ")
}

// While something else is where the run directory belongs, everybody is told that the
// agent runs and cannot be reached, and once it is gone the agent is there again.
func TestRunDirectoryReplaced(t *testing.T) {
	s := newServer(t)
	s.agent()
	held := s.hold("u1", "1Gi", "--memory", "20Gi", "--gpu", "0", "--name", "job")
	const hidden, file = "the system agent, process ", "/run/divvy is not a directory"
	for replace, says := range map[string]struct{ what, user, root, doctor string }{
		"echo > /run/divvy":                                      {file, "ask an administrator to remove it", "remove it", "fail  system run directory: " + file},
		"ln -sT /nowhere /run/divvy":                             {hidden, "ask an administrator", "its log says why", "fail  agent: " + hidden},
		"install -d -o u6 /run/six && mv -T /run/six /run/divvy": {hidden, "ask an administrator", "its log says why", "fail  agent: " + hidden},
	} {
		// The agent may be faster and make its own again.
		s.asRoot("sh", "-c", "until rm -rf /run/divvy && "+replace+"; do :; done")
		s.refused("u2", []string{says.what}, "divvy", "run", "--memory", "2Gi", "--gpu", "0", "--", "true")
		for user, remedy := range map[string]string{"u2": says.user, "root": says.root} {
			o := s.run(user, "divvy", "ls")
			if o.status != 1 || !strings.Contains(o.said(), says.what) || !strings.Contains(o.said(), remedy) || strings.Contains(o.said(), "No shares") {
				t.Errorf("%s: %s is told, exit status %d: %s", replace, user, o.status, o.said())
			}
			if o := s.run(user, "divvy", "doctor"); o.status != 1 || !strings.Contains(o.out, says.doctor) {
				t.Errorf("%s: doctor of %s says, exit status %d:\n%s", replace, user, o.status, o.out)
			}
		}
		if own := s.ok("root", "sh", "-c", "find /dev/shm/divvy-2002 -name agent.log 2>/dev/null || true"); own != "" {
			t.Errorf("%s: u2 has an own agent, %s", replace, own)
		}
		s.asRoot("rm", "-rf", "/run/divvy")
		s.eventually("the agent is found again", func() bool { return strings.HasSuffix(s.place(), "Srw-rw-rw-") })
	}
	if tenant, ok := find(s.list(), "u1", "job"); !ok || tenant.Shares[0].Limit != 20*gib {
		t.Errorf("the share is %+v", tenant)
	}
	held.end()
}

// An agent that finds something else in the place of its run directory, or cannot write
// there, says what to do.
func TestRunDirectoryUnfit(t *testing.T) {
	s := newServer(t)
	for place, says := range map[string][]string{
		"echo > /run/divvy":                                            {"/run/divvy is not a directory", "remove it"},
		"ln -s /nowhere /run/divvy":                                    {"/run/divvy is not a directory", "remove it"},
		"mkdir /run/d; ln -s /run/d /run/divvy":                        {"/run/divvy is not a directory", "remove it"},
		"ln -s /run/divvy /run/divvy":                                  {"/run/divvy is not a directory", "remove it"},
		"install -d -o u6 /run/divvy":                                  {"/run/divvy belongs to user u6", "remove it"},
		"install -d -m 777 /run/divvy":                                 {"others can write to /run/divvy", "chmod go-w /run/divvy"},
		"mkdir /run/divvy; mount -t tmpfs -o ro,mode=755 x /run/divvy": {"read-only file system", "mount /run/divvy writable"},
	} {
		s.asRoot("sh", "-c", "umask 22; "+place)
		s.refused("root", says, "divvy", "agent")
		for _, command := range [][]string{{"ls"}, {"run", "--memory", "1Gi", "--", "true"}} {
			if o := s.run("u1", append([]string{"divvy"}, command...)...); o.status != 0 && !strings.Contains(o.err, "ask an administrator") {
				t.Errorf("%s: %v ends with %d, %s", place, command, o.status, o.said())
			}
		}
		s.asRoot("sh", "-c", "umount /run/divvy 2>/dev/null; rm -rf /run/divvy /run/d")
	}
}

// A system agent whose run directory becomes read-only goes on serving everybody, and
// says what it cannot do.
func TestRunDirectoryReadOnly(t *testing.T) {
	s := newServer(t)
	s.agent()
	held := s.hold("u1", "1Gi", "--memory", "20Gi", "--gpu", "0", "--name", "job")
	s.asRoot("sh", "-c", "mount --bind /run/divvy /run/divvy && mount -o remount,ro,bind /run/divvy")
	s.refused("root", []string{"read-only file system", "writable"}, "divvy", "agent")
	for user, says := range map[string]string{"u1": "job", "u2": "job", "root": "job"} {
		if o := s.run(user, "divvy", "ls"); o.status != 0 || !strings.Contains(o.out, says) {
			t.Errorf("%s, ls: exit status %d, %s", user, o.status, o.said())
		}
	}
	o := s.run("u2", "divvy", "run", "--memory", "22Gi", "--gpu", "0", "--", "true")
	if o.status != 125 || !strings.Contains(o.err, "GPU 0 has") {
		t.Errorf("a share that does not fit: exit status %d, %s", o.status, o.err)
	}
	// What cannot be written to the checkpoint is not granted.
	s.refused("u2", []string{"read-only file system"}, "divvy", "run", "--memory", "2Gi", "--gpu", "0", "--", "true")
	s.eventually("the fault is told", func() bool {
		return strings.Contains(fmt.Sprint(s.list().Events), "users may not find this agent")
	})
	s.asRoot("umount", "/run/divvy")
	s.ok("u2", "divvy", "run", "--memory", "2Gi", "--gpu", "0", "--", "true")
	if list := s.list(); len(list.Tenants) < 1 || list.Tenants[0].Cooperative || !slices.ContainsFunc(list.Events, func(e control.Event) bool { return e.Kind == control.EventFault }) {
		t.Errorf("%+v", list)
	}
	held.end()
}
