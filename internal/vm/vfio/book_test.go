package vfio_test

import (
	"context"
	"errors"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/pci"
	"github.com/divvy-gpu/divvy/internal/process"
	"github.com/divvy-gpu/divvy/internal/vm/binding"
	"github.com/divvy-gpu/divvy/internal/vm/facts"
	"github.com/divvy-gpu/divvy/internal/vm/vfio"
	"github.com/divvy-gpu/divvy/internal/vm/vmtest"
)

var (
	gpu   = pci.Address{Bus: 0x3d}
	audio = pci.Address{Bus: 0x3d, Function: 1}
	other = pci.Address{Bus: 0x3e}
)

// host has a GPU with its audio function, and another GPU in a group of its own.
func host() *facts.Host {
	function := func(at pci.Address, group int, driver string) facts.Device {
		d := facts.Device{Group: group, Driver: driver, Resets: []string{"flr"}}
		d.Address, d.Class = at, 0x030000
		return d
	}
	return &facts.Host{
		Modules: map[string]facts.Module{"vfio_pci": {Loaded: true}},
		Devices: []facts.Device{function(gpu, 7, "nvidia"), function(audio, 7, "snd_hda_intel"), function(other, 8, "nvidia")},
	}
}

// machine is a modelled kernel, whose writers are goroutines.
type machine struct {
	*vmtest.Kernel
	mu      sync.Mutex
	holders []facts.Holder
	// open is true while a process that nobody sees has the group open, unseen what is told of such processes, and missing
	// true where the group's node is not seen.
	open, missing bool
	unseen        string
	// writer is the process that stands for all writers, zero for this one.
	writer process.ID
}

func newMachine() *machine { return &machine{Kernel: vmtest.NewKernel(host())} }

func (m *machine) Openers(string) (facts.Held, error) {
	if m.missing {
		return facts.Held{}, vfio.ErrUnseen
	}
	return facts.Held{}, nil
}

func (m *machine) Node(string) string { return "" }

func (m *machine) Holders([]pci.Address) (facts.Held, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	held := facts.Held{Holders: m.holders}
	if m.unseen != "" {
		held.Unseen = []string{m.unseen}
	}
	return held, nil
}

func (m *machine) hold(holders ...facts.Holder) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.holders = holders
}

func (m *machine) Start() (vfio.Writer, error) {
	return &writer{m, make(chan struct{})}, nil
}

type writer struct {
	machine *machine
	ended   chan struct{}
}

func (w *writer) ID() process.ID         { return w.machine.writer }
func (w *writer) Ended() <-chan struct{} { return w.ended }
func (w *writer) Close()                 {}

func (w *writer) Write(write binding.Write) <-chan error {
	outcome := make(chan error, 1)
	if write.Group != "" && w.machine.open {
		outcome <- vfio.ErrOpen
		return outcome
	}
	go func() { outcome <- w.machine.Write(write) }()
	return outcome
}

// unreached are limits.
var unreached = vfio.Limits{Look: time.Hour, Write: time.Hour}

func open(t *testing.T, c vfio.Config) *vfio.Book {
	t.Helper()
	if c.Limits == (vfio.Limits{}) {
		c.Limits = unreached
	}
	b, err := vfio.Open(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b
}

func planned(t *testing.T, device pci.Address) binding.Plan {
	t.Helper()
	plan, err := binding.Passthrough(host(), device)
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestBindAndRelease(t *testing.T) {
	m, path := newMachine(), filepath.Join(t.TempDir(), vfio.FileName)
	before := m.Snapshot()
	b := open(t, vfio.Config{Path: path, Machine: m})
	must(t, b.Bind(t.Context(), "ada", planned(t, gpu)))
	must(t, b.Bind(t.Context(), "ada", planned(t, gpu)))
	for _, at := range []pci.Address{gpu, audio} {
		if !strings.Contains(m.Snapshot(), at.String()+` driver="vfio-pci" override="vfio-pci"`) {
			t.Errorf("%s is not given:\n%s", at, m.Snapshot())
		}
	}
	next := open(t, vfio.Config{Path: path, Machine: m})
	if entries := next.Entries(); len(entries) != 1 || entries[0].Owner != "ada" || entries[0].Phase != vfio.Bound || entries[0].Plan.Device != gpu {
		t.Errorf("the book has %+v", entries)
	}
	if left, err := next.Recover(t.Context()); err != nil || len(left) != 0 || len(next.Entries()) != 1 {
		t.Errorf("recovered: %v, %v; the book has %v", left, err, next.Entries())
	}
	for range 2 {
		if left, err := next.Release(t.Context(), "ada"); err != nil || len(left) != 0 {
			t.Fatalf("released: %v, %v", left, err)
		}
	}
	if after := m.Snapshot(); after != before || len(next.Entries()) != 0 {
		t.Errorf("afterwards there is\n%s, want\n%s; and the book has %v", after, before, next.Entries())
	}
	if m.Resets(gpu) != 1 || m.Resets(audio) != 1 || m.Resets(other) != 0 {
		t.Errorf("resets: %d, %d, %d", m.Resets(gpu), m.Resets(audio), m.Resets(other))
	}
}

// An agent that ends after any step leaves what the next one puts back.
func TestEndAfterEveryStep(t *testing.T) {
	names := map[string]bool{}
	for last := 0; ; last++ {
		m, path := newMachine(), filepath.Join(t.TempDir(), vfio.FileName)
		before := m.Snapshot()
		steps, ended := 0, make(chan struct{})
		b := open(t, vfio.Config{Path: path, Machine: m, Step: func(name string) {
			names[name] = true
			if steps++; steps > last {
				if steps == last+1 {
					close(ended)
				}
				runtime.Goexit()
			}
		}})
		over, gone := make(chan error, 1), make(chan struct{})
		go func() {
			defer close(gone)
			over <- life(t.Context(), t, b)
		}()
		whole := false
		select {
		case err := <-over:
			must(t, err)
			whole = true
		case <-ended:
		}
		b.Close()
		<-gone
		next := open(t, vfio.Config{Path: path, Machine: m})
		if left, err := next.Recover(t.Context()); err != nil || len(left) != 0 {
			t.Fatalf("after step %d: %v, %v", last, left, err)
		}
		for _, owner := range []string{"ada", "bob"} {
			if left, err := next.Release(t.Context(), owner); err != nil || len(left) != 0 {
				t.Fatalf("after step %d: %v, %v", last, left, err)
			}
		}
		if after := m.Snapshot(); after != before || len(open(t, vfio.Config{Path: path, Machine: m}).Entries()) != 0 {
			t.Fatalf("after step %d there is\n%s, want\n%s", last, after, before)
		}
		if whole {
			break
		}
	}
	if len(names) < 6 {
		t.Errorf("it ended after %v alone", names)
	}
}

// life binds two devices and puts one back.
func life(ctx context.Context, t *testing.T, b *vfio.Book) error {
	_, err := b.Recover(ctx)
	err = errors.Join(err, b.Bind(ctx, "ada", planned(t, gpu)))
	err = errors.Join(err, b.Bind(ctx, "bob", planned(t, other)))
	_, released := b.Release(ctx, "ada")
	return errors.Join(err, released)
}
