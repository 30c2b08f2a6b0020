package box

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/agent"
	"github.com/divvy-gpu/divvy/internal/agent/agenttest"
	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/agent/daemon"
	"github.com/divvy-gpu/divvy/internal/agentconfig"
	"github.com/divvy-gpu/divvy/internal/backend/slice"
	"github.com/divvy-gpu/divvy/internal/driver"
	"github.com/divvy-gpu/divvy/internal/edits"
	"github.com/divvy-gpu/divvy/internal/install"
	"github.com/divvy-gpu/divvy/internal/install/installtest"
	"github.com/divvy-gpu/divvy/internal/nvml"
	"github.com/divvy-gpu/divvy/internal/simgpu"
	"github.com/divvy-gpu/divvy/internal/tenantdir"
)

// longest bounds every wait for something that takes milliseconds.
const longest = 5 * time.Minute

// fewestLooks are made at least: a virtual machine may stand still for longer than any limit.
const fewestLooks = 100

const gib = 1 << 30

// host is a simulated machine and the agent that serves it. All tests share one,
// because a process can load only one NVML.
type host struct {
	tree    install.Tree
	rundir  string
	store   simgpu.Store
	machine *simgpu.Instance
	library *nvml.Library
	agent   *agent.Agent
	gpu     string // UUID
	look    string // the program testdata/look.c
	stop    func()
}

var only struct {
	once sync.Once
	host *host
	err  error
	why  error // it is left out
}

// useHost returns the host, or skips the test where no container can be made.
func useHost(t *testing.T) *host {
	t.Helper()
	tree := installtest.Tree(t)
	only.once.Do(func() {
		if only.why = missing(); only.why == nil {
			only.host, only.err = startHost(tree)
		}
	})
	if only.why != nil {
		installtest.Missing(t, "runc", only.why)
	}
	if only.err != nil {
		t.Fatal(only.err)
	}
	return only.host
}

func TestMain(m *testing.M) {
	status := m.Run()
	if only.host != nil {
		only.host.stop()
	}
	os.Exit(status)
}

// missing returns why no container can be made, or nil.
func missing() error {
	if os.Getuid() != 0 {
		return os.ErrPermission
	}
	_, err := exec.LookPath("runc")
	return err
}

func startHost(tree install.Tree) (h *host, err error) {
	h = &host{tree: tree, stop: func() {}}
	if h.rundir, err = os.MkdirTemp("/dev/shm", "divvy-box-"); err != nil {
		return nil, err
	}
	undo := []func(){func() { os.RemoveAll(h.rundir) }}
	h.stop = func() {
		for i := len(undo) - 1; i >= 0; i-- {
			undo[i]()
		}
	}
	defer func() {
		if err != nil {
			h.stop()
		}
	}()
	// The system's agent gives its directory the same mode.
	if err := os.Chmod(h.rundir, 0o755); err != nil {
		return nil, err
	}
	h.look = filepath.Join(h.rundir, "look")
	if out, err := exec.Command("cc", "-Wall", "-Werror", "-o", h.look, "testdata/look.c", "-ldl").CombinedOutput(); err != nil {
		return nil, &exec.Error{Name: string(out), Err: err}
	}
	model, err := simgpu.Load("a100-80g")
	if err != nil {
		return nil, err
	}
	h.store = simgpu.NewStore(h.rundir, tree)
	ctx, cancel := context.WithCancel(context.Background())
	undo = append(undo, cancel)
	if h.machine, err = h.store.Start(ctx, "m", model, ""); err != nil {
		return nil, err
	}
	if h.library, err = nvml.Open(filepath.Join(h.machine.Dir, string(driver.NVML))); err != nil {
		return nil, err
	}
	gpus, err := h.library.GPUs()
	if err != nil {
		return nil, err
	}
	h.gpu = gpus[0].UUID
	stop, err := h.serve(h.rundir, agentconfig.OutsideReport, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	undo = append(undo, stop)
	return h, nil
}

// serve runs an agent whose state is in a directory, and returns what stops it.
func (h *host) serve(dir string, answer agentconfig.Outside, log *slog.Logger) (stop func(), err error) {
	tenants := filepath.Join(dir, "tenants")
	if err := os.MkdirAll(tenants, 0o755); err != nil {
		return nil, err
	}
	made := slice.New(slice.Options{
		Tenants: tenants, State: dir, Tree: h.tree, Instance: h.machine.Dir, Shared: true,
		Inventory: h.library, Finder: driver.Finder{Instance: h.machine.Dir}, Reap: daemon.NewReaper(h.tree), Log: log,
	})
	ctx, cancel := context.WithCancel(context.Background())
	h.agent, err = agent.New(ctx, agent.Config{
		Backends: agenttest.Backends(made), Driver: direct{h.library}, Log: log, Interval: time.Second, Now: time.Now,
		Checkpoint: filepath.Join(dir, "tenants.json"), Misuse: answer,
	})
	if err != nil {
		cancel()
		return nil, err
	}
	var running sync.WaitGroup
	running.Go(func() { h.agent.Run(ctx) })
	return func() { cancel(); running.Wait() }, nil
}

// withAgent is the host with another agent, which ends with the test.
func (h *host) withAgent(t *testing.T, answer agentconfig.Outside, log *slog.Logger) *host {
	t.Helper()
	dir, err := os.MkdirTemp(h.rundir, "agent-")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	other := *h
	stop, err := other.serve(dir, answer, log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	return &other
}

// prepare makes a tenant that ends with the test and returns what its
// containers need.
func (h *host) prepare(t *testing.T, memory uint64) edits.Edits {
	t.Helper()
	return h.prepareShare(t, agent.TenancyShare{UUID: h.gpu, Memory: memory})
}

func (h *host) prepareShare(t *testing.T, share agent.TenancyShare) edits.Edits {
	t.Helper()
	return h.prepareNamed(t, t.Name(), share)
}

func (h *host) prepareNamed(t *testing.T, name string, share agent.TenancyShare) edits.Edits {
	t.Helper()
	e, err := h.agent.Prepare(t.Context(), agent.Tenancy{
		Key: name, Name: "box/" + name, Shares: []agent.TenancyShare{share},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		eventually(t, "the tenant can be released", func() bool { return h.agent.Release(context.Background(), name) == nil })
	})
	return e
}

// tenant returns what the agent says about the test's tenant.
func (h *host) tenant(t *testing.T) control.Tenant {
	t.Helper()
	for _, tenant := range h.listing(t).Tenants {
		if tenant.Name == "box/"+t.Name() {
			return tenant
		}
	}
	t.Fatal("the agent does not list the tenant")
	return control.Tenant{}
}

func (h *host) listing(t *testing.T) *control.Listing {
	t.Helper()
	l, err := h.agent.Listing(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// truth returns what the simulated driver knows about the test's tenant.
func (h *host) truth(t *testing.T) (used uint64, processes []simgpu.ProcessReport) {
	t.Helper()
	id := h.tenant(t).ID
	report, err := h.store.Report(t.Context(), h.machine)
	if err != nil {
		t.Fatal(err)
	}
	for _, tenant := range report.Tenants {
		if tenant.Tenant == id {
			used = tenant.GPUs[0].Used
		}
	}
	for _, p := range report.Processes {
		if p.Tenant == id {
			processes = append(processes, p)
		}
	}
	return used, processes
}

// explain logs what the agent, the oracle, the kernel and the reaper say of the test's tenant.
func (h *host) explain(t *testing.T) {
	t.Helper()
	tenant := h.tenant(t)
	report, err := h.store.Report(t.Context(), h.machine)
	t.Logf("agent: %+v", tenant)
	t.Logf("oracle: %+v, %v", report, err)
	var stat syscall.Stat_t
	if err := syscall.Stat(tenantdir.Dir(tenant.Dir).State(), &stat); err != nil {
		t.Log(err)
	}
	locks, err := os.ReadFile("/proc/locks")
	for line := range strings.Lines(string(locks)) {
		if strings.Contains(line, fmt.Sprintf(":%d ", stat.Ino)) {
			t.Logf("lock on the state page: %s", line)
		}
	}
	out, reapErr := exec.Command(h.tree.Program("divvy-reap"), tenant.Dir).CombinedOutput()
	t.Logf("reaper: %s, %v, %v", out, reapErr, err)
	stats, _ := filepath.Glob("/proc/[0-9]*/status") // the pattern is well formed
	for _, path := range stats {
		text, _ := os.ReadFile(path)
		if status := string(text); strings.Contains(status, "gpubench") || strings.Contains(status, "State:\tZ") || strings.Contains(status, "State:\tX") {
			t.Logf("process: %s", strings.Join(strings.SplitN(status, "\n", 20), "; "))
		}
	}
}

// eventually waits for a condition that other processes make true.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	deadline := time.Now().Add(longest)
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for looks := 0; !condition(); looks++ {
		if looks >= fewestLooks && time.Now().After(deadline) {
			t.Fatalf("%s: not so after %d looks in %s", what, looks, longest)
		}
		<-ticker.C
	}
}

// direct asks the library in this process.
type direct struct{ *nvml.Library }

func (d direct) Holdings(gpus []int) []nvml.Holding {
	all := make([]nvml.Holding, len(gpus))
	for i, gpu := range gpus {
		all[i].Processes, all[i].Unlisted = d.Processes(gpu)
		all[i].Used, all[i].Unread = d.Used(gpu)
	}
	return all
}

func (d direct) Utilisations(gpus []int, since []time.Time) []nvml.Load {
	all := make([]nvml.Load, len(gpus))
	for i, gpu := range gpus {
		all[i].Samples, all[i].Err = d.Utilisation(gpu, since[i])
	}
	return all
}

func (d direct) Activities(gpus []int, since []time.Time) []nvml.Activity {
	all := make([]nvml.Activity, len(gpus))
	for i, gpu := range gpus {
		all[i].Samples, all[i].Err = d.Busy(gpu, since[i])
	}
	return all
}
