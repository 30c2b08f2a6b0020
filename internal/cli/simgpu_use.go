package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/mps"
	"github.com/divvy-gpu/divvy/internal/process"
	"github.com/divvy-gpu/divvy/internal/simgpu"
)

func newSimgpuExec(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "exec [NAME] -- COMMAND [ARGUMENT]...",
		Short: "Run a command on a simulated machine, outside any share",
		Long: `Run a command on a simulated machine, outside any share: it has all GPUs and all
of their memory. Divvy becomes the command. The simulated driver is found by
LD_LIBRARY_PATH, its programs, such as nvidia-cuda-mps-control, by PATH.`,
		Example: `  divvy simgpu exec -- nvitop -1
  divvy simgpu exec a800x8 -- python -c \
    'import pynvml as n; n.nvmlInit(); print(n.nvmlDeviceGetCount())'`,
		RunE: func(cmd *cobra.Command, args []string) error {
			name, command, err := splitAtDash(args, cmd.ArgsLenAtDash())
			if err != nil {
				return err
			}
			instance, err := a.instance(name)
			if err != nil {
				return err
			}
			return execOn(instance, command)
		},
	}
}

// splitAtDash divides arguments into an instance's name, which may be missing, and
// the command after "--". dash is the number of arguments before it, or -1.
func splitAtDash(args []string, dash int) (name string, command []string, err error) {
	if dash < 0 || dash == len(args) {
		return "", nil, usage(errors.New("put the command after --, such as: divvy simgpu exec -- nvitop -1"))
	}
	if dash > 1 {
		return "", nil, usage(fmt.Errorf("%q is one name too many before --", args[1]))
	}
	return only(args[:dash]), args[dash:], nil
}

// execOn becomes the command with the instance's driver; it returns only when
// it cannot.
func execOn(instance *simgpu.Instance, command []string) error {
	library := filepath.Join(instance.Dir, "libcuda.so.1")
	if _, err := os.Stat(library); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("the simulated driver behind %s is gone: `divvy simgpu stop %s` and start it again", library, instance.Name)
	}
	// The driver's programs lie beside its libraries.
	if err := os.Setenv("PATH", instance.Dir+string(filepath.ListSeparator)+os.Getenv("PATH")); err != nil {
		return fmt.Errorf("put the driver's programs on PATH: %w", err)
	}
	program, err := exec.LookPath(command[0])
	if err != nil {
		return fmt.Errorf("find command: %w", err)
	}
	if err := syscall.Exec(program, command, driverEnvironment(os.Environ(), instance.Dir)); err != nil {
		return fmt.Errorf("execute %s: %w", program, err)
	}
	return nil
}

// driverEnvironment puts the instance's directory first on the library path.
func driverEnvironment(environ []string, dir string) []string {
	path := dir
	kept := slices.DeleteFunc(slices.Clone(environ), func(entry string) bool {
		if old, found := strings.CutPrefix(entry, "LD_LIBRARY_PATH="); found {
			if old != "" {
				path += ":" + old
			}
			return true
		}
		return strings.HasPrefix(entry, "DIVVY_SIMGPU=")
	})
	return append(kept, "LD_LIBRARY_PATH="+path, "DIVVY_SIMGPU="+dir)
}

func newSimgpuStop(a *app) *cobra.Command {
	var force bool
	command := &cobra.Command{
		Use:   "stop [NAME]",
		Short: "Stop a simulated machine",
		Long: `Stop a simulated machine and free its memory. A machine in use is stopped only
with --force; the programs that use it then keep its memory until they end. Its MPS
control daemons are ended, and your own agent, which would start them again.`,
		Example: `  divvy simgpu stop
  divvy simgpu stop a800x8 --force`,
		Args: instanceArg,
		RunE: func(cmd *cobra.Command, args []string) error {
			instance, err := a.instance(only(args))
			if err != nil {
				return err
			}
			if force {
				if err := a.endDaemons(cmd.Context(), instance); err != nil {
					return err
				}
			}
			return a.stopMachine(cmd.Context(), instance, force)
		},
	}
	command.Flags().BoolVar(&force, "force", false, "stop it even while it is in use")
	return command
}

// agentEnds is longer than an agent takes to end after its last share.
const agentEnds = 5 * time.Second

// stopMachine stops a simulated machine. If only an idle agent uses the machine,
// it waits for the agent, which ends soon after its last share.
func (a *app) stopMachine(ctx context.Context, instance *simgpu.Instance, force bool) error {
	stop := func() error { return a.simgpus().Stop(ctx, instance, force) }
	err := stop()
	if !errors.Is(err, simgpu.ErrBusy) || !agentIdle(ctx, a.endpoint(instance.Dir)) {
		return err
	}
	deadline := time.After(agentEnds)
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for errors.Is(err, simgpu.ErrBusy) {
		select {
		case <-ticker.C:
			err = stop()
		case <-deadline:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return err
}

// endDaemons ends the MPS control daemons of a simulated machine, and before them the user's own agent there, which would
// start them again. Nothing is left of the directories that both need.
func (a *app) endDaemons(ctx context.Context, instance *simgpu.Instance) error {
	pipes := mps.Left(filepath.Join(instance.Dir, "mps"))
	if len(pipes) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, agentEnds)
	defer cancel()
	if client, err := control.Dial(ctx, a.endpoint(instance.Dir).Socket()); err == nil {
		info := client.Info()
		_ = client.Close() // it has told enough
		if err := endAgent(ctx, info); err != nil {
			return err
		}
	}
	for _, pipe := range pipes {
		if err := mps.EndOf(ctx, pipe, os.Getuid()); err != nil && !errors.Is(err, mps.ErrAbsent) {
			return err
		}
	}
	return nil
}

// endAgent ends a user's own agent, and returns when it is gone.
func endAgent(ctx context.Context, info control.Info) error {
	if !info.Ephemeral || info.UID != os.Getuid() {
		return nil
	}
	id, err := process.Find(info.PID)
	if err != nil {
		return nil //nolint:nilerr // it has ended
	}
	done, stop, err := id.Watch()
	if err != nil {
		return err
	}
	defer stop()
	if err := id.Signal(syscall.SIGTERM); err != nil && id.Alive() {
		return fmt.Errorf("end the agent, process %d: %w", id.PID, err)
	}
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("end the agent, process %d: %w", id.PID, ctx.Err())
	}
}

// agentIdle reports whether an agent runs and has no tenants.
func agentIdle(ctx context.Context, endpoint control.Endpoint) bool {
	idle := false
	err := ask(ctx, endpoint, func(c *control.Client) error {
		list, err := c.List(ctx)
		idle = err == nil && len(list.Tenants) == 0 && len(list.Waiting) == 0
		return err
	})
	return err == nil && idle
}

// injectOptions are the flags of `divvy simgpu inject`.
type injectOptions struct {
	gpu    int
	call   string
	result uint32
	xid    uint32
	delay  time.Duration
	count  uint64
	clear  bool
}

func newSimgpuInject(a *app) *cobra.Command {
	var o injectOptions
	command := &cobra.Command{
		Use:   "inject [NAME]",
		Short: "Make calls of a simulated machine fail or take longer",
		Long: `Make calls of a simulated machine fail or take longer, until --clear. --call names
an exported function, or a group of them: "alloc" allocates device memory, "work"
launches, copies and synchronises, "nvml" asks about a device. --return is the
result of the call, a number of CUresult or nvmlReturn_t. "silent" lets no NVML call
about the GPU return until --clear, and "silent-init" no nvmlInit either. "reset" resets a
GPU that no process uses: it answers again, and whoever had NVML open must open it anew.
With "no-reset" the driver cannot reset the GPU until --clear, as in a virtual machine.
--xid reports a critical error to programs that wait for NVML events. Only root and who
started the machine may do this.`,
		Example: `  divvy simgpu inject --call nvmlDeviceGetMemoryInfo --return 999
  divvy simgpu inject --call cuMemAlloc_v2 --return 2 --count 3
  divvy simgpu inject --gpu 1 --call nvml --delay 200ms
  divvy simgpu inject --gpu 1 --call silent
  divvy simgpu inject --xid 79
  divvy simgpu inject --clear`,
		Args: instanceArg,
		RunE: func(cmd *cobra.Command, args []string) error {
			injections, err := o.injections()
			if err != nil {
				return usage(err)
			}
			instance, err := a.instance(only(args))
			if err != nil {
				return err
			}
			store := a.simgpus()
			if o.clear {
				if cmd.Flags().Changed("gpu") {
					return store.Clear(cmd.Context(), instance, o.gpu)
				}
				return store.Clear(cmd.Context(), instance)
			}
			for _, in := range injections {
				if err := store.Inject(cmd.Context(), instance, o.gpu, in); err != nil {
					return err
				}
			}
			return nil
		},
	}
	flags := command.Flags()
	flags.IntVar(&o.gpu, "gpu", 0, "`INDEX` of the GPU, in NVML's order")
	flags.StringVar(&o.call, "call", "", "exported `NAME`, or alloc, work, nvml, silent, silent-init, reset or no-reset")
	flags.Uint32Var(&o.result, "return", 0, "`RESULT` of the call (default: the true one)")
	flags.DurationVar(&o.delay, "delay", 0, "additional time that the call takes")
	flags.Uint64Var(&o.count, "count", 0, "number of calls to change (default: all)")
	flags.Uint32Var(&o.xid, "xid", 0, "report the critical error of that `NUMBER`")
	flags.BoolVar(&o.clear, "clear", false, "end all injections, on all GPUs or on that of --gpu")
	return command
}

// injections returns what the flags ask for.
func (o *injectOptions) injections() ([]simgpu.Injection, error) {
	if o.clear {
		if o.call != "" || o.xid != 0 {
			return nil, errors.New("--clear goes with --gpu only")
		}
		return nil, nil
	}
	var list []simgpu.Injection
	if o.xid != 0 {
		list = append(list, simgpu.Injection{Call: simgpu.CallXid, Result: o.xid})
	}
	if o.call != "" {
		in := simgpu.Injection{Call: o.call, Result: o.result, Delay: o.delay, Count: o.count}
		if err := in.Validate(); err != nil {
			return nil, err
		}
		list = append(list, in)
	}
	if len(list) == 0 {
		return nil, errors.New("say what to inject: --call NAME with --return or --delay, or --xid NUMBER")
	}
	return list, nil
}
