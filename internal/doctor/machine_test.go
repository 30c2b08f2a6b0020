package doctor

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

func TestClock(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	kept := func(synchronised, known bool) func() (bool, bool) {
		return func() (bool, bool) { return synchronised, known }
	}
	for name, c := range map[string]struct {
		now, created time.Time
		limited      bool
		adjusted     func() (bool, bool)
		status       Status
		found, next  string
	}{
		"well":                {now, now.Add(-time.Hour), true, kept(true, true), OK, "set", ""},
		"nothing keeps it":    {now, now, false, kept(false, true), OK, "set; no service corrects it", ""},
		"and shares end":      {now, now, true, kept(false, true), Warn, "shares here end by it", "timedatectl"},
		"not to be asked":     {now, now, true, kept(false, false), OK, "set", ""},
		"never set":           {time.Unix(0, 0).UTC(), time.Time{}, false, kept(true, true), Warn, "it shows 1970-01-01", "timedatectl"},
		"set back":            {now, now.Add(time.Hour), false, kept(true, true), Warn, "it was set back", "timedatectl"},
		"as much as it turns": {now, now.Add(time.Second), false, kept(true, true), OK, "set", ""},
	} {
		t.Run(name, func(t *testing.T) {
			want(t, clockCheck(c.now, c.created, c.limited, c.adjusted), c.status, c.found, c.next)
		})
	}
}

func TestCgroups(t *testing.T) {
	want(t, machine(t, nil).cgroupChecks(), Warn, "none are mounted", "mount -t cgroup2")
	want(t, machine(t, map[string]string{"sys/fs/cgroup/cgroup.controllers": "cpu"}).cgroupChecks(), OK, "version 2", "")
	want(t, machine(t, map[string]string{"sys/fs/cgroup/memory/cgroup.procs": "1"}).cgroupChecks(), OK, "version 1, 1 hierarchies", "")
}

func TestPreload(t *testing.T) {
	for value, fault := range map[string]bool{"": false, "/usr/lib/libjemalloc.so.2": false, "/opt/a.so:/opt/libcuda.so.1": true, "libnvidia-ml.so": true} {
		if checks := (Host{}).preloaded(value); len(checks) != 0 != fault {
			t.Errorf("LD_PRELOAD=%q: %+v", value, checks)
		}
	}
}

func TestLeftMounts(t *testing.T) {
	const usual = "22 1 0:20 / /proc rw - proc proc rw\n30 1 0:27 /divvy-0/tenants /mnt rw - tmpfs tmpfs rw\nbroken\n"
	if checks := machine(t, map[string]string{"proc/self/mountinfo": usual}).leftMounts(); len(checks) != 0 {
		t.Errorf("of a usual machine: %+v", checks)
	}
	left := usual + "66 43 0:27 /divvy-0/tenants/c9691f2b/libcuda.so.1 /usr/lib/libcuda.so.1 ro - tmpfs tmpfs rw\n"
	checks := machine(t, map[string]string{"proc/self/mountinfo": left}).leftMounts()
	if len(checks) != 1 {
		t.Fatalf("%+v", checks)
	}
	want(t, checks[0], Warn, "/usr/lib/libcuda.so.1", "umount /usr/lib/libcuda.so.1")
}

// A library is told apart by what it asks for, by its build and by where it looks.
func TestLibraryAt(t *testing.T) {
	dir := t.TempDir()
	compile := func(name string, args ...string) string {
		path := filepath.Join(dir, name)
		args = append([]string{"-shared", "-nostdlib", "-x", "c", "/dev/null", "-o", path, "-Wl,-soname," + name}, args...)
		if out, err := exec.Command("cc", args...).CombinedOutput(); err != nil {
			t.Fatalf("cc: %v\n%s", err, out)
		}
		return path
	}
	real := compile("libcuda-real.so.1")
	ours := compile("libcuda.so.1", "-x", "none", "-Wl,--no-as-needed", real, "-Wl,--build-id=0x00ff10", "-Wl,--enable-new-dtags,-rpath,/the/share")
	if l := LibraryAt(ours); !l.Ours || l.Client || l.Build != "00ff10" || l.Runpath != "/the/share" || l.Gone {
		t.Errorf("%+v", l)
	}
	if l := LibraryAt(real); l.Ours || l.Client || l.Gone {
		t.Errorf("%+v", l)
	}
	code := compile("libdivvy-remote.so.1")
	if l := LibraryAt(compile("libcuda.so", "-x", "none", "-Wl,--no-as-needed", code)); l.Ours || !l.Client || l.Gone {
		t.Errorf("%+v", l)
	}
	text := filepath.Join(dir, "text")
	if err := os.WriteFile(text, []byte("no library"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{filepath.Join(dir, "none"), dir, text} {
		if l := LibraryAt(path); !l.Gone {
			t.Errorf("%s: %+v", path, l)
		}
	}
	if libraries, err := Mapped(t.Context(), os.Getpid()); err != nil || len(libraries) != 0 {
		t.Errorf("of this process: %+v, %v", libraries, err)
	}
}

func TestMapping(t *testing.T) {
	for line, want := range map[string]string{
		"7f88b8cdd000-7f88b8ce0000 r--p 00000000 00:1b 127080                     /dev/shm/tenants/64/libcuda.so.1\n":          "/dev/shm/tenants/64/libcuda.so.1 127080",
		"7f88b8cdd000-7f88b8ce0000 r--p 00000000 00:1b 127081                     /opt/a folder/libcuda-real.so.1 (deleted)\n": "/opt/a folder/libcuda-real.so.1 (deleted) 127081",
		"7f88b8cdd000-7f88b8ce0000 rw-p 00000000 00:00 0 \n":                                                                   "",
		"7f88b8cdd000-7f88b8ce0000 rw-p 00000000 00:00 0                          [heap]\n":                                    "",
		"7f88b8cdd000-7f88b8ce0000 r--p 00000000 00:1b 127080                     /usr/lib/libcudart.so.12\n":                  "",
		"": "",
	} {
		path, node, ok := mapping(line)
		if got := path + " " + node; ok != (want != "") || ok && got != want {
			t.Errorf("%q: %q, %v", line, got, ok)
		}
	}
}
