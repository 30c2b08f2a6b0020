package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/backend/slice"
	"github.com/divvy-gpu/divvy/internal/mig"
	"github.com/divvy-gpu/divvy/internal/nvml"
	"github.com/divvy-gpu/divvy/internal/tenantdir"
	"github.com/divvy-gpu/divvy/test/bench/measurement"
	"github.com/divvy-gpu/divvy/test/bench/simulated"
)

const (
	// faultCount is how many programs make a fatal fault.
	faultCount = 200
	// outlived is how long after the last fault a neighbour must have worked to be unharmed, and tellTime how long it may
	// take until it tells so.
	outlived, tellTime = 300 * time.Millisecond, 20 * time.Second
	// faultProfile is the profile of all instances of the GPU.
	faultProfile = "1g.18gb"
)

// faults is mig.faults: programs in a share on one instance of a GPU use an unmapped address, one after another, and
// programs in shares on the other instances work meanwhile. It counts the programs that fail.
func (b *bench) faults() (rows []measurement.Row, err error) {
	dir, err := os.MkdirTemp("/dev/shm", "divvy-faults-")
	if err != nil {
		return nil, fmt.Errorf("make a run directory: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := os.Setenv("DIVVY_RUNDIR", dir); err != nil {
		return nil, fmt.Errorf("name the run directory: %w", err)
	}
	divvy := filepath.Join(b.build, "bin", "divvy")
	if err := simulated.Execute(divvy, "simgpu", "start", "h200x8", "--set", "gpus[0].migMode=true"); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, simulated.Execute(divvy, "simgpu", "stop", "h200x8", "--force")) }()
	shares, err := b.fill(dir, filepath.Join(dir, "simgpu", "h200x8"))
	if err != nil {
		return nil, err
	}
	failed, err := b.beside(shares[1:], func() error {
		for range faultCount {
			if err := b.fault(shares[0].dir); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	row := measurement.Of("mig.faults", "programs", 0, measurement.Lower, command, float64(failed))
	row.Note = fmt.Sprintf("of %d in the other instances of a GPU, that failed beside %d fatal faults in one", len(shares)-1, faultCount)
	row.Case = "one share on the faulty instance"
	rows, err = b.divided(dir, filepath.Join(dir, "simgpu", "h200x8"), shares)
	return append([]measurement.Row{row}, rows...), err
}

// spot is a share's directory, and the instance on which it is.
type spot struct {
	dir string
	on  backend.GPU
}

// fill divides the first GPU into instances, and returns the directories of a share on each.
func (b *bench) fill(dir, machine string) (shares []spot, err error) {
	opened, err := nvml.Open(filepath.Join(machine, "libnvidia-ml.so.1"))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, opened.Close()) }()
	gpus, err := opened.GPUs()
	if err != nil {
		return nil, err
	}
	l, ctx := mig.Library{NVML: opened, Index: map[string]int{gpu: 0}}, context.Background()
	profiles, err := l.MIGProfiles(ctx, gpu)
	if err != nil {
		return nil, err
	}
	for _, p := range profiles {
		for _, at := range p.Placements {
			if p.Name != faultProfile {
				continue
			}
			share, err := b.shareAt(ctx, l, gpus[0], p, at, filepath.Join(dir, fmt.Sprint("share", at.Start)), machine)
			if err != nil {
				return nil, err
			}
			shares = append(shares, share)
		}
	}
	if len(shares) < 2 {
		return nil, fmt.Errorf("divide the GPU: %d instances %s fit", len(shares), faultProfile)
	}
	return shares, nil
}

// shareAt makes an instance, and the directory of a tenant that has it.
func (b *bench) shareAt(ctx context.Context, l mig.Library, on nvml.GPU, p nvml.MIGProfile, at nvml.MIGPlacement, dir, machine string) (spot, error) {
	id, err := l.CreateMIGInstance(ctx, gpu, p.ID, at)
	if err != nil {
		return spot{}, fmt.Errorf("make an instance: %w", err)
	}
	compute, err := l.CreateMIGCompute(ctx, gpu, id)
	if err != nil {
		return spot{}, fmt.Errorf("make an instance: %w", err)
	}
	made := spot{dir, backend.GPU{
		UUID: compute.UUID, PCI: on.PCI, Total: p.Bytes,
		Instance: backend.Instance{UUID: compute.UUID, Parent: on.UUID, Bytes: p.Bytes},
	}}
	return made, b.tenantAt(made, machine, "", p.Bytes)
}

// tenantAt makes the directory of a tenant with a share on an instance. With a pipe directory it is a client of MPS there.
func (b *bench) tenantAt(at spot, machine, pipe string, limit uint64) error {
	dir := at.dir
	tenant := backend.Tenant{ID: filepath.Base(dir), Name: filepath.Base(dir), Layer: backend.LayerNamespace, Shares: []backend.Share{{
		GPU: at.on, Limit: limit, Weight: 1, Policy: v1alpha1.PolicyWeighted, Class: v1alpha1.ClassOffline,
	}}}
	if pipe != "" {
		tenant.Backend, tenant.MPSPipe = v1alpha1.BackendMPS, pipe
	}
	config, err := tenantdir.Encode(tenant, 0)
	if err == nil {
		err = tenantdir.Dir(dir).Make(&config, nil, tenantdir.AccessOwner, -1)
	}
	if err == nil {
		err = os.Symlink(machine, filepath.Join(dir, "simgpu"))
	}
	for _, name := range []string{"libcuda", "libnvidia-ml"} {
		err = errors.Join(err, b.place(dir, machine, name))
	}
	if err != nil {
		return fmt.Errorf("make a share: %w", err)
	}
	return nil
}

// place puts a library of ours before the simulated driver's.
func (b *bench) place(dir, machine, name string) error {
	image, err := os.ReadFile(filepath.Join(b.build, "lib", "divvy", name+".so.1"))
	if err != nil {
		return err
	}
	real := filepath.Join(machine, name+".so.1")
	if image, err = slice.ForDriver(image, dir, real); err != nil {
		return err
	}
	return errors.Join(os.WriteFile(filepath.Join(dir, name+".so.1"), image, 0o700), os.Symlink(real, filepath.Join(dir, name+"-real.so.1")))
}

// inShare is a command line of gpubench in a share.
func (b *bench) inShare(dir string, args ...string) []string {
	return append([]string{"env", "LD_LIBRARY_PATH=" + dir, filepath.Join(b.build, "bin", "gpubench")}, args...)
}

// fault has a program in a share use an unmapped address.
func (b *bench) fault(dir string) error {
	argv := b.inShare(dir, "fault")
	out, err := exec.Command(argv[0], argv[1:]...).Output()
	if !strings.Contains(string(out), "CUDA_ERROR_ILLEGAL_ADDRESS") {
		return fmt.Errorf("make a fatal fault: %w: %q", err, out)
	}
	return nil
}

// work starts a program in a share that works until it is ended.
func (b *bench) work(dir string) (*simulated.Tenant, error) {
	n, err := simulated.StartBare(b.inShare(dir, "load", "--ns", "10000000", "--grid", "8", "--sync", "1", "--seconds", "3600")...)
	if err != nil {
		return nil, err
	}
	if _, _, err := n.Working(1); err != nil {
		n.End()
		return nil, err
	}
	return n, nil
}

// beside has faults made while a program works in each of some shares, and counts those that fail.
func (b *bench) beside(shares []spot, faults func() error) (failed int, err error) {
	var neighbours []*simulated.Tenant
	defer func() {
		for _, n := range neighbours {
			n.End()
		}
	}()
	for _, s := range shares {
		n, err := b.work(s.dir)
		if err != nil {
			return 0, err
		}
		neighbours = append(neighbours, n)
	}
	if err := faults(); err != nil {
		return 0, err
	}
	for _, n := range neighbours {
		harmed, err := failedBy(n)
		if err != nil {
			return 0, err
		}
		if harmed {
			failed++
		}
	}
	return failed, nil
}

// failedBy reports whether a program fails, or does not work on for a while.
func failedBy(n *simulated.Tenant) (bool, error) {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return false, fmt.Errorf("read the clock: %w", err)
	}
	return !unharmed(n, uint64(now.Nano()+outlived.Nanoseconds())), nil
}

// unharmed waits until a program has worked until a moment or has failed.
func unharmed(n *simulated.Tenant, until uint64) bool {
	late := time.After(tellTime)
	for {
		lines := n.All()
		for _, l := range lines {
			if l.Result != "" && l.Result != "CUDA_SUCCESS" {
				return false
			}
		}
		if lines[len(lines)-1].At > until {
			return true
		}
		select {
		case <-n.Ended():
			return false
		case <-late:
			return false
		case <-time.After(5 * time.Millisecond):
		}
	}
}
