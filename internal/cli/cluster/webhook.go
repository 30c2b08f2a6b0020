package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"runtime/debug"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/divvy-gpu/divvy/internal/cli/program"
	"github.com/divvy-gpu/divvy/internal/dialect"
	"github.com/divvy-gpu/divvy/internal/webhook"
)

// webhookOptions are the flags of divvy webhook.
type webhookOptions struct {
	cluster connection
	config  string
	address string
	metrics string
	show    bool
	// authority is a file, names are those of its certificates who may ask.
	authority string
	names     []string
	serve     webhook.Options
}

func newWebhook(a *app) *cobra.Command {
	o := webhookOptions{cluster: connection{qps: 200, burst: 400}}
	command := &cobra.Command{
		Use:   "webhook",
		Short: "Answer a Kubernetes cluster's admission reviews",
		Long: `Answer the admission reviews of a Kubernetes cluster: turn what pods ask of GPUs,
in Divvy's plain form or in the dialects that are turned on, into claims;
check claims and templates that people write; and enforce namespaces' quotas of
GPU memory and cores.

With --certificates own the server makes its certificate itself, keeps it in a
Secret, and tells the API server whom to trust. Otherwise it serves with tls.crt
and tls.key of a directory, and reads them again when they change.

With --client-authority only API servers that show a certificate of that
authority, with one of the names as its subject, may ask. Without it whoever
reaches the port may; what is asked at once is bounded, and a review writes
nothing.`,
		Example: `  divvy webhook --config webhook.yaml
  divvy webhook --config webhook.yaml --print-configuration | kubectl apply -f -`,
		Args: program.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context(), a) },
	}
	flags := command.Flags()
	o.cluster.flags(flags)
	flags.StringVar(&o.config, "config", "", "file with the dialects that are turned on (required)")
	flags.StringVar(&o.address, "address", ":8443", "where reviews are answered")
	flags.StringVar(&o.metrics, "metrics-address", ":9411", "where metrics and probes are answered, without TLS")
	flags.StringVar(&o.authority, "client-authority", "", "`FILE` with the authority, in PEM, of the API servers' client certificates")
	flags.StringArrayVar(&o.names, "client-name", nil, "a common name in these certificates")
	flags.StringVar(&o.serve.Certificates, "certificates", webhook.OwnCertificates, "own, or a directory with tls.crt and tls.key")
	flags.StringVar(&o.serve.Service, "service", "divvy-webhook", "the Service that the API server calls")
	flags.StringVar(&o.serve.Namespace, "namespace", "divvy-system", "the Service's and the Secret's namespace")
	flags.StringSliceVar(&o.serve.Hosts, "host", nil, "a further name or address in own certificates")
	flags.StringVar(&o.serve.Secret, "secret", "divvy-webhook-certificates", "the Secret that keeps own certificates")
	flags.StringVar(&o.serve.Configuration, "configuration", webhook.DefaultConfiguration, "the name of both webhook configurations")
	flags.DurationVar(&o.serve.Linger, "linger", 5*time.Second, "time to keep answering reviews after SIGTERM")
	flags.BoolVar(&o.show, "print-configuration", false, "print the webhook configurations for these dialects, and end")
	return command
}

func (o *webhookOptions) run(ctx context.Context, a *app) error {
	if o.config == "" {
		return program.Usage(fmt.Errorf("name the dialects to turn on: --config FILE"))
	}
	text, err := os.ReadFile(o.config)
	if err != nil {
		return fmt.Errorf("read the configuration: %w", err)
	}
	o.serve.Translator, err = dialect.NewTranslator(text)
	if err != nil {
		return fmt.Errorf("%s: %w", o.config, err)
	}
	if o.show {
		return o.print(a)
	}
	if o.serve.Callers, err = o.callers(); err != nil {
		return err
	}
	limitMemory(memoryLimit, debug.SetMemoryLimit)
	// What is kept of a large cluster is far more than what reviews use: collecting when a quarter of it is garbage, and
	// not when there is as much again, costs little.
	debug.SetGCPercent(25)
	o.serve.Log = slog.New(slog.NewTextHandler(a.err, nil))
	if err := o.connect(); err != nil {
		return err
	}
	if o.serve.Reviews, err = net.Listen("tcp", o.address); err != nil {
		return fmt.Errorf("listen for reviews: %w", err)
	}
	if o.serve.Plain, err = net.Listen("tcp", o.metrics); err != nil {
		return fmt.Errorf("listen for probes: %w", err)
	}
	return webhook.Serve(ctx, o.serve)
}

// connect makes the clients of the cluster.
func (o *webhookOptions) connect() (err error) {
	if o.serve.Client, err = o.cluster.connect(o.serve.Log, "divvy-webhook"); err != nil || !o.serve.Translator.Queues() {
		return err
	}
	o.serve.Objects, err = o.cluster.objects(o.serve.Log, "divvy-webhook")
	return err
}

// callers reads who may ask for reviews.
func (o *webhookOptions) callers() (webhook.Callers, error) {
	if o.authority == "" {
		if len(o.names) > 0 {
			return webhook.Callers{}, program.Usage(errors.New("--client-name needs --client-authority"))
		}
		return webhook.Callers{}, nil
	}
	text, err := os.ReadFile(o.authority)
	if err != nil {
		return webhook.Callers{}, fmt.Errorf("read the callers' authority: %w", err)
	}
	callers, err := webhook.NewCallers(text, o.names)
	if err != nil {
		return webhook.Callers{}, fmt.Errorf("%s: %w", o.authority, err)
	}
	return callers, nil
}

func (o *webhookOptions) print(a *app) error {
	mutating, validating := webhook.Configurations(o.serve.Configuration, o.serve.Namespace, o.serve.Service, o.serve.Translator)
	for _, object := range []any{mutating, validating} {
		text, err := yaml.Marshal(object)
		if err != nil {
			return fmt.Errorf("write the configuration: %w", err)
		}
		program.Say(a.out, "---\n%s", text)
	}
	return nil
}
