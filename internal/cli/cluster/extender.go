package cluster

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"runtime/debug"
	"slices"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/metadata"

	"github.com/divvy-gpu/divvy/internal/alloc"
	"github.com/divvy-gpu/divvy/internal/cli/program"
	"github.com/divvy-gpu/divvy/internal/extender"
	"github.com/divvy-gpu/divvy/internal/webhook"
)

// extenderOptions are the flags of divvy scheduler-extender.
type extenderOptions struct {
	cluster          connection
	address, metrics string
	policy           string
	serving          webhook.Serving
	// authority is a file, names are those of its certificates who may ask.
	authority string
	names     []string
	election  extender.Election
	pod       string
	grace     time.Duration
}

func newSchedulerExtender(a *app) *cobra.Command {
	o := extenderOptions{cluster: connection{qps: 1000, burst: 2000}}
	command := &cobra.Command{
		Use:   "scheduler-extender",
		Short: "Tell the scheduler of Kubernetes 1.32 to 1.35 which nodes and GPUs pods with shares get",
		Long: `Answer the scheduler of a Kubernetes cluster with mode slots, as an extender of its
configuration with nodeCacheCapable and the verbs filter, prioritize and bind. A bind
writes the GPUs that the pod gets into the Binding. Of several replicas one answers at
a time: the one that holds the lease.

Who may ask can have every pod bound. So a scheduler shows a certificate of
--client-authority with one of the names as its subject, unless it is in the same pod
and the address is of the loopback interface.`,
		Example: `  divvy scheduler-extender --address 127.0.0.1:8444 --certificates memory --follow-lease divvy-scheduler
  divvy scheduler-extender --client-authority ca.crt --client-name system:kube-scheduler`,
		Args: program.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context(), a) },
	}
	o.flags(command)
	return command
}

func (o *extenderOptions) flags(command *cobra.Command) {
	flags := command.Flags()
	o.cluster.flags(flags)
	flags.StringVar(&o.address, "address", ":8444", "where the scheduler asks, over TLS")
	flags.StringVar(&o.metrics, "metrics-address", ":9411", "where metrics and probes are answered, without TLS")
	flags.StringVar(&o.policy, "policy", alloc.DefaultPolicy, "which place a pod gets of those that fit")
	flags.StringVar(&o.serving.Certificates, "certificates", webhook.OwnCertificates, "own, memory for one that nobody verifies, or a directory with tls.crt and tls.key")
	flags.StringVar(&o.serving.Service, "service", "divvy-scheduler-extender", "the Service that schedulers ask")
	flags.StringVar(&o.serving.Namespace, "namespace", "divvy-system", "the namespace of the Service, the Secret and the leases")
	flags.StringSliceVar(&o.serving.Hosts, "host", nil, "a further name or address in own certificates")
	flags.StringVar(&o.serving.Secret, "secret", "divvy-scheduler-extender-certificates", "the Secret that keeps own certificates")
	flags.StringVar(&o.authority, "client-authority", "", "`FILE` with the authority, in PEM, of the schedulers' client certificates")
	flags.StringArrayVar(&o.names, "client-name", nil, "a common name in these certificates")
	flags.StringVar(&o.election.Name, "lease", "divvy-scheduler-extender", "the lease that the replica holds that answers")
	flags.StringVar(&o.election.Scheduler, "follow-lease", "", "the `LEASE` of schedulers that each have a replica beside them: this one answers while the scheduler with its host's name holds it")
	flags.StringVar(&o.pod, "pod", "", "the name of this replica's pod: a process that was killed there had the same lease, so this one takes it at once (left out: after --lease-duration)")
	flags.DurationVar(&o.election.Duration, "lease-duration", 12*time.Second, "how long others leave the lease alone that is not renewed")
	flags.DurationVar(&o.election.Deadline, "lease-renew-deadline", 10*time.Second, "how long a replica tries to renew the lease")
	flags.DurationVar(&o.election.Retry, "lease-retry-period", 2*time.Second, "the time between two tries")
	flags.DurationVar(&o.grace, "grace", 10*time.Second, "how long a node's agent and pods may say different things before a GPU takes no more shares")
}

func (o *extenderOptions) run(ctx context.Context, a *app) error {
	// A question leaves far less behind than is kept of a large cluster, and waits where garbage is collected meanwhile. So that is
	// done seldom, as long as there is memory.
	limitMemory(memoryLimit, debug.SetMemoryLimit)
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(garbagePercent)
	}
	serve, err := o.options(ctx, slog.New(slog.NewTextHandler(a.err, nil)))
	if err != nil {
		return err
	}
	if serve.Questions, err = new(net.ListenConfig).Listen(ctx, "tcp", o.address); err != nil {
		return fmt.Errorf("listen for schedulers: %w", err)
	}
	if serve.Plain, err = new(net.ListenConfig).Listen(ctx, "tcp", o.metrics); err != nil {
		return errors.Join(fmt.Errorf("listen for probes: %w", err), serve.Questions.Close())
	}
	return extender.Serve(ctx, serve)
}

// garbagePercent is how much garbage there may be, in percent of what is kept.
const garbagePercent = 400

// options are what the server is started with, but for its listeners.
func (o *extenderOptions) options(ctx context.Context, log *slog.Logger) (extender.Options, error) {
	serve := extender.Options{Again: o.pod != "", Log: log, Election: o.election}
	var err error
	if serve.Ledger.Policy, err = alloc.PolicyNamed(o.policy); err != nil {
		return serve, program.Usage(err)
	}
	serve.Ledger.Grace = o.grace
	for _, check := range []func() error{o.durations, o.objects, o.callers} {
		if err := check(); err != nil {
			return serve, program.Usage(err)
		}
	}
	if err := o.connect(&serve, log); err != nil {
		return serve, err
	}
	serve.TLS, err = o.tls(ctx, &serve, log)
	return serve, err
}

// durations checks those of the lease, and the grace.
func (o *extenderOptions) durations() error {
	switch e := &o.election; {
	case e.Retry <= 0 || e.Deadline < 2*e.Retry || e.Duration <= e.Deadline:
		return errors.New("the lease needs --lease-duration > --lease-renew-deadline >= 2 × --lease-retry-period")
	case e.Duration < time.Second: // which the API server would be told as 0, and refuses
		return errors.New("the lease is written in whole seconds: it needs --lease-duration >= 1s")
	case o.grace < 0:
		return fmt.Errorf("--grace %v: give 0s or more", o.grace)
	}
	return nil
}

// objects checks names that otherwise nobody but the API server would refuse, again and again.
func (o *extenderOptions) objects() error {
	e := &o.election
	leases := []string{e.Name}
	if e.Scheduler != "" {
		leases = append(leases, e.Scheduler)
	}
	for _, name := range leases {
		if faults := validation.NameIsDNSSubdomain(name, false); len(faults) > 0 {
			return fmt.Errorf("%.100q is no name of a lease: %s", name, faults[0])
		}
	}
	switch {
	case e.Scheduler == e.Name:
		return errors.New("--follow-lease is that of the schedulers: a replica that follows its own never leads")
	case o.serving.Certificates == "":
		return errors.New("--certificates is empty: give own, memory or a directory")
	}
	return checkDivvys(o.serving.Namespace)
}

// callers checks that not everybody may ask.
func (o *extenderOptions) callers() error {
	switch {
	case (o.authority == "") != (len(o.names) == 0):
		return errors.New("give --client-authority and --client-name together")
	case slices.Contains(o.names, ""):
		return errors.New("--client-name is empty: every certificate without a name could bind every pod")
	}
	host, _, err := net.SplitHostPort(o.address)
	if ip := net.ParseIP(host); o.authority == "" && (err != nil || ip == nil || !ip.IsLoopback()) {
		return fmt.Errorf("whoever reaches %s could bind every pod: give --client-authority and --client-name, or a loopback --address", o.address)
	}
	return nil
}

// connect makes the clients: each has a bound of requests of its own, so that the lease is renewed in time however much there is to
// do.
func (o *extenderOptions) connect(serve *extender.Options, log *slog.Logger) error {
	const agent = "divvy-scheduler-extender"
	var err error
	if serve.Follow, err = o.cluster.connect(log, agent); err != nil {
		return err
	}
	lease := connection{kubeconfig: o.cluster.kubeconfig, qps: 10, burst: 20}
	leases, err := lease.connect(log, agent+"-lease")
	if err != nil {
		return err
	}
	host, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("find this host's name: %w", err)
	}
	e := &serve.Election
	e.Leases, e.Namespace, e.Host, e.Identity = leases.CoordinationV1(), o.serving.Namespace, host, o.pod
	if o.pod == "" {
		e.Identity = host + "_" + string(uuid.NewUUID())
	}
	serve.Lock = e.Lock()
	config, err := o.cluster.find()
	if err != nil {
		return err
	}
	if serve.Write, err = o.cluster.client(config, log, agent+"-bind"); err != nil {
		return err
	}
	if err := serve.Lock.Guard(serve.Write, config); err != nil {
		return fmt.Errorf("guard what is written: %w", err)
	}
	return o.list(serve, log)
}

// list has all pods be listed by what identifies them.
func (o *extenderOptions) list(serve *extender.Options, log *slog.Logger) error {
	config, err := o.cluster.find()
	if err != nil {
		return err
	}
	o.cluster.tune(config, log, "divvy-scheduler-extender")
	client, err := metadata.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("connect to the cluster: %w", err)
	}
	pods := client.Resource(corev1.SchemeGroupVersion.WithResource("pods"))
	serve.List = func(ctx context.Context) (*metav1.PartialObjectMetadataList, error) {
		ctx, cancel := context.WithTimeout(ctx, listLimit)
		defer cancel()
		return pods.List(ctx, metav1.ListOptions{})
	}
	return nil
}

// listLimit bounds one question which pods there are.
const listLimit = 30 * time.Second

// tls is how schedulers and the server know each other.
func (o *extenderOptions) tls(ctx context.Context, serve *extender.Options, log *slog.Logger) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if o.serving.Certificates == certificateInMemory {
		made, err := extender.InMemory()
		if err != nil {
			return nil, err
		}
		config = made
	} else {
		o.serving.Client, o.serving.Log = serve.Follow, log
		current := webhook.Certificates(ctx, o.serving)
		config.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return current() }
	}
	if o.authority == "" {
		return config, nil
	}
	text, err := os.ReadFile(o.authority)
	if err != nil {
		return nil, fmt.Errorf("read the schedulers' authority: %w", err)
	}
	pool, err := extender.Authorities(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", o.authority, err)
	}
	return extender.Only(config, pool, o.names), nil
}

// certificateInMemory is the value of --certificates for one that is kept nowhere.
const certificateInMemory = "memory"
