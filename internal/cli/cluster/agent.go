package cluster

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strconv"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/agent/daemon"
	"github.com/divvy-gpu/divvy/internal/agent/exposition"
	"github.com/divvy-gpu/divvy/internal/agent/kube"
	"github.com/divvy-gpu/divvy/internal/cli/program"
	"github.com/divvy-gpu/divvy/internal/remote/wire"
	"github.com/divvy-gpu/divvy/internal/rundir"
	"github.com/divvy-gpu/divvy/internal/version"
)

// agentOptions are the flags of divvy agent --kubernetes.
type agentOptions struct {
	instance string
	driver   string
	config   string
	cluster  connection
	mode     modeFlag
	kube     kube.Options
}

func newAgent(a *app) *cobra.Command {
	// A pod is prepared by a few questions at once, and 200 pods may come together.
	o := agentOptions{mode: modeFlag(kube.ModeAuto), cluster: connection{qps: 100, burst: 200}}
	command := &cobra.Command{
		Use:   "agent --kubernetes",
		Short: "Serve the node of a Kubernetes cluster",
		Long: `Serve this machine's GPUs to every user, as 'divvy agent' does, and to the node's
kubelet: by dynamic resource allocation (mode claims, Kubernetes 1.36 and later)
or by a device plugin with NRI (mode slots, 1.32 to 1.35). Claims that were
prepared outlive it, as shares do; SIGTERM ends it.

The node's labels ` + v1alpha1.DefaultPolicyLabel + ` and ` + v1alpha1.DefaultCoresLabel + `
replace both flags of these names if the node has either.`,
		Example: "  divvy agent --kubernetes --driver-root /host",
		Args:    program.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context(), a) },
	}
	o.flags(command.Flags())
	return command
}

func (o *agentOptions) flags(flags *pflag.FlagSet) {
	flags.Bool("kubernetes", true, "serve the node of a Kubernetes cluster")
	flags.StringVar(&o.config, "config", "", "the configuration, a `FILE` (default: "+daemon.DefaultConfig+" if it exists)")
	flags.StringVar(&o.driver, "driver-root", "", "where the host's files are seen, for an agent in a container")
	o.cluster.flags(flags)
	flags.StringVar(&o.kube.Node, "node-name", os.Getenv("NODE_NAME"), "the node's name in the cluster (default: $NODE_NAME)")
	flags.Var(&o.mode, "mode", "how containers get shares: claims, slots, or auto, by the cluster's version")
	flags.StringVar(&o.kube.MetricsAddress, "metrics-address", "", "`ADDRESS` where metrics and probes are answered, without TLS (default: that of the configuration, or "+exposition.DefaultAddress+")")
	flags.StringVar(&o.kube.KubeletDir, "kubelet-dir", "/var/lib/kubelet", "the kubelet's --root-dir")
	flags.StringVar((*string)(&o.kube.Defaults.Policy), "default-policy", "", "policy of shares that name none: fixed, weighted or burst (left out: fixed for shares with cores, else weighted)")
	flags.IntVar(&o.kube.Defaults.Cores, "default-cores", 0, "percentage of a GPU's time for shares that ask for none, 0 to 100; the scheduler counts it")
	flags.StringSliceVar(&o.kube.Pool.GPUs, "pool", nil, "`GPUS` that other nodes reach through the network, and that have no other form: indexes and UUIDs, or all; mode claims")
	flags.StringVar(&o.kube.Pool.Hosts, "pool-hosts", "", "the `LABELS` of nodes of which --pool is meant (default: every node that has the flag)")
	flags.StringVar(&o.kube.Pool.Selector, "pool-selector", "", "the `LABELS` of nodes that reach the GPUs of --pool (default: all nodes)")
	flags.StringVar(&o.kube.Pool.Address, "pool-address", "", "the `IP[:PORT]` at which nodes reach the GPUs of --pool (default: the node's InternalIP, port "+strconv.Itoa(wire.Port)+")")
	issuerFlags(flags, &o.kube.Issuer)
	flags.BoolVar(&o.kube.NVIDIANames, "nvidia-names", false, "publish GPUs also with the attributes of NVIDIA's DRA driver, for claims of its device class")
	flags.StringSliceVar((*[]string)(&o.kube.Kernels), "own-kernels", nil, "`HANDLERS` of runtime classes that run containers on a kernel of their own (default: those of Kata, gVisor and Firecracker)")
	flags.StringVar(&o.kube.DevicePluginConfigs, "device-plugin-configs", "", "`FOLDER` with configurations of NVIDIA's device plugin, of which the node's label nvidia.com/device-plugin.config names one")
	flags.BoolVar(&o.kube.NVIDIALabels, "nvidia-labels", false, "label the node as NVIDIA's GPU feature discovery does, where that does not")
	flags.BoolVar(&o.kube.Quiet, "no-share-events", false, "write no events on pods when their shares are granted, run out of memory and end, in mode claims")
	flags.StringVar(&o.instance, "simgpu-dir", "", "serve the simulated machine in this directory")
	flags.Lookup("simgpu-dir").Hidden = true
}

func (o *agentOptions) run(ctx context.Context, a *app) error {
	log := slog.New(slog.NewTextHandler(a.err, nil))
	o.kube.Mode, o.kube.Version = kube.Mode(o.mode), version.Full()
	if err := o.kube.Validate(); err != nil {
		return program.Usage(err)
	}
	client, err := o.cluster.connect(log, "divvy-agent")
	if err != nil {
		return err
	}
	o.kube.Client = client
	return daemon.Serve(ctx, daemon.Options{
		Endpoint:   control.Endpoint{Rundir: rundir.Path(), Simgpu: o.instance},
		Tree:       a.tree,
		DriverRoot: o.driver,
		Config:     o.config,
		Face:       o.kube.Face,
		// A node that uses the GPUs of others may have none.
		Driverless: o.kube.Issuer.Address != "",
		Machine:    a.hooks.Machine,
		Step:       a.hooks.Step,
		Log:        log,
	})
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
