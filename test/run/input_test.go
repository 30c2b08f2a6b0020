package run

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/driver"
	"github.com/divvy-gpu/divvy/internal/install/installtest"
	"github.com/divvy-gpu/divvy/internal/tenantdir"
)

// Wrong input is answered with what is wrong and what to do, and leaves nothing behind.
func TestImpossibleRequests(t *testing.T) {
	h := newHost(t)
	h.hold([]string{"--memory", "1Gi", "--name", "taken"}, h.bench(), "hold", "--bytes", "64Mi")
	for args, says := range map[string]string{
		"--memory 100Ti":        "ask for at most",
		"--memory 0":            "greater than zero",
		"--memory -1":           "greater than zero",
		"--memory much":         "such as",
		"--gpu 7":               "divvy ls",
		"--gpu GPU-00000000":    "divvy ls",
		"--gpus 2 --memory 1Gi": "1",
		"--name taken":          "choose another",
		"--cores 30 --weight 5": "weighted",
	} {
		o := h.run(append(strings.Fields(args), "--", "true")...)
		if o.status != 125 || !strings.HasPrefix(o.err, "divvy: ") || !strings.Contains(o.err, says) {
			t.Errorf("%s: exit status %d, %s", args, o.status, o.err)
		}
	}
	if list := h.list(); len(list.Tenants) != 1 || list.GPUs[0].Granted != gib {
		t.Errorf("something was left: %+v", list)
	}
	entries, err := os.ReadDir(filepath.Join(h.rundir, "tenants"))
	if err != nil || len(entries) != 1 {
		t.Errorf("tenant directories: %v, %v", entries, err)
	}
}

func TestMachinesAndDrivers(t *testing.T) {
	h := newHost(t)
	if o := h.divvy("run", "--simgpu", "b9000", "--", "true"); o.status != 125 || !strings.Contains(o.err, "a100-80g") {
		t.Errorf("unknown machine: exit status %d, %s", o.status, o.err)
	}
	if o := h.divvy("run", "--simgpu", "./none.yaml", "--", "true"); o.status != 125 || !strings.Contains(o.err, "none.yaml") {
		t.Errorf("missing machine file: exit status %d, %s", o.status, o.err)
	}
	if _, err := (driver.Finder{}).Find(); err != nil {
		if o := h.divvy("run", "--", "true"); o.status != 125 || !strings.Contains(o.err, "--simgpu") {
			t.Errorf("no driver: exit status %d, %s", o.status, o.err)
		}
	}
	if o := h.run("--memory", "1Gi", "--", filepath.Join(string(h.tree), "bin", "divvy"), "run", "--simgpu", "m", "--", "true"); o.status != 125 || !strings.Contains(o.err, "already inside a share") {
		t.Errorf("a share inside a share: exit status %d, %s", o.status, o.err)
	}
}

func TestTwoAgents(t *testing.T) {
	h := newHost(t)
	h.hold([]string{"--memory", "1Gi"}, "sh", "-c", "echo; read x")
	if o := h.divvy("agent", "--simgpu-dir", h.instance); o.status != 1 || !strings.Contains(o.err, "already runs in") {
		t.Errorf("a second agent: exit status %d, %s", o.status, o.err)
	}
}

// A tenant can write anything into its own state page. Only its own share suffers,
// and `divvy ls` reports it.
func TestGarbageInAStatePage(t *testing.T) {
	garbage := map[string]func(path string) error{
		"overwritten": func(path string) error {
			info, err := os.Stat(path)
			if err != nil {
				return err
			}
			file, err := os.OpenFile(path, os.O_WRONLY, 0)
			if err != nil {
				return err
			}
			defer file.Close()
			_, err = file.Write([]byte(strings.Repeat("\xa5", int(info.Size()))))
			return err
		},
		"truncated": func(path string) error { return os.Truncate(path, 100) },
		"emptied":   func(path string) error { return os.Truncate(path, 0) },
	}
	for name, spoil := range garbage {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			h.hold([]string{"--memory", "1Gi", "--name", "good"}, h.bench(), "hold", "--bytes", "256Mi")
			s := h.hold([]string{"--memory", "1Gi", "--name", "bad"}, "sh", "-c", "echo; read x; exec "+h.bench()+" alloc --bytes 2Gi")
			bad, _ := h.tenant("bad")
			if err := spoil(tenantdir.Dir(bad.Dir).State()); err != nil {
				t.Fatal(err)
			}
			h.eventually("the fault is told", func() bool {
				tenant, ok := h.tenant("bad")
				return ok && tenant.Fault != ""
			})
			good, ok := h.tenant("good")
			if !ok || good.Fault != "" || good.Shares[0].Used < gib/4 {
				t.Errorf("the neighbour suffers: %+v", good)
			}
			if o := h.run("--memory", "1Gi", "--", h.bench(), "alloc", "--bytes", "256Mi"); o.status != 0 {
				t.Errorf("the next share suffers: %s%s", o.out, o.err)
			}
			// The library in the spoilt share fails closed: nothing is allocated.
			_, _ = s.input.Write([]byte("\n"))
			s.end()
			if s.cmd.ProcessState.ExitCode() == 0 {
				t.Error("2Gi were allocated in a share of 1Gi whose page is spoilt")
			}
		})
	}
}

// A full /dev/shm is noticed when the pages are made, not later by a SIGBUS.
func TestNoRoomForPages(t *testing.T) {
	h := newHost(t)
	script := `set -e
mkdir -m 700 "$DIVVY_RUNDIR/tenants"
mount -t tmpfs -o size=64k,mode=700 none "$DIVVY_RUNDIR/tenants"
"$1" run --simgpu m --memory 1Gi -- true && echo 'it ran' || echo "status $?"
ls -A "$DIVVY_RUNDIR/tenants"
mount -o remount,size=64m "$DIVVY_RUNDIR/tenants"
"$1" run --simgpu m --memory 1Gi -- echo 'room again'
`
	divvy := filepath.Join(string(h.tree), "bin", "divvy")
	text, err := h.command("unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script, "sh", divvy).CombinedOutput()
	out := string(text)
	if strings.Contains(out, "unshare:") {
		installtest.Missing(t, "userns", err)
	}
	// Nothing is left between the two: the tenant directory was removed.
	if !strings.Contains(out, "is full: delete what is not needed in ") || !strings.HasSuffix(out, "status 125\nroom again\n") {
		t.Errorf("got:\n%s", out)
	}
}
