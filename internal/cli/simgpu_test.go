package cli

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/install"
	"github.com/divvy-gpu/divvy/internal/install/installtest"
	"github.com/divvy-gpu/divvy/internal/mps"
	"github.com/divvy-gpu/divvy/internal/rundir"
	"github.com/divvy-gpu/divvy/internal/simgpu"
)

// simgpuSession runs `divvy simgpu` several times on one run directory, with
// the programs that make has built.
func simgpuSession(t *testing.T) func(args ...string) (status int, out, errOut string) {
	t.Helper()
	t.Setenv(rundir.Variable, t.TempDir())
	t.Setenv(install.Variable, string(installtest.Tree(t)))
	return func(args ...string) (int, string, string) {
		var stdout, stderr bytes.Buffer
		status := Main(append([]string{"simgpu"}, args...), &stdout, &stderr)
		return status, stdout.String(), stderr.String()
	}
}

func TestSimgpuMachines(t *testing.T) {
	_, out, _ := call(t, "simgpu", "machines")
	golden(t, "simgpu-machines.table", out)
	_, out, _ = call(t, "simgpu", "machines", "-o", "json")
	golden(t, "simgpu-machines.json", out)
	status, out, _ := call(t, "simgpu", "machines", "t4")
	if status != 0 || !strings.HasPrefix(out, "apiVersion: divvy.dev/v1alpha1\n") {
		t.Errorf("status %d, file %q", status, out)
	}
}

func TestSimgpuTime(t *testing.T) {
	simgpu := simgpuSession(t)
	for _, step := range []struct {
		args   string
		status int
		out    string
		err    string
	}{
		{"start t4 --memory 1Gi --set clock=virtual", 0, "t4 runs", ""},
		{"clock --by 5ms", 0, "5000000\n", ""},
		{"clock t4 --by 1us", 0, "5001000\n", ""},
		{"clock", 0, "5001000\n", ""},
		{"clock --by=-1s", 1, "", "backwards"},
		{"slice", 2, "", "--of PID --to 2ms"},
		{"slice --of nobody --to 2ms", 1, "", "no process or tenant nobody"},
		{"slice --of nobody --to 2ns", 1, "", "neither 0 nor between"},
		{"start t4 --memory 1Gi --name host", 0, "host runs", ""},
		{"clock host --by 5ms", 1, "", "its clock is the host's"},
		{"start t4 --name late --set clock=soon", 1, "", "clock: \"soon\" is none of real, virtual"},
	} {
		status, out, errOut := simgpu(strings.Fields(step.args)...)
		if status != step.status || !strings.Contains(out, step.out) || !strings.Contains(errOut, step.err) {
			t.Errorf("%s: status %d, out %q, err %q", step.args, status, out, errOut)
		}
	}
}

func TestSimgpuFromStartToStop(t *testing.T) {
	simgpu := simgpuSession(t)
	for _, step := range []struct {
		args   string
		status int
		out    string
		err    string
	}{
		{"ls", 0, "No simulated machine runs.", ""},
		{"report", 1, "", "none runs: `divvy simgpu start a100-80g` starts one"},
		{"start t5", 1, "", "use one of a100-80g, a30, a800x8, b200x8, h100x8, h200x8, p100-16g, t4"},
		{"start t4 --memory 1Gi --seed 7", 0, "t4 runs", ""},
		{"start t4 --memory 1Gi --seed 7", 0, "t4 runs", ""},
		{"start t4", 1, "", "`divvy simgpu stop t4`"},
		{"start t4 --name Lab", 1, "", "lower case"},
		{"start t4 --name lab --memory 1Mi", 1, "", "--set: gpu.memory: 1Mi is not between"},
		{"report", 0, "GPU-", ""},
		{"report t4", 0, "No process uses a GPU.", ""},
		{"start a800x8", 0, "a800x8 runs", ""},
		{"report", 2, "", "a800x8, t4 run"},
		{"ls", 0, "a800x8", ""},
		{"inject t4 --gpu 3 --call nvml --return 1", 1, "", "numbered from 0"},
		{"inject t4 --call nvmlDeviceGetName --return 999", 0, "", ""},
		{"inject t4 --xid 79", 0, "", ""},
		{"inject t4 --clear", 0, "", ""},
		{"exec t4", 2, "", "put the command after --"},
		{"exec nosuch -- true", 1, "", "`divvy simgpu ls` lists them"},
		{"exec t4 -- /no/such/command", 1, "", "find command"},
		{"stop t4", 0, "", ""},
		{"stop t4", 1, "", "no such simulated machine"},
		{"stop", 0, "", ""},
		{"frobnicate", 2, "", "there is no `divvy simgpu frobnicate`"},
	} {
		status, out, errOut := simgpu(strings.Fields(step.args)...)
		if status != step.status || !strings.Contains(out, step.out) || !strings.Contains(errOut, step.err) {
			t.Errorf("divvy simgpu %s: status %d, %q, %q; want %d, %q, %q",
				step.args, status, out, errOut, step.status, step.out, step.err)
		}
	}
}

func TestSimgpuReportOfOneDocument(t *testing.T) {
	run := simgpuSession(t)
	if status, _, errOut := run("start", "h100x8"); status != 0 {
		t.Fatal(errOut)
	}
	t.Cleanup(func() { run("stop") })
	_, out, _ := run("report", "-o", "json")
	var report simgpu.Report
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		t.Fatal(err)
	}
	if len(report.GPUs) != 8 || report.Machine != "h100x8" || report.GPUs[7].PCI != "00000000:db:00.0" {
		t.Errorf("report %+v", report)
	}
}

func TestReportAsTable(t *testing.T) {
	const mib = 1 << 20
	report := &simgpu.Report{
		GPUs: []simgpu.GPUReport{
			{Index: 0, UUID: "GPU-00", Name: "Tesla T4", Total: 15360 * mib, Reserved: 430 * mib, Used: 1200 * mib, Peak: 2400 * mib, BusyNs: 2_500_000_000},
			{Index: 1, UUID: "GPU-01", Name: "Tesla T4", Total: 15360 * mib, Reserved: 430 * mib},
		},
		Processes: []simgpu.ProcessReport{
			{PID: 4101, Tenant: "train-1", Command: "python", GPUs: []simgpu.ProcessGPU{
				{Index: 0, Contexts: 1, Used: 1104 * mib, Context: 104 * mib, Linear: 1000 * mib, GPUNs: 2_400_000_000},
			}},
			{PID: 4102, Command: "spin", GPUs: []simgpu.ProcessGPU{{Index: 0, Contexts: 1, Used: 96 * mib, Context: 96 * mib, GPUNs: 1_500_000}}},
		},
		Tenants: []simgpu.TenantReport{
			{Tenant: "", GPUs: []simgpu.TenantGPU{{Index: 0, Used: 96 * mib, Peak: 96 * mib, GPUNs: 1_500_000}, {Index: 1}}},
			{Tenant: "train-1", GPUs: []simgpu.TenantGPU{{Index: 0, Used: 1104 * mib, Peak: 2304 * mib, GPUNs: 2_400_000_000}, {Index: 1}}},
		},
	}
	var w strings.Builder
	printReport(&w, report)
	golden(t, "simgpu-report.table", w.String())
	w.Reset()
	printReport(&w, &simgpu.Report{GPUs: report.GPUs[1:]})
	golden(t, "simgpu-report-idle.table", w.String())
}

func TestInstancesAsTable(t *testing.T) {
	time.Local = time.UTC
	at := time.Date(2026, 3, 1, 12, 30, 0, 0, time.UTC)
	var w strings.Builder
	printInstances(&w, []*simgpu.Instance{
		{Name: "lab", Dir: "/dev/shm/divvy-1000/simgpu/lab", Info: simgpu.Info{Machine: "t4", Started: at}},
	})
	golden(t, "simgpu-ls.table", w.String())
}

func TestInjectionsAreChecked(t *testing.T) {
	for _, c := range []struct {
		options injectOptions
		want    string
	}{
		{injectOptions{}, "say what to inject"},
		{injectOptions{call: "cuInit"}, "an error to return, a delay, or both"},
		{injectOptions{call: "printf", result: 1}, "neither a function of CUDA or NVML"},
		{injectOptions{call: "alloc", result: 2, count: 3}, "a count goes with the name of one function"},
		{injectOptions{call: "cuInit", delay: -1}, "is not between 0 and"},
		{injectOptions{call: "cuInit", delay: time.Hour}, "is not between 0 and"},
		{injectOptions{call: "nvml" + strings.Repeat("x", 60), result: 1}, "neither a function"},
		{injectOptions{clear: true, call: "cuInit"}, "--clear goes with --gpu only"},
	} {
		if _, err := c.options.injections(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v; want %s", c.options, err, c.want)
		}
	}
	both := injectOptions{call: "nvml", delay: time.Second, xid: 79}
	if list, err := both.injections(); err != nil || len(list) != 2 {
		t.Errorf("%+v: %v, %v", both, list, err)
	}
}

func TestDriverEnvironment(t *testing.T) {
	got := driverEnvironment([]string{"A=1", "LD_LIBRARY_PATH=/x:/y", "DIVVY_SIMGPU=/old"}, "/d")
	if want := []string{"A=1", "LD_LIBRARY_PATH=/d:/x:/y", "DIVVY_SIMGPU=/d"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	got = driverEnvironment([]string{"LD_LIBRARY_PATH="}, "/d")
	if want := []string{"LD_LIBRARY_PATH=/d", "DIVVY_SIMGPU=/d"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// A machine that is stopped by force leaves no control daemon of MPS, be its path as long as the path of a socket may be.
func TestForcedStopEndsDaemons(t *testing.T) {
	session := simgpuSession(t)
	short, err := os.MkdirTemp("/dev/shm", "divvy-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(short) })
	const longest = 107 // unix(7)
	rest := longest - len(filepath.Join(short, "d", "simgpu", "m", "mps", "GPU-0", "pipe", "control_privileged"))
	t.Setenv(rundir.Variable, filepath.Join(short, "d"+strings.Repeat("d", rest)))
	if status, _, errOut := session("start", "t4", "--memory", "1Gi", "--name", "m"); status != 0 {
		t.Fatal(errOut)
	}
	instance, err := simgpu.NewStore(rundir.Path(), installtest.Tree(t)).Open("m")
	if err != nil {
		t.Fatal(err)
	}
	daemon := mps.Daemon{UUID: "GPU-0", Dirs: mps.DirsOf(filepath.Join(instance.Dir, "mps"), "GPU-0"), Program: filepath.Join(instance.Dir, mps.ControlProgram)}
	if got := len(filepath.Join(daemon.Dirs.Pipe, "control_privileged")); got != longest {
		t.Fatalf("the path has %d bytes", got)
	}
	id, err := daemon.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = id.Signal(syscall.SIGKILL) })
	if status, _, errOut := session("stop", "m", "--force"); status != 0 {
		t.Error(errOut)
	}
	if id.Alive() {
		t.Errorf("the daemon, process %d, is left", id.PID)
	}
}
