package users

import (
	"strings"
	"syscall"
	"testing"
)

// hardware has the programs of a shell find the simulated machine, which a command on another host is not told.
const hardware = "export DIVVY_SIMGPU=/opt/gpus/simgpu/gpus; "

// serve has root's server run, which lets clients of users in, and brings their bundles to other users.
func (s *server) serve(admit map[string][]string) *program {
	s.t.Helper()
	s.asRoot("ip", "link", "set", "lo", "up")
	s.asRoot("divvy", "serve", "init", "localhost")
	for client, flags := range admit {
		dir := "/home/" + client + "/.config/divvy/remote"
		s.ok(client, "mkdir", "-p", dir)
		s.asRoot(append([]string{"divvy", "serve", "admit", client, "--out", dir + "/gpu.pem"}, flags...)...)
		s.asRoot("chown", client, dir+"/gpu.pem")
	}
	served := s.start("root", false, "divvy", "serve")
	s.eventually("the server serves", func() bool { return strings.Contains(served.said.String(), "serving other hosts") })
	return served
}

// Commands of a client are those of the local user that the file names, with that user's groups and share, and never root's.
func TestCommandsOfClients(t *testing.T) {
	s := newServer(t)
	s.agent()
	s.serve(map[string][]string{
		"u1": {"--user", "u4", "--commands", "--memory", "4Gi"},
		"u2": {"--user", "u5"},
	})
	s.asRoot("install", "-d", "-m", "1777", "/var/tmp/work")
	on := func(args ...string) []string {
		return append([]string{"env", "-C", "/var/tmp/work", "divvy", "run", "--on", "localhost"}, args...)
	}
	const who = `id -u; id -G; echo $HOME $USER; pwd; cat /proc/self/status | grep -E '^(CapEff|Uid)'; ls ~ >/dev/null && echo home; divvy ls`
	o := s.run("u1", on("--memory", "2Gi", "--", "sh", "-c", who)...)
	for _, want := range []string{"2004\n2004\n/home/u4 u4\n/var/tmp/work\n", "0000000000000000", "home\n", "2Gi"} {
		if o.status != 0 || !strings.Contains(o.out, want) {
			t.Errorf("%q is not in %+v", want, o)
		}
	}
	s.refused("u1", []string{"4Gi"}, on("--memory", "4097Mi", "--", "true")...)
	s.refused("u2", []string{"no commands"}, on("--memory", "1Gi", "--", "true")...)
	s.refused("u3", []string{"bundle"}, on("--memory", "1Gi", "--", "true")...)

	held := s.start("u1", true, on("--memory", "2Gi", "--name", "away", "--", "sh", "-c", hardware+"echo on; gpubench hold --bytes 1Gi")...)
	if held.first != "on" {
		t.Fatalf("it says %q: %s", held.first, held.said)
	}
	s.eventually("the share has its memory", func() bool { used, err := s.Used(t.Context()); return err == nil && used >= gib })
	l := s.list()
	away, found := find(l, "u4", "away")
	if !found || away.Remote == nil || away.Remote.Client != "u1" || away.Remote.User != "u1" {
		t.Errorf("the share is listed as %+v", away)
	}
	s.refused("u1", []string{"2Gi more"}, on("--memory", "3Gi", "--", "true")...)
	held.kill(syscall.SIGKILL)
	s.eventually("nothing of it is left", func() bool {
		used, err := s.Used(t.Context())
		return err == nil && used == 0 && len(s.list().Tenants) == 0
	})
}

// A directory that only has the same name is another one.
func TestCommandsOfClientsElsewhere(t *testing.T) {
	s := newServer(t)
	s.agent()
	s.serve(map[string][]string{"u1": {"--user", "u4", "--commands"}})
	o := s.run("u1", "unshare", "--user", "--map-root-user", "--mount", "sh", "-c",
		"mount -t tmpfs tmpfs /var/tmp && cd /var/tmp && exec divvy run --on localhost --memory 1Gi -- touch /var/tmp/it-ran")
	if o.status != 125 || !strings.Contains(o.err, "not the same on both hosts") {
		t.Errorf("%+v", o)
	}
	s.asRoot("test", "!", "-e", "/var/tmp/it-ran")
	// A home of the client that the local user may not enter.
	s.refused("u1", []string{"not the same on both hosts"}, "divvy", "run", "--on", "localhost", "--memory", "1Gi", "--", "true")
}

// A server that is killed takes its commands with it, also those that ignore it.
func TestCommandsEndWithTheirServer(t *testing.T) {
	s := newServer(t)
	s.agent()
	served := s.serve(map[string][]string{"u1": {"--user", "u4", "--commands"}})
	const stubborn = `trap "" HUP TERM; setsid sh -c "trap '' HUP TERM; exec gpubench hold --bytes 1Gi </dev/zero" & echo on; gpubench hold --bytes 1Gi`
	held := s.start("u1", true, "env", "-C", "/var/tmp", "divvy", "run", "--on", "localhost", "--memory", "4Gi", "--", "sh", "-c", hardware+stubborn)
	s.eventually("both programs have memory", func() bool { used, err := s.Used(t.Context()); return err == nil && used >= 2*gib })
	served.kill(syscall.SIGKILL)
	if err := held.cmd.Wait(); err == nil || !strings.Contains(held.said.String(), "has ended, and so has the command") {
		t.Errorf("its client ends with %v: %s", err, held.said)
	}
	s.eventually("nothing of it is left", func() bool {
		used, err := s.Used(t.Context())
		return err == nil && used == 0 && len(s.list().Tenants) == 0
	})
	s.eventually("no process of u4 is left", func() bool { return s.run("root", "sh", "-c", "pgrep -u u4 || true").out == "" })
}

// A command that kills its attendant, which is its user's, leaves nothing by a session of its own, and its share counts until then.
func TestCommandKillsItsAttendant(t *testing.T) {
	s := newServer(t)
	s.agent()
	s.serve(map[string][]string{"u1": {"--user", "u4", "--commands", "--shares", "1"}})
	on := func(command string) []string {
		return []string{"env", "-C", "/var/tmp", "divvy", "run", "--on", "localhost", "--memory", "2Gi", "--", "sh", "-c", hardware + command}
	}
	const cunning = `(setsid gpubench hold --bytes 1Gi </dev/zero >~/held &); while ! [ -s ~/held ]; do sleep 0.02; done; kill -KILL $PPID; sleep 1000`
	if o := s.run("u1", on(cunning)...); o.status != 128+int(syscall.SIGKILL) {
		t.Errorf("%+v", o)
	}
	// On a busy machine the client may be told of the end of its command before that of the share.
	s.eventually("nothing of it is left", func() bool {
		used, err := s.Used(t.Context())
		return err == nil && used == 0 && len(s.list().Tenants) == 0
	})
	s.eventually("no process of u4 is left", func() bool { return s.run("root", "sh", "-c", "pgrep -u u4 || true").out == "" })
	s.eventually("the next command runs", func() bool { return s.run("u1", on("true")...).status == 0 })
}
