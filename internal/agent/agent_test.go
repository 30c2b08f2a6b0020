package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/agenttest"
	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/edits"
	"github.com/divvy-gpu/divvy/internal/nvml"
	"github.com/divvy-gpu/divvy/internal/page"
	"github.com/divvy-gpu/divvy/internal/process"
	"github.com/divvy-gpu/divvy/internal/tenantdir"
)

const (
	gib     = 1 << 30
	firstID = "GPU-00000000-0000-4000-8000-000000000001"
	otherID = "GPU-00000000-0000-4000-8000-000000000002"
)

// pages is a backend that makes tenants of pages alone.
type pages struct {
	*tenantdir.Tenants
	dir     string
	fail    error  // of Apply
	more    int    // how many GPUs of 24 GiB there are besides these two
	lost    string // UUID of a GPU that does not answer
	applied atomic.Int32
}

func (b *pages) Discover(context.Context) ([]backend.GPU, error) {
	gpus := []backend.GPU{
		{Index: 0, UUID: firstID, Total: 81 * gib, Reserved: gib, ContextBytes: gib / 2, Unit: page.Unit},
		{Index: 1, UUID: otherID, Total: 24 * gib, ContextBytes: gib / 2, Unit: page.Unit},
	}
	for i := range b.more {
		gpus = append(gpus, backend.GPU{
			Index: 2 + i, UUID: fmt.Sprintf("GPU-00000000-0000-4000-8000-%012d", 3+i), Total: 24 * gib, ContextBytes: gib / 2, Unit: page.Unit,
		})
	}
	return slices.DeleteFunc(gpus, func(g backend.GPU) bool { return g.UUID == b.lost }), nil
}

func (b *pages) Plan(t backend.Tenant) (*backend.Plan, error) {
	dir := b.Dir(t)
	step := pageStep{backend: b, dir: dir, tenant: t}
	return &backend.Plan{Dir: string(dir), Steps: []backend.Step{step}, Edits: edits.Edits{Env: []edits.Env{{Name: "T", Value: string(dir)}}}}, nil
}

func (b *pages) Apply(ctx context.Context, p *backend.Plan) error { return p.Apply(ctx) }
func (b *pages) Health(context.Context) error                     { return nil }
func (b *pages) Undo(_ context.Context, t backend.Tenant) error   { return tenantdir.Dir(t.Dir).Remove() }

type pageStep struct {
	backend *pages
	dir     tenantdir.Dir
	tenant  backend.Tenant
}

func (s pageStep) Apply() error {
	s.backend.applied.Add(1)
	if s.backend.fail != nil {
		return s.backend.fail
	}
	c, err := tenantdir.Encode(s.tenant, 1)
	if err != nil {
		return err
	}
	if err := s.dir.Make(&c, s.tenant.Record, tenantdir.AccessOwner, -1); err != nil {
		return err
	}
	return s.dir.Owe(&c, s.tenant.Shares)
}

func (s pageStep) Undo() error { return s.dir.Remove() }

// lister is a driver that lists what the test puts there.
type lister struct {
	processes atomic.Pointer[[]nvml.Process]
	// busy is the part of the first GPU's time by pid; without it the driver
	// does not tell.
	busy atomic.Pointer[map[int]float64]
	// asked is called while it answers who is on GPUs; it may be nil.
	asked atomic.Pointer[func()]
	// used is what it says that the first GPU has in use, and instances the same of its MIG instances.
	used      atomic.Uint64
	instances atomic.Pointer[[]nvml.InstanceMemory]
}

func (l *lister) Version() nvml.Version  { return nvml.Version{Driver: "550.1"} }
func (l *lister) list(p ...nvml.Process) { l.processes.Store(&p) }
func (l *lister) Holdings(gpus []int) []nvml.Holding {
	if asked := l.asked.Load(); asked != nil {
		(*asked)()
	}
	all := make([]nvml.Holding, len(gpus))
	for i, gpu := range gpus {
		if p := l.processes.Load(); p != nil && gpu == 0 {
			all[i].Processes = *p
		}
		if gpu == 0 {
			all[i].Used = l.used.Load()
			if m := l.instances.Load(); m != nil {
				all[i].Instances = *m
			}
		}
	}
	return all
}
func (l *lister) Activities(gpus []int, _ []time.Time) []nvml.Activity {
	all := make([]nvml.Activity, len(gpus))
	for i := range all {
		all[i].Err = nvml.ErrNotSupported
	}
	return all
}

func (l *lister) Utilisations(gpus []int, _ []time.Time) []nvml.Load {
	all := make([]nvml.Load, len(gpus))
	for i, gpu := range gpus {
		busy := l.busy.Load()
		if busy == nil {
			all[i].Err = nvml.ErrNotSupported
			continue
		}
		for pid, part := range *busy {
			if gpu == 0 {
				all[i].Samples = append(all[i].Samples, nvml.Utilisation{PID: pid, At: time.Now(), Busy: part})
			}
		}
	}
	return all
}

// unread is what a driver tells that tells nothing.
func unread(gpus []int, err error) []nvml.Holding {
	all := make([]nvml.Holding, len(gpus))
	for i := range all {
		all[i] = nvml.Holding{Unlisted: err, Unread: err}
	}
	return all
}

// node is one machine on which agents come and go.
type node struct {
	t       *testing.T
	dir     string
	backend *pages
	driver  *lister
	reaps   atomic.Int32
	closing atomic.Bool // the dead have not closed the driver's files yet
	closed  atomic.Bool // no descriptor of exported memory is left
	// interval of the agents to come; an hour leaves notices alone.
	interval time.Duration
	step     func(string) // of the agents to come
}

func newNode(t *testing.T) *node {
	t.Helper()
	dir := t.TempDir()
	n := &node{t: t, dir: dir, backend: &pages{dir: filepath.Join(dir, "tenants")}, driver: &lister{}, interval: time.Hour}
	n.backend.Tenants = tenantdir.NewTenants(tenantdir.Config{
		Root: n.backend.dir, PIDNamespace: 1, Reap: n.reap, Log: slog.New(slog.DiscardHandler), Step: n.at,
	})
	return n
}

// reap does what divvy-reap does: it frees the slots of the dead.
func (n *node) reap(_ context.Context, dir tenantdir.Dir, _ int) error {
	n.reaps.Add(1)
	if n.closing.Load() {
		return nil
	}
	file, err := os.OpenFile(dir.State(), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer file.Close()
	snapshot, err := page.ReadState(file.Name(), 1)
	if err != nil {
		return err
	}
	for _, p := range snapshot.Processes {
		if !p.Live {
			writeSlot(file, p.Slot, 0, 0)
		}
	}
	if n.closed.Load() && snapshot.ByDescriptor() {
		writeExport(file, 0)
		writeSlot(file, 0, 0, 0)
	}
	return nil
}

// running is one agent of the node.
type running struct {
	*Agent
	cancel context.CancelFunc
	done   chan struct{}
}

// idle is an agent of which nothing runs.
func (n *node) idle() *Agent {
	n.t.Helper()
	return n.idleWith(n.backend)
}

func (n *node) idleWith(b backend.Backend) *Agent {
	n.t.Helper()
	a, err := New(context.Background(), n.settings(b))
	if err != nil {
		n.t.Fatal(err)
	}
	return a
}

func (n *node) settings(b backend.Backend) Config {
	return Config{
		Backends: agenttest.Backends(b), Driver: n.driver, Checkpoint: filepath.Join(n.dir, "tenants.json"),
		Log: slog.New(slog.DiscardHandler), Interval: n.interval, Now: time.Now, Step: n.step,
	}
}

func (n *node) start() *running {
	n.t.Helper()
	return n.startWith(n.backend)
}

func (n *node) startWith(b backend.Backend) *running {
	n.t.Helper()
	return n.startAs(n.settings(b))
}

func (n *node) startAs(c Config) *running {
	n.t.Helper()
	a, err := New(context.Background(), c)
	if err != nil {
		n.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{Agent: a, cancel: cancel, done: make(chan struct{})}
	go func() {
		a.Run(ctx)
		close(r.done)
	}()
	n.t.Cleanup(r.stopAgent)
	return r
}

func (r *running) stopAgent() {
	r.cancel()
	<-r.done
}

// asker is a process that asks for a tenant.
type asker struct {
	cmd    *exec.Cmd
	peer   *control.Peer
	hangUp func()
	left   atomic.Bool // the kernel knows that it hung up, and the agent does not yet
	killed sync.Once
}

func (n *node) asker(uid int) *asker {
	n.t.Helper()
	return n.askerOf(uid, exec.Command("sleep", "1000"))
}

func (n *node) askerOf(uid int, cmd *exec.Cmd) *asker {
	n.t.Helper()
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	if os.Getuid() == 0 && uid != 0 && cmd.SysProcAttr.Credential == nil {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}
	}
	cmd.SysProcAttr.Setpgid = true // so that its children end with it
	if err := cmd.Start(); err != nil {
		n.t.Fatal(err)
	}
	id, err := process.Find(cmd.Process.Pid)
	if err != nil {
		n.t.Fatal(err)
	}
	done := make(chan struct{})
	a := &asker{cmd: cmd, hangUp: func() { close(done) }}
	a.peer = control.NewPeer(id, uid, done, a.left.Load)
	n.t.Cleanup(a.kill)
	return a
}

// kill ends the process and its children.
func (a *asker) kill() {
	a.killed.Do(func() {
		_ = unix.Kill(-a.cmd.Process.Pid, unix.SIGKILL)
		_ = a.cmd.Wait()
	})
}

func ask(memory uint64) control.CreateParams {
	return control.CreateParams{
		Request: v1alpha1.ShareRequest{Memory: v1alpha1.Bytes(memory)}, Layer: control.LayerEnv, Command: []string{"/usr/bin/Train_it", "x"},
	}
}

func (n *node) grant(r *running, a *asker, p control.CreateParams) *control.Created {
	n.t.Helper()
	created, err := r.create(n.t.Context(), a.peer, p)
	if err != nil {
		n.t.Fatal(err)
	}
	return created
}

func (n *node) list(r *running) *control.Listing {
	n.t.Helper()
	l, err := r.list(n.t.Context(), root, struct{}{})
	if err != nil {
		n.t.Fatal(err)
	}
	return l
}

// root is a peer that owns no process.
// self is this process.
func self() process.ID {
	id, _ := process.Find(os.Getpid())
	return id
}

var root = control.NewPeer(process.ID{}, 0, nil, nil)

// slot is a process of a tenant, played by the test: it holds the slot's lock.
type slot struct {
	file *os.File
	at   int
	// mu orders what the process says with its end: the driver is asked while a test ends.
	mu   sync.Mutex
	dead bool
}

var eventually = agenttest.Eventually

func (n *node) gone(r *running, created *control.Created) func() bool {
	return func() bool {
		_, err := os.Stat(created.Tenant.Dir)
		tenants, _ := r.InUse()
		return errors.Is(err, os.ErrNotExist) && tenants == 0
	}
}
