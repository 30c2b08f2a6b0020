package simgpu

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/divvy-gpu/divvy/internal/exports"
	"github.com/divvy-gpu/divvy/internal/install"
	"github.com/divvy-gpu/divvy/internal/simgpu/simfiles"
)

// Control runs simgpuctl, the one program besides the simulated libraries that
// knows the shared state.
type Control struct {
	// Prefix is the root of the installation that simgpuctl and the libraries
	// are part of, an [install.Tree].
	Prefix string
}

// copyLibraries makes an instance's directory one of the libraries of a driver for that version of CUDA: they export
// the names that such a driver has, and no newer ones.
func (c Control) copyLibraries(dir string, cuda uint32) error {
	for _, library := range libraries {
		image, err := os.ReadFile(simfiles.Library(c.Prefix, library))
		if err != nil {
			return fmt.Errorf("copy library: %w", err)
		}
		if image, err = exports.Keep(image, func(name string) bool { return since(name) <= cuda }); err != nil {
			return fmt.Errorf("copy %s: %w", library, err)
		}
		if err := os.WriteFile(filepath.Join(dir, library), image, 0o755); err != nil {
			return fmt.Errorf("copy library: %w", err)
		}
		bare := strings.TrimSuffix(library, ".1")
		if err := os.Symlink(library, filepath.Join(dir, bare)); err != nil {
			return fmt.Errorf("link library: %w", err)
		}
	}
	if err := os.Symlink(filepath.Dir(simfiles.Library(c.Prefix, libraries[0])), filepath.Join(dir, TreeLink)); err != nil {
		return fmt.Errorf("link library: %w", err)
	}
	return nil
}

// copyPrograms puts the driver's programs beside its libraries. They find the machine by that.
func (c Control) copyPrograms(dir string) error {
	for _, program := range programs {
		image, err := os.ReadFile(simfiles.Library(c.Prefix, program))
		if err != nil {
			return fmt.Errorf("copy program: %w", err)
		}
		if err := os.WriteFile(filepath.Join(dir, program), image, 0o755); err != nil {
			return fmt.Errorf("copy program: %w", err)
		}
	}
	return nil
}

// since is the version of CUDA with which a name came, 0 for one that is not the driver's.
func since(name string) uint32 {
	return max(cudaSince[name], nvmlSince[name])
}

func (c Control) create(ctx context.Context, dir string, image []byte) error {
	_, err := c.run(ctx, image, "create", dir)
	return err
}

func (c Control) report(ctx context.Context, dir string) (*Report, error) {
	text, err := c.run(ctx, nil, "report", dir)
	if err != nil {
		return nil, err
	}
	return ParseReport(text)
}

// Injection makes calls fail or slow on demand.
type Injection struct {
	// Call is the exported name of a function, or one of [CallClasses].
	Call string
	// Result is the number the call answers; 0 lets it answer truly.
	Result uint32
	// Delay is added before the call answers.
	Delay time.Duration
	// Count is how many calls are affected; 0 affects all.
	Count uint64
}

// CallClasses are the groups of calls that can be named in an [Injection]:
// every allocation of device memory; every launch, copy and synchronisation;
// every NVML query of a device. A class takes no Count.
var CallClasses = []string{"alloc", "work", "nvml"}

// CallXid stands for no call: its Result is the number of a critical error that
// those who wait for NVML events are told of at once.
const CallXid = "xid"

// CallsSilence are no calls either: they let NVML not answer about a GPU until the
// injections are cleared; the second keeps nvmlInit from returning as well.
var CallsSilence = []string{"silent", "silent-init"}

// CallReset is no call: it resets a GPU that no process uses, as after it fell off the bus. The GPU answers again, and
// whoever has NVML open from before must open it anew.
const CallReset = "reset"

// CallNoReset is no call: until the injections are cleared the driver cannot reset the GPU, as in a virtual machine that was
// given it.
const CallNoReset = "no-reset"

// maxCall is the length of the longest name that the shared state holds.
const maxCall = 63

// Validate checks an injection of calls.
func (in Injection) Validate() error {
	class := slices.Contains(CallClasses, in.Call)
	named := strings.HasPrefix(in.Call, "cu") || strings.HasPrefix(in.Call, "nvml")
	silence := slices.Contains(append([]string{CallReset, CallNoReset}, CallsSilence...), in.Call)
	switch {
	case silence && in != (Injection{Call: in.Call}):
		return fmt.Errorf("%s goes with no result, delay or count", in.Call)
	case silence:
		return nil
	case !class && !named || len(in.Call) > maxCall:
		return fmt.Errorf("%q is neither a function of CUDA or NVML nor one of %s", in.Call, strings.Join(CallClasses, ", "))
	case in.Result == 0 && in.Delay == 0:
		return fmt.Errorf("say what happens to %s: an error to return, a delay, or both", in.Call)
	case in.Delay < 0 || in.Delay > maxDuration:
		return fmt.Errorf("delay %v is not between 0 and %v", in.Delay, maxDuration)
	case class && in.Count > 0:
		return fmt.Errorf("a count goes with the name of one function, not with %s", in.Call)
	}
	return nil
}

func (c Control) inject(ctx context.Context, dir string, gpu int, in Injection) error {
	_, err := c.run(ctx, nil, "inject", dir, strconv.Itoa(gpu), in.Call,
		strconv.FormatUint(uint64(in.Result), 10),
		strconv.FormatInt(in.Delay.Microseconds(), 10),
		strconv.FormatUint(in.Count, 10))
	return err
}

func (c Control) clear(ctx context.Context, dir string, gpu int) error {
	_, err := c.run(ctx, nil, "clear", dir, strconv.Itoa(gpu))
	return err
}

// run gives simgpuctl the input and returns what it prints; its own words
// become the error.
func (c Control) run(ctx context.Context, input []byte, args ...string) ([]byte, error) {
	program := install.Tree(c.Prefix).Program("simgpuctl")
	command := exec.CommandContext(ctx, program, args...)
	command.Stdin = bytes.NewReader(input)
	var said bytes.Buffer
	command.Stderr = &said
	output, err := command.Output()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit) && said.Len() > 0:
		return nil, errors.New(strings.TrimSpace(said.String()))
	case errors.As(err, &exit):
		return nil, fmt.Errorf("run %s: %w: make room in /dev/shm if it is full, or set DIVVY_RUNDIR to a directory that has room", program, err)
	case err != nil:
		return nil, fmt.Errorf("run %s: %w: build it with `make`, or point %s at an installed Divvy", program, err, install.Variable)
	}
	return output, nil
}
