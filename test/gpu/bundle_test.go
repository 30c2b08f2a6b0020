package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/install/installtest"
	"github.com/divvy-gpu/divvy/internal/version"
	"github.com/divvy-gpu/divvy/test/shipped"
)

// nobody is the user as whom the bundle runs where the tests run as root.
const nobody = 65534

// unpacked is the archive in an empty folder on a path with blanks, all of it the user's who will run it as bundled.
func unpacked(t *testing.T) (folder string) {
	t.Helper()
	folder = mine(t)
	if os.Getuid() == 0 {
		if said, err := exec.Command("chown", "-R", "65534:65534", filepath.Dir(folder)).CombinedOutput(); err != nil {
			t.Fatalf("give away: %v: %s", err, said)
		}
	}
	return folder
}

// mine is the same for the tests' own user.
func mine(t *testing.T) (folder string) {
	t.Helper()
	pattern := filepath.Join(string(installtest.Tree(t)), "test/gpu", "divvy-gpu-test-"+version.Number()+"-*.tar.gz")
	found, err := filepath.Glob(pattern)
	if err != nil || len(found) != 1 {
		t.Fatalf("archives at %s: %v, %v: run `make gpu-test-bundle` first", pattern, found, err)
	}
	// Not t.TempDir(), whose parent another user cannot enter; nor /tmp, over which a test mounts.
	top, err := os.MkdirTemp("/var/tmp", "gpu test ")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(top) })
	if said, err := exec.Command("tar", "-C", top, "-xzf", found[0]).CombinedOutput(); err != nil {
		t.Fatalf("unpack: %v: %s", err, said)
	}
	names, _ := filepath.Glob(filepath.Join(top, "*"))
	if len(names) != 1 {
		t.Fatalf("the archive has %v, want one folder", names)
	}
	return names[0]
}

// bundled prepares a run of the bundle by an ordinary user who has no programs and no home.
func bundled(t *testing.T, folder string, args ...string) *exec.Cmd {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, filepath.Join(folder, "gpu-test"), args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = time.Minute
	cmd.Dir = folder
	cmd.Env = []string{"PATH=" + filepath.Join(folder, "nothing"), "HOME=/home/ada.of.quark", "USER=ada.of.quark", "HOSTNAME=quark17.example.org"}
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	if os.Getuid() == 0 {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: nobody, Gid: nobody}
	}
	return cmd
}

// reported reads the report: its page for people, and what it has for programs.
func reported(t *testing.T, file string) (page string, r report) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	page, rest, found := strings.Cut(string(text), "```json\n")
	if !found {
		t.Fatalf("no JSON in the report:\n%s", text)
	}
	if err := json.Unmarshal([]byte(strings.TrimSuffix(rest, "\n```\n")), &r); err != nil {
		t.Fatalf("%v:\n%s", err, rest)
	}
	return page, r
}

// outcomes are those of a report by the cases' names.
func (r report) outcomes() map[string]outcome {
	list := map[string]outcome{}
	for _, c := range r.Cases {
		list[c.Name] = c
	}
	return list
}

// leftBehind are the processes that still run a program of the folder.
func leftBehind(folder string) (found []string) {
	links, _ := filepath.Glob("/proc/[0-9]*/exe")
	for _, link := range links {
		if program, err := os.Readlink(link); err == nil && strings.HasPrefix(program, folder) {
			found = append(found, program)
		}
	}
	return found
}

// The whole bundle runs as an ordinary user without any program of the machine's, and says of every case what became of
// it. What it finds out about the simulated driver is judged elsewhere; times depend on this machine's load.
func TestBundleRunsWhole(t *testing.T) {
	t.Parallel()
	folder := unpacked(t)
	said, err := bundled(t, folder, "-simgpu", "a100-80g").CombinedOutput()
	var ended *exec.ExitError
	if err != nil && (!errors.As(err, &ended) || ended.ExitCode() != 1) {
		t.Fatalf("%v: %s", err, said)
	}
	page, r := reported(t, filepath.Join(folder, reportName))
	if !r.Simulated || r.Unfinished || len(r.GPUs) != 1 || r.GPUs[0].Name != "NVIDIA A100 80GB PCIe" || r.Driver != "550.90.07" {
		t.Errorf("the report is of %+v", r)
	}
	elsewhere := []string{"mps", "nvidia_smi", "sanitizer", "nsys", "gdb"}
	outcomes := r.outcomes()
	for _, c := range choose(everyCase) {
		o := outcomes[c.name]
		switch {
		case slices.Contains(elsewhere, c.name) || strings.HasPrefix(c.name, "torch_"):
			if o.Outcome != skipped || !strings.HasSuffix(o.Why, "is not here") && !strings.Contains(o.Why, "does not work natively") {
				t.Errorf("%s: %s, %s, want it skipped", c.name, o.Outcome, o.Why)
			}
		case c.name == "suspend":
			if o.Outcome != skipped || !strings.HasPrefix(o.Why, "the driver has no checkpoints") {
				t.Errorf("%s: %s, %s, want it skipped", c.name, o.Outcome, o.Why)
			}
		case c.name == "mig_share":
			if o.Outcome != skipped || !strings.HasPrefix(o.Why, "no GPU is in MIG mode") {
				t.Errorf("%s: %s, %s, want it skipped", c.name, o.Outcome, o.Why)
			}
		case strings.HasPrefix(c.name, "time_") || c.name == "legacy_stream":
			if o.Outcome == failed {
				t.Errorf("%s: %s", c.name, o.Why)
			}
		case o.Outcome != passed:
			t.Errorf("%s: %s, %s", c.name, o.Outcome, o.Why)
		}
		if !strings.Contains(page, "| "+c.name+" | "+o.Outcome) {
			t.Errorf("the page does not have %s, %s", c.name, o.Outcome)
		}
	}
	for _, id := range []string{"`gpu.alloc_added_ns, 1 live`", "`gpu.alloc_added_ns, 20000 live`", "`gpu.account_error_mib`"} {
		if strings.Count(page, id) != 1 {
			t.Errorf("the page does not have %s once", id)
		}
	}
	nothingTold(t, folder, page)
	if left := leftBehind(folder); len(left) > 0 {
		t.Errorf("processes are left: %v", left)
	}
}

// No file of the archive needs a newer C library than CentOS 7's.
func TestBundleNeedsAnOldLibc(t *testing.T) {
	t.Parallel()
	folder := unpacked(t)
	seen := 0
	for _, pattern := range []string{"gpu-test", "bin/*", "lib/*/*", "libexec/*/*"} {
		files, _ := filepath.Glob(filepath.Join(folder, pattern))
		for _, file := range files {
			needs, err := shipped.Needs(file)
			if err != nil {
				t.Error(err)
			}
			for _, n := range needs {
				if seen++; slices.Compare(n.Version, []int{2, 17}) > 0 {
					t.Errorf("%s needs %s of %v", file, n.Name, n.Version)
				}
			}
		}
	}
	if seen == 0 {
		t.Error("no file needs anything of the C library: this test finds nothing in it")
	}
}

// nothingTold fails the test if a report tells whose machine it is from.
func nothingTold(t *testing.T, folder, page string) {
	t.Helper()
	host, _ := os.Hostname()
	for _, secret := range []string{host, "quark.*", "ada", regexp.QuoteMeta(folder), "gpu test ", "(GPU|MIG)-[0-9a-f].*", ".*/gpu-test-.*"} {
		if at := regexp.MustCompile(`\b` + secret + `\b`).FindStringIndex(page); secret != "" && at != nil {
			t.Errorf("the report tells %q: …%s…", secret, page[max(0, at[0]-60):min(len(page), at[1]+60)])
		}
	}
}

// Machines that are not ideal: a case is skipped with the reason, or says what it saw; none hangs.
func TestBundleOnOddMachines(t *testing.T) {
	t.Parallel()
	folder := unpacked(t)
	for name, c := range map[string]struct {
		machine string
		changes [][2]string // lines of the machine's file
		only    string
		want    map[string]string // how a case's line begins
	}{
		"several GPUs":     {"a800x8", nil, "limit|processes", map[string]string{"limit": passed, "processes": passed}},
		"MIG":              {"a100-80g", [][2]string{{`- {pci: `, "- {migMode: true, pci: "}}, "limit|kinds|mig_.*", map[string]string{"limit": "skipped: GPU 0 (NVIDIA A100 80GB PCIe) is in MIG mode", "kinds": "skipped: GPU 0", "mig_profiles": passed, "mig_share": passed}},
		"MIG of its own":   {"a100-80g", [][2]string{{`- {pci: `, "- {migMode: true, pci: "}, {`starts: \[0, 4\]`, "starts: [0]"}}, "mig_profiles", map[string]string{"mig_profiles": "another answer: [3g.40gb]"}},
		"checkpoints":      {"b200x8", nil, "suspend", map[string]string{"suspend": passed}},
		"no MIG":           {"t4", nil, "mig_.*", map[string]string{"mig_profiles": "skipped: no GPU has MIG", "mig_share": "skipped: no GPU is in MIG mode"}},
		"full":             {"t4", [][2]string{{`(?m)^  memory: .*$`, "  memory: 2Gi"}}, "limit|aliases", map[string]string{"limit": "skipped: the GPU has only", "aliases": passed}},
		"old":              {"t4", [][2]string{{`computeCapability: .*`, `computeCapability: "6.1"`}}, "backend_.*", map[string]string{"backend_timeslice": passed, "backend_mps": "skipped: the GPU is older than MPS with limits"}},
		"hidden processes": {"a100-80g", [][2]string{{`sampling: {`, "sampling: {processes: hidden, "}}, "account|processes", map[string]string{"account": passed, "processes": "another answer: natively a program finds itself, without"}},
		"foreign pids":     {"a100-80g", [][2]string{{`sampling: {`, "sampling: {processes: foreign, "}}, "processes", map[string]string{"processes": "another answer: natively a program does not find itself"}},
	} {
		t.Run(name, func(t *testing.T) {
			file := machineFile(t, folder, c.machine, c.changes)
			out := filepath.Join(folder, name+".md")
			said, _ := bundled(t, folder, "-simgpu", file, "-only", "^("+c.only+")$", "-out", out).CombinedOutput()
			_, r := reported(t, out)
			outcomes := r.outcomes()
			for name, want := range c.want {
				if line := outcomes[name].line(); !strings.HasPrefix(line, want) {
					t.Errorf("%s: %s, want %s\n%s", name, line, want, said)
				}
			}
		})
	}
}

// On a machine whose only GPU is in MIG mode a share on an instance is tried, and the report is one of a machine that was.
func TestBundleOnAnInstance(t *testing.T) {
	t.Parallel()
	folder := unpacked(t)
	file := machineFile(t, folder, "a100-80g", [][2]string{{`- {pci: `, "- {migMode: true, pci: "}})
	cmd := bundled(t, folder, "-simgpu", file, "-only", "^(limit|mig_share|left)$")
	said, err := cmd.CombinedOutput()
	page, r := reported(t, filepath.Join(folder, reportName))
	o := r.outcomes()["mig_share"]
	if err != nil || o.Outcome != passed || !strings.Contains(page, "**No whole GPU was tried:**") || !bytes.Contains(said, []byte("mig_share")) {
		t.Fatalf("%v, %+v: %s\n%s", err, o, said, page)
	}
	facts := map[string]fact{}
	for _, f := range o.Facts {
		facts[f.What] = f
	}
	if f := facts["multiprocessors"]; f.Native != "14" || f.Share != "14" {
		t.Errorf("multiprocessors: %+v", f)
	}
	if f := facts["GPUs and instances"]; f.Native != "1" || f.Share != "GPU 0: 1g.10gb" {
		t.Errorf("the share sees %+v", f)
	}
	nothingTold(t, folder, page)
}

// A machine without a GPU is told at once, and the report says so.
func TestBundleWithoutAGPU(t *testing.T) {
	t.Parallel()
	folder := unpacked(t)
	if matches, _ := filepath.Glob("/dev/nvidia[0-9]*"); len(matches) > 0 {
		t.Skip("this machine has a GPU")
	}
	cmd := bundled(t, folder)
	said, _ := cmd.CombinedOutput()
	const why = "NVML cannot be asked: no driver of NVIDIA's is found here: open NVML: libnvidia-ml.so.1"
	if cmd.ProcessState.ExitCode() != 2 || bytes.Count(said, []byte(why)) != 1 || bytes.Contains(said, []byte("limit ")) {
		t.Errorf("%s: %s", cmd.ProcessState, said)
	}
	nothingTried(t, filepath.Join(folder, reportName), why)
}

// A GPU that the machine does not have is told with those that it has.
func TestBundleOnAGPUThatIsNotThere(t *testing.T) {
	t.Parallel()
	folder := unpacked(t)
	cmd := bundled(t, folder, "-simgpu", "a800x8", "-gpu", "9")
	said, _ := cmd.CombinedOutput()
	const why = "there is no GPU 9: -gpu takes an index from 0 to 7"
	if cmd.ProcessState.ExitCode() != 2 || !bytes.Contains(said, []byte(why)) {
		t.Errorf("%s: %s", cmd.ProcessState, said)
	}
	nothingTried(t, filepath.Join(folder, reportName), why)
}

// nothingTried fails the test unless a report says why nothing was tried, and claims nothing else.
func nothingTried(t *testing.T, file, why string) {
	t.Helper()
	page, r := reported(t, file)
	if !strings.Contains(page, "**Nothing was tried:** "+why) || strings.Contains(page, "was tried.") || strings.Contains(page, "| limit |") {
		t.Errorf("the page says\n%s", page)
	}
	if o := r.outcomes()["limit"]; o.Outcome != skipped || !strings.HasPrefix(o.Why, why) {
		t.Errorf("the report says %+v", o)
	}
}

// A simulated driver that the caller's environment leads to is no GPU, whatever it says of itself.
func TestBundleKnowsASimulatedDriver(t *testing.T) {
	t.Parallel()
	folder := unpacked(t)
	instance := startedMachine(t, folder)
	for name, where := range map[string]string{"its folder": instance, "a link": filepath.Join(folder, "link")} {
		if where != instance {
			if err := os.Symlink(instance, where); err != nil {
				t.Fatal(err)
			}
		}
		cmd := bundled(t, folder, "-only", "^aliases$", "-out", "simulated.md")
		cmd.Env = append(cmd.Env, "LD_LIBRARY_PATH="+where)
		if said, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, said)
		}
		page, r := reported(t, filepath.Join(folder, "simulated.md"))
		if !r.Simulated || !strings.HasPrefix(page, "# Divvy on a simulated GPU") {
			t.Errorf("%s: the report says\n%s", name, page)
		}
	}
}

// startedMachine is the folder of a simulated machine that runs until the test's end.
func startedMachine(t *testing.T, folder string) string {
	t.Helper()
	runs := filepath.Join(folder, "r")
	divvy := func(args ...string) ([]byte, error) {
		cmd := bundled(t, folder)
		cmd.Path, cmd.Args = filepath.Join(folder, "bin", "divvy"), append([]string{"divvy", "simgpu"}, args...)
		cmd.Env = append(cmd.Env, "DIVVY_RUNDIR="+runs)
		return cmd.CombinedOutput()
	}
	if said, err := divvy("start", "t4"); err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	t.Cleanup(func() { _, _ = divvy("stop", "--force", "t4") })
	return filepath.Join(runs, "simgpu", "t4")
}

// Ctrl-C ends everything and leaves a report.
func TestBundleInterrupted(t *testing.T) {
	t.Parallel()
	folder := unpacked(t)
	cmd := bundled(t, folder, "-simgpu", "a100-80g", "-only", "limit|time_cost|left")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	said := make([]byte, len("limit"))
	if _, err := out.Read(said); err != nil { // time_cost is next
		t.Fatal(err)
	}
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	var rest bytes.Buffer
	_, _ = rest.ReadFrom(out)
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 1 {
		t.Errorf("%v: %s", err, rest.String())
	}
	_, r := reported(t, filepath.Join(folder, reportName))
	if o := r.outcomes()["time_cost"]; !r.Unfinished || o.Outcome != skipped {
		t.Errorf("not finished: %v; time_cost: %+v", r.Unfinished, o)
	}
	if left := leftBehind(folder); len(left) > 0 {
		t.Errorf("processes are left: %v", left)
	}
}

// What the time for all cases was too short for is skipped, and the test does not end as if all were well.
func TestBundleOutOfTime(t *testing.T) {
	t.Parallel()
	folder := unpacked(t)
	cmd := bundled(t, folder, "-simgpu", "a100-80g", "-only", "^(limit|time_pair)$", "-limit", "2s")
	said, _ := cmd.CombinedOutput()
	_, r := reported(t, filepath.Join(folder, reportName))
	if o := r.outcomes()["time_pair"]; cmd.ProcessState.ExitCode() != 1 || !r.Unfinished || o.Outcome != skipped {
		t.Errorf("%s, not finished: %v, time_pair: %+v: %s", cmd.ProcessState, r.Unfinished, o, said)
	}
}
