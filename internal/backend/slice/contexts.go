package slice

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"github.com/divvy-gpu/divvy/internal/checkpoint"
	"github.com/divvy-gpu/divvy/internal/driver"
	"github.com/divvy-gpu/divvy/internal/nvml"
)

// fallbackContext is taken where the driver cannot be asked: 512 MiB, more than
// the 100 to 450 MiB that contexts take on GPUs from T4 to A100. Too much costs
// a tenant some memory, too little would let its first context pass the limit.
const fallbackContext = 512 << 20

// probeTime bounds one measurement. A driver that has to wake a GPU that is not
// in persistence mode takes seconds.
const probeTime = 30 * time.Second

// killTime is how long a measurement may take to end that is killed.
const killTime = time.Second

// errHidden is returned for a GPU that CUDA does not show to this process, as in a job
// that may open only some. divvy-probe says so by its exit status.
var errHidden = errors.New("CUDA does not show the GPU")

const exitHidden = 3

// exitForeign is divvy-probe's status where CUDA says that it is not this machine's driver.
const exitForeign = 4

// contexts knows what one process's context takes on each model of GPU: it
// depends on the driver and on the number of multiprocessors, so GPUs of one
// model are alike.
type contexts struct {
	options Options
	file    *checkpoint.File[map[string]uint64]
	// measuring is held while one is measured, and mu, after it, while the maps are read or changed.
	measuring, mu sync.Mutex
	// known are those of this agent, measured those that were not assumed.
	known, measured map[string]uint64
	// probe measures one GPU; tests replace it.
	probe func(ctx context.Context, uuid string) (uint64, error)
}

func newContexts(o Options) *contexts {
	c := &contexts{
		options: o,
		file:    contextsFile(o.State),
	}
	c.probe = c.run
	return c
}

func contextsFile(state string) *checkpoint.File[map[string]uint64] {
	return checkpoint.NewFile[map[string]uint64](filepath.Join(state, "contexts.json"), "contexts", 1)
}

// contextKey is where the file has what a context takes on a GPU.
func contextKey(gpu nvml.GPU, inventory Inventory) string {
	return gpu.Name + "/" + inventory.Version().Driver
}

// of returns what a context takes on a GPU, in bytes. The error is driver.ErrUnusable.
func (c *contexts) of(ctx context.Context, gpu nvml.GPU) (uint64, error) {
	c.measuring.Lock()
	defer c.measuring.Unlock()
	if n, ok := c.recall(gpu); ok {
		return n, nil
	}
	key := contextKey(gpu, c.options.Inventory)
	if gpu.Silent {
		return fallbackContext, nil // to measure it would not end either
	}
	n, err := c.probe(ctx, gpu.UUID)
	if errors.Is(err, errHidden) {
		// Another of the model may be measured.
		return fallbackContext, nil
	}
	if errors.Is(err, driver.ErrUnusable) {
		return 0, err
	}
	if err != nil {
		c.options.Log.WarnContext(ctx, "cannot measure what a context takes", "gpu", gpu.UUID, "assumed", fallbackContext, "error", err)
		c.note(ctx, key, fallbackContext, false) // the next agent measures again
		return fallbackContext, nil
	}
	c.note(ctx, key, n, true)
	return n, nil
}

// recall is what is known of a GPU without measuring.
func (c *contexts) recall(gpu nvml.GPU) (n uint64, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known == nil {
		// What cannot be read is measured again.
		c.measured, _ = c.file.Load()
		if c.measured == nil {
			c.measured = map[string]uint64{}
		}
		c.known = maps.Clone(c.measured)
	}
	n, ok = c.known[contextKey(gpu, c.options.Inventory)]
	return n, ok
}

// note remembers what a context takes, for the next agent too if it was measured.
func (c *contexts) note(ctx context.Context, key string, n uint64, measured bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.known[key] = n
	if !measured {
		return
	}
	c.measured[key] = n
	if err := c.file.Save(c.measured); err != nil {
		c.options.Log.WarnContext(ctx, "cannot remember what a context takes", "error", err)
	}
}

// run asks divvy-probe: a program of its own, because a process that has used
// CUDA keeps its context, and with it the memory, until it ends.
func (c *contexts) run(ctx context.Context, uuid string) (uint64, error) {
	d, err := c.options.Finder.Find()
	if err != nil {
		return 0, err
	}
	finder := c.options.Finder
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	var out, said bytes.Buffer
	cmd := exec.CommandContext(ctx, c.options.Tree.Program("divvy-probe"),
		finder.Loadable(d, driver.CUDA), finder.Loadable(d, driver.NVML), uuid)
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := cmd.Start(); err != nil {
		return 0, fmt.Errorf("run divvy-probe: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err = <-ended:
	case <-ctx.Done():
		// A process that sleeps in the driver does not end when it is killed, and is left to itself.
		select {
		case err = <-ended:
		case <-time.After(killTime):
			return 0, errors.New("run divvy-probe: the driver does not answer")
		}
	}
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		switch exit.ExitCode() {
		case exitHidden:
			return 0, errHidden
		case exitForeign:
			return 0, fmt.Errorf("%w: %s; expected this machine's driver: install it again", driver.ErrUnusable, bytes.TrimSpace(said.Bytes()))
		}
	}
	if err != nil {
		return 0, fmt.Errorf("run divvy-probe: %w: %s", err, bytes.TrimSpace(said.Bytes()))
	}
	var answer struct {
		ContextBytes uint64 `json:"context_bytes"`
	}
	if err := json.Unmarshal(out.Bytes(), &answer); err != nil {
		return 0, fmt.Errorf("read divvy-probe's answer: %w", err)
	}
	if answer.ContextBytes == 0 {
		return 0, errors.New("read divvy-probe's answer: a context takes no memory")
	}
	return answer.ContextBytes, nil
}
