package cli

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/agent"
	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/agent/kube"
)

// agentOptions are the flags of divvy agent.
type agentOptions struct {
	instance  string
	driver    string
	ephemeral bool
	misuse    misuseFlag

	kubernetes bool
	cluster    cluster
	mode       modeFlag
	kube       kube.Options
}

func newAgent(a *app) *cobra.Command {
	// A pod is prepared by a few questions at once, and 200 pods may come together.
	o := agentOptions{misuse: misuseFlag(agent.MisuseReport), mode: modeFlag(kube.ModeAuto), cluster: cluster{qps: 100, burst: 200}}
	command := &cobra.Command{
		Use:   "agent",
		Short: "Serve this machine's GPUs to every user, or to a Kubernetes cluster",
		Long: `Serve this machine's GPUs: grant shares, take back the memory of processes that
died, report processes on a GPU that are in no share. As root it serves every
user; 'divvy run' starts one for its user alone where none runs. Two agents
never serve one GPU. Shares outlive the agent; SIGTERM ends it.

A share that uses more of a GPU's time than it may, or than it says, is seen by
the driver's figures within two seconds. It is then reported by 'divvy ls' or,
with --misuse, its processes on the GPU are stopped (SIGSTOP) or killed as well.

With --kubernetes it also serves the node's kubelet: by dynamic resource
allocation (mode claims, Kubernetes 1.36 and later) or by a device plugin with
NRI (mode slots, 1.34 and 1.35). Claims that were prepared outlive it, too.`,
		Example: `  sudo divvy agent
  sudo divvy agent --misuse stop
  divvy agent --kubernetes --driver-root /host`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context(), a) },
	}
	o.flags(command.Flags())
	return command
}

func (o *agentOptions) flags(flags *pflag.FlagSet) {
	flags.Var(&o.misuse, "misuse", "what is done about misuse of GPU time: report, stop or kill")
	flags.StringVar(&o.driver, "driver-root", "", "where the host's files are seen, for an agent in a container")
	flags.BoolVar(&o.kubernetes, "kubernetes", false, "serve the node of a Kubernetes cluster")
	o.cluster.flags(flags)
	flags.StringVar(&o.kube.Node, "node-name", os.Getenv("NODE_NAME"), "the node's name in the cluster (default: $NODE_NAME)")
	flags.Var(&o.mode, "mode", "how containers get shares: claims, slots, or auto for what the cluster's version is able to")
	flags.StringVar(&o.kube.MetricsAddress, "metrics-address", ":9410", "where metrics and probes are answered, without TLS")
	flags.StringVar(&o.kube.KubeletDir, "kubelet-dir", "/var/lib/kubelet", "the kubelet's --root-dir")
	flags.StringVar(&o.kube.RuntimeEndpoint, "runtime-endpoint", "unix:///run/containerd/containerd.sock", "the container runtime's CRI socket, for mode slots")
	flags.BoolVar(&o.ephemeral, "ephemeral", false, "end with the last share")
	flags.StringVar(&o.instance, "simgpu-dir", "", "serve the simulated machine in this directory")
	// What control.Ensure says to the agents that it starts.
	for _, name := range []string{"ephemeral", "simgpu-dir"} {
		flags.Lookup(name).Hidden = true
	}
}

func (o *agentOptions) run(ctx context.Context, a *app) error {
	options := agent.Options{
		Place:      a.place(o.instance),
		Tree:       a.tree,
		DriverRoot: o.driver,
		Ephemeral:  o.ephemeral,
		Misuse:     agent.Misuse(o.misuse),
		Ready:      starter(o.ephemeral),
		Log:        slog.New(slog.NewTextHandler(a.err, nil)),
	}
	if o.kubernetes {
		o.kube.Mode, o.kube.Version, o.kube.PodUID = kube.Mode(o.mode), version(), os.Getenv("POD_UID")
		if err := o.kube.Validate(); err != nil {
			return usage(err)
		}
		client, err := o.cluster.connect(options.Log, "divvy-agent")
		if err != nil {
			return err
		}
		o.kube.Client = client
		options.Face = o.kube.Face
	}
	return agent.Serve(ctx, options)
}

// modeFlag is how containers get shares.
type modeFlag kube.Mode

// Set implements pflag.Value.
func (f *modeFlag) Set(text string) error {
	if !slices.Contains(kube.Modes, kube.Mode(text)) {
		return fmt.Errorf("use claims, slots or auto")
	}
	*f = modeFlag(text)
	return nil
}

// Type implements pflag.Value.
func (f *modeFlag) Type() string { return "MODE" }

func (f *modeFlag) String() string { return string(*f) }

// misuseFlag is what is done about misuse.
type misuseFlag agent.Misuse

// Set implements pflag.Value.
func (f *misuseFlag) Set(text string) error {
	switch agent.Misuse(text) {
	case agent.MisuseReport, agent.MisuseStop, agent.MisuseKill:
		*f = misuseFlag(text)
		return nil
	}
	return fmt.Errorf("use report, stop or kill")
}

// Type implements pflag.Value.
func (f *misuseFlag) Type() string { return "ANSWER" }

func (f *misuseFlag) String() string { return string(*f) }

// starter is the pipe to the program that started an ephemeral agent, nil where
// a person did. Programs that the agent runs do not inherit it.
func starter(ephemeral bool) io.WriteCloser {
	var stat unix.Stat_t
	if !ephemeral || unix.Fstat(control.ReadyFD, &stat) != nil || stat.Mode&unix.S_IFMT != unix.S_IFIFO {
		return nil
	}
	unix.CloseOnExec(control.ReadyFD)
	return os.NewFile(control.ReadyFD, "ready")
}
