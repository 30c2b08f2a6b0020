package daemon

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/driver"
	"github.com/divvy-gpu/divvy/internal/install/installtest"
	"github.com/divvy-gpu/divvy/internal/rundir"
	"github.com/divvy-gpu/divvy/internal/simgpu"
)

// An agent that can do without a driver serves a machine that has none, and its GPUs once it has one. Others end.
func TestMachineWithoutADriver(t *testing.T) {
	tree := installtest.Tree(t)
	dir, err := os.MkdirTemp("/dev/shm", "divvy-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	t.Setenv(rundir.Variable, dir)
	store := simgpu.NewStore(dir, tree)
	endpoint := control.Endpoint{Rundir: dir}
	looks := make(chan time.Time)
	o := Options{Endpoint: endpoint, Simgpu: filepath.Join(store.Root, "m"), Tree: tree, Log: slog.New(slog.DiscardHandler)}
	if err := Serve(t.Context(), o); !errors.Is(err, driver.ErrNotFound) {
		t.Fatalf("an agent that needs a driver: %v", err)
	}
	o.Driverless, o.looks = true, looks
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Serve(ctx, o) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	gpus := func() int {
		client, err := control.Dial(t.Context(), endpoint.Socket())
		if err != nil {
			return -1
		}
		defer client.Close()
		list, err := client.List(t.Context())
		if err != nil {
			return -1
		}
		return len(list.GPUs)
	}
	eventually(t, "the agent serves no GPU", func() bool { return gpus() == 0 })
	looks <- time.Time{}
	looks <- time.Time{} // so that the first look is over
	if n := gpus(); n != 0 {
		t.Fatalf("%d GPUs without a driver", n)
	}
	openMachine(t, store, dir)
	looks <- time.Time{}
	eventually(t, "the agent serves the GPU", func() bool { return gpus() == 1 })
}
