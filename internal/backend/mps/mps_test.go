package mps

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/edits"
	"github.com/divvy-gpu/divvy/internal/install/installtest"
	"github.com/divvy-gpu/divvy/internal/modes"
	"github.com/divvy-gpu/divvy/internal/mps"
	"github.com/divvy-gpu/divvy/internal/process"
	"github.com/divvy-gpu/divvy/internal/simgpu"
)

const gib = 1 << 30

// gpu has an UUID as they are long, which leaves the least room for the names of sockets.
var gpu = backend.GPU{Index: 0, UUID: "GPU-00112233-4455-6677-8899-aabbccddeeff", Total: 80 * gib}

// maker stands for backend slice: it remembers what it was asked to make.
type maker struct {
	backend.Backend
	planned, changed []backend.Tenant
}

func (m *maker) Plan(t backend.Tenant) (*backend.Plan, error) {
	m.planned = append(m.planned, t)
	return &backend.Plan{Dir: filepath.Join(os.TempDir(), "divvy-none", t.ID)}, nil
}

func (m *maker) Change(_ context.Context, t backend.Tenant) error {
	m.changed = append(m.changed, t)
	return nil
}
func (*maker) Undo(context.Context, backend.Tenant) error { return nil }
func (*maker) Keep(backend.Tenant) error                  { return nil }

// book records what is done to modes.
type book struct{ done []string }

func (b *book) Set(_ context.Context, _ string, mode modes.Mode, value string) error {
	b.done = append(b.done, string(mode)+" "+value)
	return nil
}

func (b *book) PutBack(context.Context, string) ([]modes.Foreign, error) {
	b.done = append(b.done, "put back")
	return nil, nil
}

// bench is a machine of a test.
type bench struct {
	t       *testing.T
	options Options
	maker   *maker
	book    *book
}

// newBench starts a simulated machine with a driver.
func newBench(t *testing.T, driver string) *bench {
	t.Helper()
	machine, err := simgpu.Load("t4", "driver.version="+driver)
	if err != nil {
		t.Fatal(err)
	}
	instance, err := simgpu.NewStore(t.TempDir(), installtest.Tree(t)).Start(t.Context(), "m", machine, "m")
	if err != nil {
		t.Fatal(err)
	}
	// The directory of a test may have a name too long for a socket.
	dir, err := os.MkdirTemp("", "mps")
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{t: t, maker: &maker{}, book: &book{}}
	b.options = Options{
		Maker: b.maker, Dir: filepath.Join(dir, "mps"), Modes: b.book, Driver: func() string { return driver }, Log: slog.New(slog.DiscardHandler),
		Program: func() (string, []string, error) {
			path, err := Program([]string{instance.Dir})
			return path, nil, err
		},
	}
	t.Cleanup(func() {
		if err := errors.Join(New(b.options).Leave(context.WithoutCancel(t.Context()), gpu), os.RemoveAll(dir)); err != nil {
			t.Error(err)
		}
	})
	return b
}

// open is the backend of an agent that starts.
func (b *bench) open() *Backend {
	made := New(b.options)
	b.t.Cleanup(func() { _ = made.Close() })
	return made
}

// daemon is that of the GPU.
func (b *bench) daemon(made *Backend) mps.Daemon {
	b.t.Helper()
	d, err := made.daemon(gpu)
	if err != nil {
		b.t.Fatal(err)
	}
	return d
}

func tenant(id string, cores int, limit uint64) backend.Tenant {
	return backend.Tenant{ID: id, UID: os.Getuid(), Layer: backend.LayerNamespace, Shares: []backend.Share{{GPU: gpu, Limit: limit, Cores: cores}}}
}

// grant plans and applies a tenant.
func (b *bench) grant(made *Backend, t backend.Tenant) *backend.Plan {
	b.t.Helper()
	p, err := made.Plan(t)
	if err != nil {
		b.t.Fatal(err)
	}
	if err := p.Apply(b.t.Context()); err != nil {
		b.t.Fatal(err)
	}
	return p
}

// limits tells what the daemon has.
func (b *bench) limits(made *Backend) float64 {
	b.t.Helper()
	// Nobody else gives commands while it is supervised.
	p, err := made.gpus[gpu.UUID].supervisor.Daemon.Percentage(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	return p
}

// A GPU's daemon begins with Enter, has the loosest limits of the shares that there are, and leaves nothing.
func TestShareComesAndGoes(t *testing.T) {
	b := newBench(t, "550.163.01")
	made := b.open()
	ctx := t.Context()
	if err := made.Enter(ctx, gpu); err != nil {
		t.Fatal(err)
	}
	if err := made.Enter(ctx, gpu); err != nil {
		t.Errorf("entered again: %v", err)
	}
	b.grant(made, tenant("a", 30, 2*gib))
	if got := b.limits(made); got != 30 {
		t.Errorf("one share of 30: %v", got)
	}
	b.grant(made, tenant("b", 70, 4*gib))
	if got := b.limits(made); got != 70 {
		t.Errorf("30 and 70: %v", got)
	}
	if err := made.Change(ctx, tenant("a", 80, 2*gib)); err != nil || b.limits(made) != 80 {
		t.Errorf("80 and 70: %v, %v", err, b.limits(made))
	}
	b.grant(made, tenant("c", 0, gib))
	if got := b.limits(made); got != 100 {
		t.Errorf("with one of no ceiling: %v", got)
	}
	bounded := tenant("d", 0, 4*gib)
	bounded.Shares[0].ProcessLimit = gib
	if m := memberOf(bounded); m.limits.Memory != gib {
		t.Errorf("each process is bounded by %d", m.limits.Memory)
	}
	for _, id := range []string{"c", "a"} {
		if err := made.Undo(ctx, tenant(id, 0, 0)); err != nil {
			t.Error(err)
		}
	}
	if got := b.limits(made); got != 70 {
		t.Errorf("70 alone: %v", got)
	}
	pipe := b.daemon(made).Dirs.Pipe
	if got := b.maker.planned[0].MPSPipe; got != pipe || len(b.maker.changed) != 1 || b.maker.changed[0].MPSPipe != pipe {
		t.Errorf("pages name the pipe %q, want %q; changed: %+v", got, pipe, b.maker.changed)
	}
	if err := made.Leave(ctx, gpu); err != nil {
		t.Fatal(err)
	}
	if _, err := b.daemon(made).Find(); !errors.Is(err, mps.ErrAbsent) {
		t.Errorf("left: %v", err)
	}
	if _, err := os.Lstat(b.options.Dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its directory is left: %v", err)
	}
	if want := []string{"compute-mode exclusive-process", "put back"}; !slices.Equal(b.book.done, want) {
		t.Errorf("modes: %v, want %v", b.book.done, want)
	}
}

// A container gets the pipe directory and nothing else of the daemon.
func TestContainerGetsThePipe(t *testing.T) {
	b := newBench(t, "550.163.01")
	made := b.open()
	one := tenant("c-1", 30, gib)
	one.Layer = backend.LayerContainer
	p, err := made.Plan(one)
	if err != nil {
		t.Fatal(err)
	}
	want := edits.Mount{Source: made.dirs(gpu.UUID).Pipe, Target: "/run/divvy/share/mps", Options: edits.ReadOnly}
	if len(p.Edits.Mounts) != 1 || !reflect.DeepEqual(p.Edits.Mounts[0], want) {
		t.Errorf("mounts %+v, want %+v", p.Edits.Mounts, want)
	}
	if got := b.maker.planned[0].MPSPipe; got != want.Target {
		t.Errorf("the page names %s", got)
	}
}

// The next agent takes over the daemon that the last one left, and one that has no shares ends it.
func TestTakeOver(t *testing.T) {
	b := newBench(t, "535.261.03")
	first := b.open()
	if err := first.Enter(t.Context(), gpu); err != nil {
		t.Fatal(err)
	}
	b.grant(first, tenant("a", 30, gib))
	before, err := b.daemon(first).Find()
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	second := b.open()
	if err := second.Change(t.Context(), tenant("a", 30, gib)); err != nil {
		t.Fatal(err)
	}
	if err := second.Enter(t.Context(), gpu); err != nil {
		t.Fatal(err)
	}
	if after, err := b.daemon(second).Find(); err != nil || after != before {
		t.Errorf("taken over: %v, %v; it was %v", after, err, before)
	}
	if got := b.limits(second); got != 30 {
		t.Errorf("it has %v", got)
	}
	if !second.Own(before) || second.Own(process.ID{PID: os.Getpid()}) {
		t.Error("it does not know its daemon")
	}
	_ = second.Close()
	if err := b.open().Leave(t.Context(), gpu); err != nil || before.Alive() {
		t.Errorf("left without shares: %v, alive %v", err, before.Alive())
	}
}

// A daemon that is killed is told of within two seconds, and serves again within ten.
func TestDaemonDies(t *testing.T) {
	b := newBench(t, "550.163.01")
	made := b.open()
	incidents := make(chan backend.Incident, 8)
	made.Report(func(i backend.Incident) { incidents <- i })
	if err := made.Enter(t.Context(), gpu); err != nil {
		t.Fatal(err)
	}
	b.grant(made, tenant("a", 30, gib))
	id, err := b.daemon(made).Find()
	if err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	if err := id.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if i := <-incidents; i.Over || i.UUID != gpu.UUID || !strings.Contains(i.Text, "has ended") {
		t.Errorf("told %+v", i)
	}
	told := time.Since(begun)
	if err := made.Enter(t.Context(), gpu); err != nil {
		t.Errorf("a share waits for it: %v", err)
	}
	if i := <-incidents; !i.Over {
		t.Errorf("told %+v, and it serves at the first try", i)
	}
	t.Logf("told after %v, served after %v", told, time.Since(begun))
	if got := b.limits(made); got != 30 {
		t.Errorf("the new one has %v", got)
	}
}

// Nothing is changed for a GPU whose pipe directory leads elsewhere, or whose driver has no MPS.
func TestRefused(t *testing.T) {
	b := newBench(t, "550.163.01")
	made := b.open()
	pipe := made.dirs(gpu.UUID).Pipe
	if err := os.MkdirAll(filepath.Dir(pipe), 0o755); err != nil {
		t.Fatal(err)
	}
	elsewhere := t.TempDir()
	if err := os.Symlink(elsewhere, pipe); err != nil {
		t.Fatal(err)
	}
	if err := made.Enter(t.Context(), gpu); !errors.Is(err, mps.ErrDirectory) {
		t.Errorf("a link: %v", err)
	}
	if entries, err := os.ReadDir(elsewhere); err != nil || len(entries) != 0 {
		t.Errorf("where the link leads: %v, %v", entries, err)
	}
	if len(b.book.done) != 0 {
		t.Errorf("modes: %v", b.book.done)
	}
	if err := os.Remove(pipe); err != nil {
		t.Fatal(err)
	}
	b.options.Program = func() (string, []string, error) {
		path, err := Program([]string{elsewhere})
		return path, nil, err
	}
	before := len(b.book.done)
	if err := b.open().Enter(t.Context(), gpu); !errors.Is(err, ErrProgram) || len(b.book.done) != before {
		t.Errorf("no program: %v, modes %v", err, b.book.done)
	}
	two := tenant("a", 30, gib)
	two.Shares = append(two.Shares, two.Shares[0])
	if _, err := made.Plan(two); !errors.Is(err, backend.ErrTenant) {
		t.Errorf("two GPUs: %v", err)
	}
	if unsuited("6.1") == "" || unsuited("7.0") != "" || unsuited("12.0") != "" || unsuited("") != "" {
		t.Error("compute capabilities")
	}
}

// A daemon that is stopped, or whose directory was removed, ends with the GPU's form.
func TestDaemonOutOfReachEnds(t *testing.T) {
	for name, harm := range map[string]func(b *bench, made *Backend, id process.ID) error{
		"stopped": func(_ *bench, _ *Backend, id process.ID) error { return id.Signal(syscall.SIGSTOP) },
		"removed": func(b *bench, made *Backend, _ process.ID) error { return os.RemoveAll(b.daemon(made).Dirs.Pipe) },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, "550.163.01")
			made := b.open()
			if err := made.Enter(t.Context(), gpu); err != nil {
				t.Fatal(err)
			}
			b.grant(made, tenant("a", 30, gib))
			id, err := b.daemon(made).Find()
			if err != nil {
				t.Fatal(err)
			}
			family := append(process.Descendants(id.PID), id)
			t.Cleanup(func() {
				for _, id := range family {
					_ = id.Signal(syscall.SIGKILL) // those that the test failed for
				}
			})
			if err := harm(b, made, id); err != nil {
				t.Fatal(err)
			}
			if err := made.Leave(t.Context(), gpu); err != nil {
				t.Error(err)
			}
			for _, id := range family {
				if id.Alive() {
					t.Errorf("process %d of the daemon lives", id.PID)
				}
			}
			if _, err := os.Stat(b.options.Dir); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the directory of daemons: %v", err)
			}
		})
	}
}
