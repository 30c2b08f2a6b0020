package run

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// With --wait the command begins when there is room.
func TestHostsWait(t *testing.T) {
	all := newServers(t, 2)
	a, b, c := all[0], all[1], newClient(t, all)
	first := c.stepsOf([]string{"--remote", a.name, "--memory", "60Gi"})
	second := c.stepsOf([]string{"--remote", b.name, "--memory", "70Gi"})
	waiting := c.command(filepath.Join(string(c.tree), "bin", "divvy"), "run", "--remote", names(a, b), "--memory", "40Gi", "--wait", "--", "echo", "begun")
	var out, said logged
	waiting.Stdout, waiting.Stderr = &out, &said
	if err := waiting.Start(); err != nil {
		t.Fatal(err)
	}
	c.eventually("it waits where least is missing", func() bool { return strings.Contains(said.String(), a.name+": waiting, place 1 of 1") })
	if !strings.Contains(said.String(), "waiting at "+a.name) || out.String() != "" {
		t.Errorf("it said %q", said.String())
	}
	first.end()
	if err := waiting.Wait(); err != nil || out.String() != "begun\n" {
		t.Errorf("%v, %q, %q", err, out.String(), said.String())
	}
	second.end()
	a.gone()
	b.gone()
}

// With --wait the command begins when its client has given back enough, whether it runs here or there. What the client may never
// have is not waited for.
func TestHostsWaitWithinBounds(t *testing.T) {
	all := newServers(t, 1)
	s, c := all[0], newClient(t, all, "--memory", "4Gi", "--commands")
	for _, flag := range []string{"--remote", "--on"} {
		if o := c.divvy("run", flag, s.name, "--memory", "5Gi", "--wait", "--", "true"); o.status != 125 || !strings.Contains(o.err, "may have 4Gi of memory, and asks for 5Gi while it has 0") {
			t.Errorf("%s: what it may never have: %+v", flag, o)
		}
		first := c.stepsOf([]string{"--remote", s.name, "--memory", "3Gi"})
		waiting := c.command(filepath.Join(string(c.tree), "bin", "divvy"), "run", flag, s.name, "--memory", "2Gi", "--wait", "--", "echo", "begun")
		var out, said logged
		waiting.Stdout, waiting.Stderr = &out, &said
		if err := waiting.Start(); err != nil {
			t.Fatal(err)
		}
		c.eventually("it waits for its client's own shares", func() bool {
			return strings.Contains(said.String(), "waiting, place 1 of 1: client") && strings.Contains(said.String(), "while it has 3Gi")
		})
		ended := c.command(filepath.Join(string(c.tree), "bin", "divvy"), "run", flag, s.name, "--memory", "2Gi", "--wait", "--", "echo", "begun")
		var last logged
		ended.Stderr = &last
		if err := ended.Start(); err != nil {
			t.Fatal(err)
		}
		c.eventually("another one waits behind it", func() bool { return strings.Contains(last.String(), "waiting, place 2 of 2") })
		if err := ended.Process.Signal(syscall.SIGINT); err != nil {
			t.Fatal(err)
		}
		if err := ended.Wait(); err == nil {
			t.Errorf("%s: who was interrupted ended well: %q", flag, last.String())
		}
		if out.String() != "" {
			t.Errorf("%s: it has begun: %q", flag, said.String())
		}
		first.end()
		if err := waiting.Wait(); err != nil || out.String() != "begun\n" {
			t.Errorf("%s: %v, %q, %q", flag, err, out.String(), said.String())
		}
	}
	s.gone()
}
