package programs

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/divvy-gpu/divvy/internal/install"
	"github.com/divvy-gpu/divvy/internal/simgpu"
)

// Ways are where a program is run: natively, and in a share in each of the ways in which `divvy run` puts our libraries
// before the driver's, or keeps the program away from the driver.
var Ways = []string{Natively, "namespace", "env", remote, remoteTLS}

// The ways in which a worker calls the driver for the program: beside it, and as if on another host.
const (
	remote    = "remote"
	remoteTLS = "remote-tls"
)

// Natively is the way without a share.
const Natively = "natively"

//go:embed scripts
var scripts embed.FS

// Setting is what a check needs of this machine.
type Setting struct {
	// Tree is the build under test.
	Tree install.Tree
	// Folder is where hack/programs.sh put the programs.
	Folder string
}

// place is where a program finds its GPUs: a simulated machine as a whole, or shares of it. A machine has one place.
type place struct {
	Setting
	way string
	// gpu is the number of the GPU, and limit the memory of a share of it.
	gpu   int
	limit uint64
	model *simgpu.Machine
	store simgpu.Store
	// instance is the machine; its run directory holds it, the programs' home and the scripts.
	instance *simgpu.Instance
	rundir   string
	// server gives the shares of [remoteTLS].
	server *server
}

// kernelTime is what a kernel takes on the machines here: much longer than all copies of a check together, so that the
// time in which the GPU was busy tells how many kernels ran.
const kernelTime = 10 * time.Millisecond

// open starts a simulated machine, whose file is changed as told.
func (s Setting) open(ctx context.Context, machine, way string, gpu int, limit uint64, changes ...string) (p *place, err error) {
	model, err := simgpu.Load(machine, append(changes, "costs.kernel="+kernelTime.String())...)
	if err != nil {
		return nil, err
	}
	// The agent's socket must have a short path (unix(7)).
	rundir, err := os.MkdirTemp("", "divvy-p-")
	if err != nil {
		return nil, fmt.Errorf("make a run directory: %w", err)
	}
	p = &place{
		Setting: s, way: way, gpu: gpu, limit: limit, model: model, rundir: rundir,
		store: simgpu.Store{Root: filepath.Join(rundir, "simgpu"), Control: simgpu.Control{Prefix: string(s.Tree)}},
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.close(ctx))
		}
	}()
	if err := os.CopyFS(rundir, scripts); err != nil {
		return p, fmt.Errorf("write the scripts: %w", err)
	}
	if p.instance, err = p.store.Start(ctx, machine, model, ""); err == nil && way == remoteTLS {
		p.server, err = p.serve(ctx)
	}
	return p, err
}

// close ends the machine with everything on it, also when the check was broken off.
func (p *place) close(ctx context.Context) error {
	var err error
	ctx = context.WithoutCancel(ctx)
	if p.server != nil {
		err = p.server.stop(ctx)
	}
	if p.instance != nil {
		said, stop := p.divvy(ctx, "simgpu", "stop", "--force", p.instance.Name).CombinedOutput()
		if stop != nil {
			err = errors.Join(err, fmt.Errorf("stop the simulated machine: %w: %s", stop, said))
		}
	}
	return errors.Join(err, os.RemoveAll(p.rundir))
}

func (p *place) report(ctx context.Context) (*simgpu.Report, error) {
	return p.store.Report(ctx, p.instance)
}

// divvy is one of our own commands.
func (p *place) divvy(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(string(p.Tree), "bin", "divvy"), args...)
	// What a program that was broken off leaves ends with the machine, and may keep the output open until then.
	cmd.WaitDelay = time.Second
	cmd.Env = append(os.Environ(), "DIVVY_RUNDIR="+p.rundir, "HOME="+p.rundir)
	return cmd
}

// outside runs a program on the whole machine.
func (p *place) outside(ctx context.Context, argv ...string) *exec.Cmd {
	return p.divvy(ctx, append([]string{"simgpu", "exec", p.instance.Name, "--"}, argv...)...)
}

// command runs a program in this place, each time in a share of its own.
func (p *place) command(ctx context.Context, argv ...string) *exec.Cmd {
	if p.isNative() {
		return p.outside(ctx, argv...)
	}
	flags := []string{"run", "--memory", strconv.FormatUint(p.limit, 10)}
	switch p.way {
	case remote:
		flags = append(flags, "--layer", "namespace", "--backend", "remote")
	case remoteTLS:
		flags = append(flags, "--layer", "namespace", "--remote", p.server.address)
	default:
		flags = append(flags, "--layer", p.way)
	}
	if p.way != remoteTLS { // whose GPU the server chooses
		flags = append(flags, "--simgpu", p.instance.Name, "--gpu", strconv.Itoa(p.gpu))
	}
	cmd := p.divvy(ctx, append(append(flags, "--"), argv...)...)
	if p.way == remoteTLS {
		cmd.Env = append(cmd.Env, "DIVVY_RUNDIR="+p.server.rundir, "DIVVY_REMOTE_DIR="+p.server.bundles)
	}
	return cmd
}

func (p *place) isNative() bool { return p.way == Natively }

// isAway tells whether a program is kept away from the driver in a way.
func isAway(way string) bool { return way == remote || way == remoteTLS }

// total is what a program should see as the memory that it can use.
func (p *place) total() uint64 {
	if p.isNative() {
		return uint64(p.model.GPU.Memory - p.model.GPU.Reserved)
	}
	return p.limit
}

// released waits until nothing is held on any GPU: a worker ends behind its program. It returns the simulated driver's record.
func (p *place) released(ctx context.Context) (*simgpu.Report, error) {
	for end := time.Now().Add(longestEnd); ; {
		report, err := p.report(ctx)
		if err != nil {
			return nil, err
		}
		var held []error
		for _, gpu := range report.GPUs {
			if gpu.Used != 0 {
				held = append(held, fmt.Errorf("%d bytes of GPU %d are still held", gpu.Used, gpu.Index))
			}
		}
		if len(held) == 0 || time.Now().After(end) {
			return report, errors.Join(held...)
		}
		select {
		case <-ctx.Done():
			return report, errors.Join(append(held, ctx.Err())...)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// settled checks the simulated driver's record after all programs have ended: nothing is held, no handle was used after
// its end, and no share ever held more than its limit.
func (p *place) settled(ctx context.Context) error {
	report, err := p.released(ctx)
	if report == nil {
		return err
	}
	faults := []error{err}
	if report.DeadHandles != 0 {
		faults = append(faults, fmt.Errorf("%d handles were used after their end", report.DeadHandles))
	}
	for _, tenant := range report.Tenants {
		for _, gpu := range tenant.GPUs {
			if tenant.Tenant != "" && gpu.Peak > p.limit {
				faults = append(faults, fmt.Errorf("a share held %d bytes, %d are allowed", gpu.Peak, p.limit))
			}
		}
	}
	return errors.Join(faults...)
}

// kernels is how many kernels a machine's first GPU has executed.
func kernels(report *simgpu.Report) int {
	return int(time.Duration(report.GPUs[0].BusyNs) / kernelTime)
}

// launched checks how many kernels the GPU has executed.
func launched(report *simgpu.Report, want int) error {
	if got := kernels(report); got != want {
		return fmt.Errorf("the GPU has executed %d kernels, want %d", got, want)
	}
	return nil
}
