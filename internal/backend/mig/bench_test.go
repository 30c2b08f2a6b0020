package mig

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/driver"
	"github.com/divvy-gpu/divvy/internal/install/installtest"
	"github.com/divvy-gpu/divvy/internal/mig"
	"github.com/divvy-gpu/divvy/internal/nvml"
	"github.com/divvy-gpu/divvy/internal/nvml/helper"
	"github.com/divvy-gpu/divvy/internal/simgpu"
)

// A process of a test that has the library open, as a monitor has.
const monitorVariable = "MIG_TEST_MONITOR"

func TestMain(m *testing.M) {
	if path := os.Getenv(monitorVariable); path != "" {
		monitor(path)
	}
	os.Exit(m.Run())
}

// monitor has the library open until its standard input ends.
func monitor(path string) {
	l, err := nvml.Open(path)
	if err == nil {
		_, err = l.GPUs()
	}
	fmt.Println(err)
	_, _ = os.Stdin.Read(make([]byte, 1))
	os.Exit(0)
}

// bench is a simulated machine with the backend of an agent.
type bench struct {
	t        *testing.T
	store    simgpu.Store
	instance *simgpu.Instance
	library  string
	book     string
	gpu      backend.GPU
	limits   helper.Limits
}

// generous are limits that a driver keeps which answers, also where its helper has no processor for a while.
func generous() helper.Limits {
	l := helper.Usual
	l.Open, l.First, l.Answer, l.Others, l.Start, l.Change = time.Minute, time.Minute, time.Minute, time.Minute, 5*time.Minute, 5*time.Minute
	return l
}

// newBench starts a machine. Changes are made to its file.
func newBench(t *testing.T, machine string, changes ...string) *bench {
	t.Helper()
	loaded, err := simgpu.Load(machine, changes...)
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{t: t, store: simgpu.NewStore(t.TempDir(), installtest.Tree(t)), book: filepath.Join(t.TempDir(), "mig.json"), limits: generous()}
	if b.instance, err = b.store.Start(t.Context(), "m", loaded, "m"); err != nil {
		t.Fatal(err)
	}
	b.library = filepath.Join(b.instance.Dir, "libnvidia-ml.so.1")
	return b
}

// driver asks the machine's driver in helpers.
func (b *bench) driver() *helper.Driver {
	b.t.Helper()
	program, err := installtest.Tree(b.t).Divvy()
	if err != nil {
		b.t.Fatal(err)
	}
	d, err := helper.Open(helper.Config{
		Start: helper.Start(program, "nvml-helper"), Library: b.library, Limits: b.limits, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() {
		if err := d.Close(); err != nil {
			b.t.Error(err)
		}
	})
	return d
}

// agent is the backend of an agent that starts now.
func (b *bench) agent() *Backend {
	b.t.Helper()
	d := b.driver()
	gpus, err := d.GPUs()
	if err != nil {
		b.t.Fatal(err)
	}
	b.gpu = backend.GPU{Index: 0, UUID: gpus[0].UUID, Name: gpus[0].Name, PCI: gpus[0].PCI, Total: gpus[0].Total}
	l := mig.Library{NVML: d, Index: map[string]int{b.gpu.UUID: 0}}
	book, err := mig.Open(b.book, l)
	if err != nil {
		b.t.Fatal(err)
	}
	finder := driver.Finder{Instance: b.instance.Dir}
	made := New(b.maker(d), Options{
		Book: book, Reader: l, Switcher: Lone{Driver: d, Holding: finder.Holding}, Log: slog.New(slog.DiscardHandler),
		Capable: func(gpu backend.GPU) bool { return d.MIGCapable(gpu.Index) },
	})
	b.t.Cleanup(func() {
		if err := made.Close(); err != nil {
			b.t.Error(err)
		}
	})
	return made
}

// tool makes and takes away instances beside the agent, as another tool does.
func (b *bench) tool() mig.Library {
	return mig.Library{NVML: b.driver(), Index: map[string]int{b.gpu.UUID: 0}}
}

func (b *bench) divide(m *Backend) backend.Division {
	b.t.Helper()
	d, err := m.Division(b.t.Context(), b.gpu)
	if err != nil {
		b.t.Fatal(err)
	}
	return d
}

// parts are the GPU's instances as text.
func (b *bench) parts(m *Backend) (all []string) {
	b.t.Helper()
	for _, p := range b.divide(m).Parts {
		text := fmt.Sprintf("%s at %d, %s", p.Profile, p.Start, p.Origin)
		if p.Half != "" {
			text += ", " + p.Half
		}
		all = append(all, text)
	}
	return all
}

// create makes an instance that has to succeed.
func (b *bench) create(m *Backend, profile string, start int) backend.Instance {
	b.t.Helper()
	i, err := m.Create(b.t.Context(), b.gpu, profile, start, backend.OriginShare)
	if err != nil {
		b.t.Fatal(err)
	}
	return i
}

// foreign makes an instance as another tool does.
func (b *bench) foreign(m *Backend, profile string, start int) string {
	b.t.Helper()
	ctx, l := context.Background(), b.tool()
	profiles, err := l.MIGProfiles(ctx, b.gpu.UUID)
	if err != nil {
		b.t.Fatal(err)
	}
	p, at, err := placed(profiles, profile, start)
	if err != nil {
		b.t.Fatal(err)
	}
	id, err := l.CreateMIGInstance(ctx, b.gpu.UUID, p.ID, at)
	if err != nil {
		b.t.Fatal(err)
	}
	c, err := l.CreateMIGCompute(ctx, b.gpu.UUID, id)
	if err != nil {
		b.t.Fatal(err)
	}
	if got := strings.Join(b.parts(m), "; "); !strings.Contains(got, "foreign") {
		b.t.Fatalf("the agent does not see it: %s", got)
	}
	return c.UUID
}
