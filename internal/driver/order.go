package driver

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/simgpu/simfiles"
)

// orderTime bounds one question to CUDA. A driver that has to wake GPUs that are not in
// persistence mode takes seconds for each.
const orderTime = time.Minute

// hiding are the variables by which a process sees fewer GPUs than it may open, or loads
// something else than the driver.
var hiding = []string{"CUDA_VISIBLE_DEVICES", "LD_PRELOAD"}

// Loadable returns the file by which a program that is told to loads a library of d. A
// simulated driver finds its machine only beside itself.
func (f Finder) Loadable(d *Driver, library Library) string {
	if f.Instance != "" {
		return filepath.Join(f.Instance, string(library))
	}
	return d.Chosen[library]
}

// Order asks CUDA which GPUs it shows to a process in this one's cgroup and with its
// environment, CUDA_VISIBLE_DEVICES apart: UUIDs, in CUDA's order. The program divvy-probe,
// given by its path, asks, because a process that initialised CUDA can never undo it.
func (f Finder) Order(ctx context.Context, probe string, d *Driver) ([]string, error) {
	return Order(ctx, probe, f.Loadable(d, CUDA))
}

// Order is [Finder.Order] of the library at a path.
func Order(ctx context.Context, probe, library string) ([]string, error) {
	return ask(ctx, probe, "--order", library)
}

// Faulting asks CUDA, as Order does, on which GPUs it brings managed memory that a kernel touches, so that there may be more
// of it than the GPU has.
func (f Finder) Faulting(ctx context.Context, probe string, d *Driver) ([]string, error) {
	return ask(ctx, probe, "--managed", f.Loadable(d, CUDA))
}

// ask asks a library for GPUs.
func ask(ctx context.Context, probe, what, library string) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, orderTime)
	defer cancel()
	var out, said bytes.Buffer
	cmd := exec.CommandContext(ctx, probe, what, library)
	cmd.WaitDelay = time.Second // a driver may keep it from ending
	cmd.Stdout, cmd.Stderr = &out, &said
	cmd.Env = slices.DeleteFunc(os.Environ(), func(entry string) bool {
		name, _, _ := strings.Cut(entry, "=")
		return slices.Contains(hiding, name)
	})
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("ask CUDA for its GPUs: %w: %s", err, bytes.TrimSpace(said.Bytes()))
	}
	var answer struct {
		UUIDs []string `json:"uuids"`
	}
	if err := json.Unmarshal(out.Bytes(), &answer); err != nil {
		return nil, fmt.Errorf("read divvy-probe's answer: %w", err)
	}
	return answer.UUIDs, nil
}

// Hidden reports whether this process may not open some GPU's device node, because of its
// cgroup or the node's mode. Nothing is opened, which could wake a GPU: the kernel asks the
// cgroup for access(2) too. A node that does not exist hides nothing, because the driver
// makes nodes when they are first needed.
func (f Finder) Hidden() (bool, error) {
	folder := filepath.Join("/", f.Root, "dev")
	if f.Instance != "" {
		folder = simfiles.Devices(f.Instance)
	}
	nodes, err := filepath.Glob(filepath.Join(folder, "nvidia[0-9]*"))
	if err != nil {
		return false, fmt.Errorf("look for device nodes: %w", err)
	}
	for _, node := range nodes {
		err := unix.Faccessat(unix.AT_FDCWD, node, unix.R_OK|unix.W_OK, unix.AT_EACCESS)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return true, nil
		}
	}
	return false, nil
}
