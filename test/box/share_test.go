package box

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent"
	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/driver"
	"github.com/divvy-gpu/divvy/internal/edits"
	"github.com/divvy-gpu/divvy/internal/tenantdir"
)

// held returns what look prints in a share: the limit that CUDA reports, the limit
// that NVML reports, CUDA_ERROR_OUT_OF_MEMORY for an allocation of that size, how
// often NVML lists the program (once), and that both names lead to one library.
func held(limit int) string {
	return fmt.Sprintf("%d %d 2 1 same", limit, limit)
}

// A container finds its share whatever it does with its environment and with the
// files of its image.
func TestEveryContainerFindsItsShare(t *testing.T) {
	h := useHost(t)
	junk := "LD_LIBRARY_PATH=/nowhere:relative::/tmp"
	for name, c := range map[string]struct {
		change  func(c *container)
		command []string
	}{
		"plain":                 {nil, []string{"look"}},
		"no environment":        {nil, []string{"env", "-i", "/usr/bin/look"}},
		"no environment at all": {func(c *container) { c.spec.Process.Env = nil }, []string{"/usr/bin/look"}},
		"junk": {func(c *container) {
			c.spec.Process.Env = append(c.spec.Process.Env, junk, "LD_PRELOAD=libcuda.so.1", "DIVVY_SIMGPU=/nowhere")
		}, []string{"look"}},
		"another user": {func(c *container) { c.spec.Process.User.UID, c.spec.Process.User.GID = 4242, 4242 },
			[]string{"look"}},
		"read-only root":      {func(c *container) { c.spec.Root.Readonly = true }, []string{"look"}},
		"after ldconfig":      {nil, []string{"sh", "-c", "ldconfig && ldconfig -p >/dev/null && exec look"}},
		"ldconfig, no env":    {nil, []string{"sh", "-c", "ldconfig; rm -f /etc/ld.so.cache; ldconfig; exec env -i /usr/bin/look"}},
		"compat in the image": {func(c *container) { bringCompat(h, c) }, []string{"look"}},
		"a link in the image": {func(c *container) { linkInImage(c) }, []string{"sh", "-c", "ldconfig; exec look"}},
	} {
		t.Run(name, func(t *testing.T) {
			box := h.newContainer(t, h.prepare(t, gib))
			if c.change != nil {
				c.change(box)
			}
			if got := box.output(c.command...); got != held(gib) {
				t.Errorf("%s, want %s", got, held(gib))
			}
			eventually(t, "all is free", func() bool {
				used, processes := h.truth(t)
				return used == 0 && len(processes) == 0
			})
		})
	}
}

// bringCompat puts a complete driver into CUDA's compat folder of the image. A
// program that loads it gets around its share.
func bringCompat(h *host, c *container) {
	dir := filepath.Join(c.root, "usr/local/cuda-12.4/compat")
	copyFile(c.t, filepath.Join(h.machine.Dir, string(driver.CUDA)), filepath.Join(dir, string(driver.CUDA)))
	if err := os.Symlink("/usr/local/cuda-12.4", filepath.Join(c.root, "usr/local/cuda")); err != nil {
		c.t.Fatal(err)
	}
	if err := os.Symlink("cuda-none", filepath.Join(c.root, "usr/local/cuda-11")); err != nil {
		c.t.Fatal(err)
	}
	c.spec.Process.Env = append(c.spec.Process.Env, "LD_LIBRARY_PATH=/usr/local/cuda/compat", "DIVVY_SIMGPU="+h.machine.Dir)
}

// Without the hook a program loads the image's driver, so the test above can fail.
func TestADriverInTheImageLeadsAroundTheShare(t *testing.T) {
	h := useHost(t)
	box := h.newContainer(t, h.prepare(t, gib))
	bringCompat(h, box)
	box.spec.Hooks = nil
	if got := box.output("look"); got == held(gib) {
		t.Error("the image's driver was not found")
	}
}

// Who looks for the image's driver is told why it is gone, and nobody can put one back.
func TestCoveredFolderSaysWhy(t *testing.T) {
	h := useHost(t)
	box := h.newContainer(t, h.prepare(t, gib))
	bringCompat(h, box)
	for _, user := range []bool{false, true} {
		if user {
			box = h.newContainer(t, h.prepare(t, gib))
			bringCompat(h, box)
			box.inUserNamespace()
		}
		got := box.output("sh", "-c", `cd /usr/local/cuda/compat && echo *; while read -r line; do echo "$line"; done <README.divvy; (: >x) 2>/dev/null && echo writable; true`)
		if want := "README.divvy\nDivvy covers CUDA's forward-compatibility libraries: a share has the driver of its machine."; got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// Root of a container with a user namespace is nobody on the host.
func TestUserNamespace(t *testing.T) {
	h := useHost(t)
	box := h.newContainer(t, h.prepare(t, gib))
	box.inUserNamespace()
	if got := box.output("look"); got != held(gib) {
		t.Errorf("%s, want %s", got, held(gib))
	}
}

// linkInImage gives the image a driver as some images have it: a link to a file
// whose name contains the version.
func linkInImage(c *container) {
	dir := filepath.Join(c.root, driver.Folders()[0])
	if err := os.WriteFile(filepath.Join(dir, "libcuda.so.535.1"), []byte("another driver"), 0o755); err != nil {
		c.t.Fatal(err)
	}
	if err := os.Symlink("libcuda.so.535.1", filepath.Join(dir, "libcuda.so.1")); err != nil {
		c.t.Fatal(err)
	}
}

// The containers of one tenant share one limit, also by the oracle's record.
func TestContainersOfOneTenantCountTogether(t *testing.T) {
	h := useHost(t)
	e := h.prepare(t, 3*gib)
	first := h.newContainer(t, e).hold("gpubench", "hold", "--bytes", "1Gi")
	if !strings.Contains(first.first, "CUDA_SUCCESS") {
		t.Fatal(first.first)
	}
	used, processes := h.truth(t)
	if tenant := h.tenant(t); used < gib || tenant.Shares[0].Used < used || len(processes) != 1 {
		t.Errorf("the oracle knows of %d bytes and %+v, the agent %+v", used, processes, tenant.Shares[0])
	}
	if got := h.newContainer(t, e).output("sh", "-c", "gpubench alloc --bytes 2Gi || true"); !strings.Contains(got, "OUT_OF_MEMORY") {
		t.Errorf("2Gi beside 1Gi of 3Gi: %s", got)
	}
	second := h.newContainer(t, e).hold("gpubench", "hold", "--bytes", "256Mi")
	if !strings.Contains(second.first, "CUDA_SUCCESS") {
		t.Errorf("what fits: %s", second.first)
	}
	// Each has pid 1 in its namespace; agent and oracle name it by its pid on the host.
	want := []int{first.init(), second.init()}
	slices.Sort(want)
	eventually(t, "the agent names the processes as the host does", func() bool {
		return slices.Equal(pids(h.tenant(t)), want)
	})
	var oracle []int
	_, processes = h.truth(t)
	for _, p := range processes {
		oracle = append(oracle, p.PID)
	}
	if slices.Sort(oracle); !slices.Equal(oracle, want) {
		t.Errorf("the oracle names %v, want %v", oracle, want)
	}
	if outside := h.listing(t).Outside; len(outside) > 0 {
		t.Errorf("outside its share: %+v", outside)
	}
	first.end()
	second.end()
}

func pids(t control.Tenant) []int {
	var found []int
	for _, p := range t.Shares[0].Process {
		found = append(found, p.PID)
	}
	slices.Sort(found)
	return found
}

// The memory of a killed container becomes free, by a reaper without privileges.
func TestKilledContainerIsReaped(t *testing.T) {
	h := useHost(t)
	r := h.newContainer(t, h.prepare(t, 2*gib)).hold("gpubench", "hold", "--bytes", "1Gi")
	if used := h.tenant(t).Shares[0].Used; used < gib {
		t.Fatalf("%d bytes are used", used)
	}
	t.Cleanup(func() {
		if t.Failed() {
			h.explain(t)
		}
	})
	if err := syscall.Kill(r.init(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "its memory is free", func() bool {
		used, _ := h.truth(t)
		return h.tenant(t).Shares[0].Used == 0 && used == 0
	})
	if fault := h.tenant(t).Fault; fault != "" {
		t.Error(fault)
	}
	eventually(t, "the agent tells that it reaped it", func() bool {
		return slices.ContainsFunc(h.listing(t).Events, func(e control.Event) bool {
			return e.Kind == control.EventReaped && e.Tenant == "box/"+t.Name()
		})
	})
}

// A process that reaches the driver beside its share is reported with its tenant.
func TestLeavingAContainersShareIsReported(t *testing.T) {
	h := useHost(t)
	original := filepath.Join(edits.ShareDir, driver.CUDA.Real())
	r := h.newContainer(t, h.prepare(t, gib)).hold("look", original, strconv.Itoa(2*gib))
	if r.first != "0" {
		t.Fatalf("through the driver's own library: %s", r.first)
	}
	eventually(t, "it is reported", func() bool {
		return slices.ContainsFunc(h.listing(t).Outside, func(o control.Outside) bool {
			return o.PID == r.init() && o.Tenant == "box/"+t.Name() && o.Used != nil && *o.Used >= 2*gib
		})
	})
}

// GPU time that a process takes beside its share is reported for its container's tenant.
func TestTimeTakenBesideAShareIsReported(t *testing.T) {
	h := useHost(t)
	box := h.newContainer(t, h.prepareShare(t, agent.TenancyShare{
		UUID: h.gpu, Memory: 2 * gib, Cores: 10, Config: v1alpha1.ShareConfig{Policy: v1alpha1.PolicyFixed},
	}))
	box.spec.Process.Env = append(box.spec.Process.Env, "DIVVY_SIMGPU="+h.machine.Dir)
	box.hold("sh", "-c", `mkdir /tmp/x && ln -s "$0" /tmp/x/libcuda.so.1 && echo &&
LD_LIBRARY_PATH=/tmp/x exec gpubench load --ns 5000000 --seconds 3600`, filepath.Join(edits.ShareDir, driver.CUDA.Real()))
	eventually(t, "it is reported", func() bool {
		return slices.ContainsFunc(h.listing(t).Events, func(e control.Event) bool {
			return e.Kind == control.EventMisuse && e.Tenant == "box/"+t.Name()
		})
	})
	box.remove()
}

// An offline container sees whether an online neighbour has work, also a neighbour
// that started later.
func TestOfflineContainerSeesOnlineNeighbours(t *testing.T) {
	h := useHost(t)
	share := agent.TenancyShare{UUID: h.gpu, Memory: gib, Config: v1alpha1.ShareConfig{Class: v1alpha1.ClassOffline}}
	box := h.newContainer(t, h.prepareShare(t, share))
	box.spec.Process.User.UID = 4242
	box.spec.Root.Readonly = true
	offline := box.hold("sh", "-c", `cd "$0"; echo; until (cat beat.0.0 >/dev/null) 2>/dev/null; do :; done; (: >>beat.0.0) 2>/dev/null || exit 7`, edits.ShareDir)
	share.Config.Class = v1alpha1.ClassOnline
	h.prepareNamed(t, t.Name()+"-online", share)
	ended := make(chan struct{})
	go func() {
		_ = offline.cmd.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(longest):
		offline.remove()
		<-ended
	}
	if status := offline.cmd.ProcessState.ExitCode(); status != 7 {
		t.Errorf("exit status %d, want 7: it can be read and not written", status)
	}
}

// Root in a container can write only the pages that its tenant may write.
func TestContainersRootCannotChangeItsShare(t *testing.T) {
	h := useHost(t)
	e := h.prepare(t, gib)
	attack := `cd "$0"; for f in *; do
	if [ ! -h "$f" ] && (: >>"$f") 2>/dev/null; then echo "$f"; fi
	rm -f "$f" 2>/dev/null && echo "may remove $f"
done
(: >added) 2>/dev/null && echo "may add"
mount -o remount,rw "$0" 2>/dev/null && echo "may mount"
exec env -i look`
	got := h.newContainer(t, e).output("sh", "-c", attack, edits.ShareDir)
	if want := "pulse.0\nstate\n" + held(gib); got != want {
		t.Errorf("it may write, and then sees:\n%s\nwant:\n%s", got, want)
	}
	// Everybody may write the state page, but on the host nobody else can reach it.
	state := tenantdir.Dir(h.tenant(t).Dir).State()
	if info, err := os.Stat(state); err != nil || info.Mode().Perm() != 0o666 {
		t.Fatalf("%v, %v", info, err)
	}
	cmd := exec.Command("sh", "-c", `: >>"$0"`, state)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 4242, Gid: 4242}}
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "ermission denied") {
		t.Errorf("another user of the host: %v, %s", err, out)
	}
}
