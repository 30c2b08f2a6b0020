package mps

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/install/installtest"
	"github.com/divvy-gpu/divvy/internal/process"
	"github.com/divvy-gpu/divvy/internal/simgpu"
)

// versions are simgpu's control daemon on machines with several drivers and, where they are required, NVIDIA's own of
// those drivers, unpacked by hack/drivers.sh.
func versions(t *testing.T) []string {
	t.Helper()
	var programs []string
	store := simgpu.NewStore(t.TempDir(), installtest.Tree(t))
	for _, driver := range []string{"535.261.03", "550.163.01", "555.58.02"} {
		name := "simulated-" + driver[:3]
		machine, err := simgpu.Load("t4", "driver.version="+driver)
		if err != nil {
			t.Fatal(err)
		}
		instance, err := store.Start(t.Context(), name, machine, name)
		if err != nil {
			t.Fatal(err)
		}
		programs = append(programs, filepath.Join(instance.Dir, ControlProgram))
	}
	if !slices.Contains(strings.Split(os.Getenv("DIVVY_REQUIRE"), ","), "drivers") {
		t.Log("without NVIDIA's own programs, which it would download: make test-drivers has them")
		return programs
	}
	unpacked, err := filepath.Glob("../../.cache/drivers/*/" + ControlProgram)
	if err != nil || len(unpacked) == 0 {
		t.Fatalf("no %s below .cache/drivers: %v", ControlProgram, err)
	}
	return append(programs, unpacked...)
}

// start starts the daemon of a program, which the test ends.
func start(t *testing.T, program string) (Daemon, process.ID) {
	t.Helper()
	dir, err := os.MkdirTemp("", "mps")
	if err != nil {
		t.Fatal(err)
	}
	program, err = filepath.Abs(program)
	if err != nil {
		t.Fatal(err)
	}
	d := Daemon{UUID: "GPU-0", Dirs: DirsOf(dir, "GPU-0"), Program: program}
	t.Cleanup(func() {
		if err := errors.Join(d.End(context.WithoutCancel(t.Context())), os.RemoveAll(dir)); err != nil {
			t.Error(err)
		}
	})
	id, err := d.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return d, id
}

func TestRealDaemon(t *testing.T) {
	for _, program := range versions(t) {
		t.Run(filepath.Base(filepath.Dir(program)), func(t *testing.T) {
			ctx := t.Context()
			d, id := start(t, program)
			if again, err := d.Start(ctx); err != nil || again != id {
				t.Errorf("started again: %v, %v; it is %v", again, err, id)
			}
			if got := process.Command(id.PID); !strings.Contains(got, ControlProgram) {
				t.Errorf("it is %q", got)
			}
			for _, p := range []float64{1, 30, 33.3, 100} {
				if err := d.SetPercentage(ctx, p); err != nil {
					t.Error(err)
				}
			}
			for _, bytes := range []uint64{1 << 20, 1 << 30, 3<<30 + 5, 141 << 30} {
				if err := d.SetMemory(ctx, bytes); err != nil {
					t.Error(err)
				}
			}
			if servers, err := d.Servers(ctx); err != nil || len(servers) != 0 {
				t.Errorf("servers: %v, %v", servers, err)
			}
			if _, err := d.Clients(ctx, 1); !errors.Is(err, ErrNoServer) {
				t.Errorf("clients of no server: %v", err)
			}
			if _, err := d.Status(ctx, 1); !errors.Is(err, ErrNoServer) && !errors.Is(err, ErrUnknownCommand) {
				t.Errorf("status of no server: %v", err)
			}
			if err := d.Shutdown(ctx, 1, true); err != nil {
				t.Error(err)
			}
			if err := d.End(ctx); err != nil {
				t.Fatal(err)
			}
			if id.Alive() {
				t.Error("it lives")
			}
			if _, err := d.Find(); !errors.Is(err, ErrAbsent) {
				t.Errorf("found after its end: %v", err)
			}
		})
	}
}

// A daemon that is killed is told of and started again, with its limits, and one that is taken over stays the same.
func TestRealDaemonDies(t *testing.T) {
	for _, program := range versions(t) {
		t.Run(filepath.Base(filepath.Dir(program)), func(t *testing.T) {
			d, id := start(t, program)
			events := make(chan Event, 16)
			s := &Supervisor{
				Admitted: func() ([]int, bool) { return nil, false },
				Daemon:   d, Now: time.Now, Tell: func(e Event) { events <- e }, Users: func() []int { return nil },
				Limits: func() Limits { return Limits{Percentage: 30, Memory: 3 << 30} },
			}
			if err := s.Open(t.Context()); err != nil || s.Process() != id {
				t.Fatalf("taken over: %v, %v; it is %v", s.Process(), err, id)
			}
			ctx, cancel := context.WithCancel(t.Context())
			var running sync.WaitGroup
			running.Go(func() { s.Run(ctx) })
			if err := id.Signal(syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			for _, want := range []EventKind{EventDied, EventServes} {
				if e := <-events; e.Kind != want {
					t.Fatalf("event %+v, want %s", e, want)
				}
			}
			if p, err := s.Daemon.Percentage(t.Context()); err != nil || p != 30 {
				t.Errorf("it has %v percent, %v", p, err)
			}
			cancel()
			running.Wait()
			if again, err := d.Find(); err != nil || again == id || !again.Alive() {
				t.Errorf("after the supervisor's end: %v, %v", again, err)
			}
		})
	}
}
