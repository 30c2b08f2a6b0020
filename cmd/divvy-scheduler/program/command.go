// Package program is divvy-scheduler: the scheduler of Kubernetes as a library, whose decisions for pods with claims for
// Divvy's devices are replaced.
package program

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"reflect"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/component-base/cli"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/cli/globalflag"
	basecompatibility "k8s.io/component-base/compatibility"
	"k8s.io/component-base/featuregate"
	"k8s.io/component-base/logs"
	logsapi "k8s.io/component-base/logs/api/v1"
	_ "k8s.io/component-base/logs/json/register"          // --logging-format=json
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // what its requests take
	_ "k8s.io/component-base/metrics/prometheus/version"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/cmd/kube-scheduler/app"
	"k8s.io/kubernetes/cmd/kube-scheduler/app/options"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/version"
)

// Main runs the program and returns its exit status. A test's hook is called after each step that a scheduler could die
// at; the program itself has none.
func Main(args []string, hook func(step string)) int {
	command := newCommand(hook)
	command.SetArgs(args)
	return cli.Run(command)
}

// ownOptions are those that the scheduler of Kubernetes does not have.
type ownOptions struct {
	// consolidate lets pods move.
	consolidate bool
}

func (o *ownOptions) add(flags *pflag.FlagSet) {
	flags.BoolVar(&o.consolidate, "consolidate", false, "Move pods labelled "+v1alpha1.MovableLabel+"=true where GPUs are free only in pieces for a pod within its queue's guarantee.")
}

func newCommand(hook func(step string)) *cobra.Command {
	opts := options.NewOptions()
	var own ownOptions
	command := &cobra.Command{
		Use:   v1alpha1.SchedulerName,
		Short: "The scheduler of Kubernetes, with Divvy's order of GPUs and nodes",
		Long: "The scheduler of Kubernetes. It places pods with claims for Divvy's devices as Divvy's allocator says, and all\n" +
			"other pods as the scheduler of Kubernetes does.",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return fmt.Errorf("%q is no flag; %s takes flags only", strings.Join(args, " "), v1alpha1.SchedulerName)
			}
			return nil
		},
		PersistentPreRunE: func(*cobra.Command, []string) error { return opts.ComponentGlobalsRegistry.Set() },
		RunE: func(command *cobra.Command, _ []string) error {
			if command.Flags().Changed("version") {
				_, err := fmt.Fprintln(command.OutOrStdout(), v1alpha1.SchedulerName, version.Number())
				return err
			}
			return serve(opts, own, hook)
		},
	}
	sets := opts.Flags
	own.add(sets.FlagSet("divvy"))
	globalflag.AddGlobalFlags(sets.FlagSet("global"), command.Name(), logs.SkipLoggingConfigurationFlags())
	for _, set := range sets.FlagSets {
		command.Flags().AddFlagSet(set)
	}
	cliflag.SetUsageAndHelpFunc(command, *sets, 0)
	return command
}

// serve runs the scheduler until it is told to end. Whoever loses the lead ends as well: the next one takes over from what
// the API server has.
func serve(opts *options.Options, own ownOptions, hook func(step string)) error {
	config, err := configure(opts)
	if err != nil {
		return fmt.Errorf("read the configuration: %w", err)
	}
	defer config.Close()
	if reflect.ValueOf(opts.Metrics.MetricsConfiguration).IsZero() {
		opts.Metrics = nil // nothing is to be applied; Kubernetes would look for a manifest and log an error for that
	}
	gates := opts.ComponentGlobalsRegistry.FeatureGateFor(basecompatibility.DefaultKubeComponent)
	if err := logsapi.ValidateAndApply(opts.Logs, gates); err != nil {
		return fmt.Errorf("begin the log: %w", err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, unix.SIGTERM)
	defer stop()
	shared := &core{ctx: ctx, own: own, activate: func(...*corev1.Pod) {}}
	cc, sched, err := app.Setup(ctx, opts, app.WithPlugin(PluginName,
		func(ctx context.Context, args runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
			return shared.newPlugin(ctx, args, handle, hook)
		}))
	if err != nil {
		return fmt.Errorf("set the scheduler up: %w", err)
	}
	if gates, ok := gates.(featuregate.MutableFeatureGate); ok {
		gates.AddMetrics()
	}
	opts.ComponentGlobalsRegistry.AddMetrics()
	if err := shared.adapt(cc, sched); err != nil {
		return fmt.Errorf("put Divvy into the scheduler: %w", err)
	}
	if err := app.Run(ctx, cc, sched); ctx.Err() == nil {
		return err
	}
	return nil
}
