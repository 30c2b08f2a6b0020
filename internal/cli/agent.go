package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime/debug"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/agent/daemon"
	"github.com/divvy-gpu/divvy/internal/agent/exposition"
	"github.com/divvy-gpu/divvy/internal/agentconfig"
	"github.com/divvy-gpu/divvy/internal/cli/program"
	"github.com/divvy-gpu/divvy/internal/driver"
	"github.com/divvy-gpu/divvy/internal/edits/cdi"
	"github.com/divvy-gpu/divvy/internal/launch"
	"github.com/divvy-gpu/divvy/internal/nvml/helper"
	"github.com/divvy-gpu/divvy/internal/process"
	"github.com/divvy-gpu/divvy/internal/remote/relay"
	"github.com/divvy-gpu/divvy/internal/simgpu"
	"github.com/divvy-gpu/divvy/internal/terminal"
	"github.com/divvy-gpu/divvy/internal/version"
)

const agentHelp = `Serve this machine's GPUs: grant shares, free the memory of processes that died,
and report processes on a GPU that are in no share. As root, the agent serves
every user, and takes over the GPUs and shares of users' own agents. Where no agent
runs and none is configured, 'divvy run' starts one for its user alone, which holds
only the GPUs on which it has shares. Two agents never serve one GPU. SIGTERM ends
the agent, and shares continue. Started by systemd as a service of Type=notify, it
tells when it serves.

Once the agent has run as root nobody starts an own agent until the machine starts
again: 'divvy run' waits for the system agent. Remove /run/divvy/system-agent to
allow it. A configuration in /etc/divvy/agent.yaml, or an enabled unit
divvy-agent.service, has the same effect for good.

The agent compares what each share reports with the driver's figures. A share
that uses more of a GPU's time than it may, or than it reports, is shown by
'divvy ls' within two seconds.

/etc/divvy/agent.yaml says how much each user may have, who may overcommit, and
whether the agent also stops (SIGSTOP) or kills processes on a GPU that take more
than their share. The agent reads it when it starts, and does not start with a
faulty one. An own agent has no configuration.

With --simgpu a simulated machine stands in for this machine's GPUs, and every
user's 'divvy run' gets a share of it.

With --kubernetes the agent also serves the kubelet of a cluster's node, and has
more flags: 'divvy agent --kubernetes --help' lists them.`

// agentFlags are the flags of `divvy agent`.
type agentFlags struct {
	instance, machine, driver, config, address, containers string
	ephemeral, kubernetes, check, machines                 bool
	swapMemory                                             v1alpha1.Memory
}

func newAgent(a *app) *cobra.Command {
	var f agentFlags
	command := &cobra.Command{
		Use:     "agent",
		Short:   "Serve this machine's GPUs to every user, or to a Kubernetes cluster",
		Long:    agentHelp,
		Example: "  sudo divvy agent\n  sudo divvy agent --config ./agent.yaml\n  sudo divvy agent --simgpu a800x8\n  divvy agent --kubernetes --driver-root /host",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.check {
				return inOneLine(removable(a.goingOn(cmd.Context())), a.given(cmd.Context()).removable())
			}
			if f.machines && (os.Getuid() != 0 || f.machine != "") {
				return usage(errors.New("--vm-only is for root's agent of a real machine: leave out --simgpu, and start it as root"))
			}
			if f.address != "" && !agentconfig.IsMetricsAddress(f.address) {
				return usage(fmt.Errorf("--metrics-address %q: give an address and a port, such as %s or :9410, or none", f.address, exposition.DefaultAddress))
			}
			if !f.swapMemory.IsZero() && f.swapMemory.InBytes() == 0 {
				return usage(fmt.Errorf("--swap-memory %s: give an amount of host memory, such as 64Gi: it is no part of a GPU", f.swapMemory))
			}
			return a.serve(cmd.Context(), f)
		},
	}
	flags := command.Flags()
	flags.StringVar(&f.config, "config", "", "the configuration, a `FILE` (default: "+daemon.DefaultConfig+" if it exists)")
	flags.StringVar(&f.address, "metrics-address", "", "`ADDRESS` where Prometheus reads metrics, such as "+exposition.DefaultAddress+", or none (default: that of the configuration, or "+exposition.DefaultAddress+" of a system agent)")
	flags.Var(&memoryFlag{&f.swapMemory}, "swap-memory", "host memory that swapped and suspended shares may have together, such as 64Gi (default: that of the configuration, or none, and then there are no such shares)")
	flags.StringVar(&f.containers, "cdi-dir", cdi.DefaultDir, "`DIR` of the devices by which containers get the shares of 'divvy share create'")
	flags.StringVar(&f.machine, "simgpu", "", "serve every user the simulated `MACHINE`, started if needed, in place of this machine's GPUs")
	flags.StringVar(&f.driver, "driver-root", "", "`DIR` where the host's files are mounted, for an agent in a container")
	flags.BoolVar(&f.check, "check-uninstall", false, "serve nobody: fail if shares run, of any user, which need Divvy's files, or if virtual machines have devices by claims")
	flags.BoolVar(&f.machines, "vm-only", false, "serve devices to virtual machines alone ('divvy vm claim'), on a host without NVIDIA's driver")
	// For help only: with this flag divvy becomes the cluster's program, see forCluster.
	flags.BoolVar(&f.kubernetes, "kubernetes", false, "serve the node of a Kubernetes cluster")
	// control.Ensure starts agents with these flags.
	flags.BoolVar(&f.ephemeral, "ephemeral", false, "end with the last share")
	flags.StringVar(&f.instance, "simgpu-dir", "", "serve the simulated machine in this directory")
	for _, name := range []string{"ephemeral", "simgpu-dir"} {
		flags.Lookup(name).Hidden = true
	}
	return command
}

// serve runs the agent until ctx is done.
func (a *app) serve(ctx context.Context, f agentFlags) error {
	// A fault of the agent's own ends it by a signal: the status that Go gives it else, 2, is that of faulty flags, after
	// which the unit does not start it again.
	debug.SetTraceback("crash")
	// An agent stays for months and has hundreds of shares to remember: it collects garbage when there is half as much as what is used.
	debug.SetGCPercent(50)
	endpoint := a.endpoint(f.instance)
	if !f.ephemeral {
		endpoint.Rundir = a.rundir // root's is the system agent's
	}
	supervisor, err := daemon.TakeSupervisor()
	if err != nil {
		return err
	}
	if f.ephemeral {
		supervisor = nil // that of the program which started the agent
	}
	ready, err := starter(f.ephemeral)
	if err != nil {
		return err
	}
	simulated, undo, err := a.published(ctx, f.machine)
	if err != nil {
		return err
	}
	return daemon.Serve(ctx, daemon.Options{
		Endpoint:   endpoint,
		Simgpu:     simulated,
		Unserved:   undo,
		Tree:       a.tree,
		DriverRoot: f.driver,
		Ephemeral:  f.ephemeral,

		MachinesOnly: f.machines,

		Config:     f.config,
		Containers: f.containers,
		Ready:      ready,
		Supervisor: supervisor,
		Log:        slog.New(slog.NewTextHandler(a.err, nil)),

		MetricsAddress: f.address, Version: version.Full(), SwapMemory: f.swapMemory.InBytes(),
	})
}

// lateDriver is how long after the machine's start a driver may still come by itself: kernel modules are loaded and device nodes
// made beside the services of the machine.
const lateDriver = 2 * time.Minute

// exitAgent is the exit status for an agent's error, given for how long the machine has run; 0 is the usual one. The unit starts
// the agent again after the usual one alone: deploy/deb/divvy-agent.service.
func exitAgent(err error, up time.Duration) int {
	faulty := new(simgpu.Fault)
	switch {
	case errors.Is(err, agentconfig.ErrConfig):
		return program.ExitConfig
	case errors.Is(err, simgpu.ErrUnknownMachine), errors.As(err, &faulty):
		return program.ExitUsage // the flag --simgpu names it
	case up > lateDriver && (errors.Is(err, driver.ErrNotFound) || errors.Is(err, driver.ErrUnusable)):
		return program.ExitUnavailable
	}
	return 0
}

// published is the directory of a simulated machine that every user can reach, "" for
// no machine. undo stops a machine that was started for this.
func (a *app) published(ctx context.Context, machine string) (dir string, undo func() error, err error) {
	if machine == "" {
		return "", nil, nil
	}
	if os.Getuid() != 0 {
		return "", nil, usage(fmt.Errorf("--simgpu serves every user, which only root can: `divvy run --simgpu %s` serves you", machine))
	}
	_, openErr := a.simgpus().Open(machine)
	instance, err := a.simulated(ctx, machine)
	if err != nil {
		return "", nil, err
	}
	if openErr != nil {
		undo = func() error { return a.simgpus().Stop(context.WithoutCancel(ctx), instance, false) }
	}
	return instance.Dir, undo, a.simgpus().Publish(instance)
}

// starter returns the pipe to the program that started an ephemeral agent, or nil
// if a person started it. Programs that the agent runs do not inherit it. What that program left open for its command is closed:
// the agent may outlive both.
func starter(ephemeral bool) (io.WriteCloser, error) {
	if !ephemeral || !isPipe(control.ReadyFD) {
		return nil, nil
	}
	unix.CloseOnExec(control.ReadyFD)
	if err := process.CloseInherited(control.ReadyFD); err != nil {
		return nil, err
	}
	return os.NewFile(control.ReadyFD, "ready"), nil
}

func isPipe(fd int) bool {
	var stat unix.Stat_t
	return unix.Fstat(fd, &stat) == nil && stat.Mode&unix.S_IFMT == unix.S_IFIFO
}

// newHelper is the process in which an agent asks the driver. People do not run it.
func newHelper() *cobra.Command {
	return &cobra.Command{
		Use:    daemon.HelperCommand,
		Short:  "Ask the driver for an agent",
		Args:   noArgs,
		Hidden: true,
		RunE:   func(*cobra.Command, []string) error { return helper.Main() },
	}
}

// newTell is the process that writes a line of an agent's to where a program writes its
// errors. People do not run it.
func newTell() *cobra.Command {
	return &cobra.Command{
		Use:                terminal.Command,
		Short:              "Tell a program's user something for an agent",
		Hidden:             true,
		DisableFlagParsing: true,
		RunE:               func(_ *cobra.Command, args []string) error { return terminal.Main(args) },
	}
}

// newRelay is the process that keeps the share of a command on another host. People do not run it.
func newRelay() *cobra.Command {
	return &cobra.Command{
		Use:    launch.RelayCommand,
		Short:  "Keep a share on another host for a command",
		Args:   noArgs,
		Hidden: true,
		RunE:   func(cmd *cobra.Command, _ []string) error { return relay.Main(cmd.Context()) },
	}
}
