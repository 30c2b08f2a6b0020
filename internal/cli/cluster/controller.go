package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"

	"github.com/spf13/cobra"
	"k8s.io/client-go/kubernetes"
	coordination "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/cli/program"
	"github.com/divvy-gpu/divvy/internal/controller"
	"github.com/divvy-gpu/divvy/internal/dialect"
)

// controllerOptions are the flags of divvy controller.
type controllerOptions struct {
	cluster   connection
	namespace string
	scheduler string
	metrics   string
	mode      string
	check     bool
	web       webFlags
	pool      poolFlags
}

func newController(a *app) *cobra.Command {
	o := controllerOptions{cluster: connection{qps: 50, burst: 100}}
	command := &cobra.Command{
		Use:   "controller",
		Short: "Look after a Kubernetes cluster's claim templates and waiting pods",
		Long: `Make the claim templates that pods need, collect those that no pod uses any more,
and say on pods that wait for a GPU, in an event, why none of them fits. Of
several replicas one works at a time: the one that holds the lease.

With --check-uninstall it only lists what holds GPUs, and exits with status 1 if
anything does.

With --web-address every replica serves the web page of the cluster's GPUs over TLS.
A reader gives a token of the cluster and sees the nodes and pods that it may list.

With --pool-address every replica gives agents the certificates with which their
nodes use the GPUs of others (divvy agent --pool).`,
		Example: "  divvy controller --namespace divvy-system\n  divvy controller --kubeconfig admin.conf --check-uninstall",
		Args:    program.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context(), a) },
	}
	flags := command.Flags()
	o.cluster.flags(flags)
	flags.StringVar(&o.namespace, "namespace", "divvy-system", "where the lease is")
	flags.StringVar(&o.scheduler, "scheduler", v1alpha1.SchedulerName, "the name under which Divvy's scheduler runs, which says itself why its pods wait")
	flags.StringVar(&o.metrics, "metrics-address", ":9411", "where metrics and probes are answered, without TLS")
	flags.StringVar(&o.mode, "mode", dialect.ModeClaims, "the form that requests are given: claims or slots; with --check-uninstall only")
	o.web.flags(flags)
	o.pool.flags(flags)
	flags.BoolVar(&o.check, "check-uninstall", false, "list what holds GPUs, and end")
	return command
}

func (o *controllerOptions) run(ctx context.Context, a *app) error {
	if o.mode != dialect.ModeClaims && o.mode != dialect.ModeSlots {
		return program.Usage(fmt.Errorf("mode %q: use %s or %s", o.mode, dialect.ModeClaims, dialect.ModeSlots))
	}
	if o.mode == dialect.ModeSlots && !o.check {
		return program.Usage(fmt.Errorf("mode slots has no claims: do not run the controller there"))
	}
	log := slog.New(slog.NewTextHandler(a.err, nil))
	client, leases, err := o.connect(log)
	if err != nil {
		return err
	}
	if o.check {
		inUse := controller.ClaimsInUse
		if o.mode == dialect.ModeSlots {
			inUse = controller.SlotsInUse
		}
		lines, err := inUse(ctx, client)
		if err != nil {
			return err
		}
		return o.report(a, lines)
	}
	plain, err := net.Listen("tcp", o.metrics)
	if err != nil {
		return fmt.Errorf("listen for probes: %w", err)
	}
	served, err := o.web.server(ctx, o, client, log)
	if err != nil {
		return errors.Join(err, plain.Close())
	}
	issued, err := o.pool.server(ctx, o, log)
	if err != nil {
		return errors.Join(err, plain.Close())
	}
	return controller.Run(ctx, controller.Options{
		Client: client, Leases: leases, Namespace: o.namespace, Scheduler: o.scheduler, Plain: plain, Web: served, Issue: issued, Log: log,
	})
}

// connect returns a client, and one for the lease alone. Each has a bound of requests of its own: however much there is
// to do, the lease is renewed in time.
func (o *controllerOptions) connect(log *slog.Logger) (client kubernetes.Interface, leases coordination.CoordinationV1Interface, err error) {
	if client, err = o.cluster.connect(log, "divvy-controller"); err != nil {
		return nil, nil, err
	}
	lease := connection{kubeconfig: o.cluster.kubeconfig, qps: 5, burst: 10}
	own, err := lease.connect(log, "divvy-controller-lease")
	if err != nil {
		return nil, nil, err
	}
	return client, own.CoordinationV1(), nil
}

func (o *controllerOptions) report(a *app, lines []string) error {
	for _, line := range lines {
		program.Say(a.out, "%s", line)
	}
	if len(lines) > 0 {
		return fmt.Errorf("pods hold GPUs: end them first, because they cannot end cleanly without Divvy's agent")
	}
	program.Say(a.out, "nothing holds a GPU")
	return nil
}
