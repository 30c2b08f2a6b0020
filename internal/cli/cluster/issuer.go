package cluster

import (
	"context"
	"fmt"
	"log/slog"
	"net"

	"github.com/spf13/pflag"

	"github.com/divvy-gpu/divvy/internal/remote/issuer"
)

// poolFlags say whether and how the controller issues certificates.
type poolFlags struct{ address, service, agents string }

func (f *poolFlags) flags(flags *pflag.FlagSet) {
	flags.StringVar(&f.address, "pool-address", "", "`ADDRESS` where agents get certificates over TLS, such as :8444 (left out: nowhere)")
	flags.StringVar(&f.service, "pool-service", issuer.Service, "the Service of that address")
	flags.StringVar(&f.agents, "pool-agents", "divvy-agent", "the agents' service account, which nobody else may be")
}

// server opens the address, and returns what answers there; nil if there is none.
func (f *poolFlags) server(ctx context.Context, o *controllerOptions, log *slog.Logger) (func(context.Context) error, error) {
	if f.address == "" {
		return nil, nil
	}
	// Agents have a bound of their own, so that what they ask holds nothing else up.
	asking := connection{kubeconfig: o.cluster.kubeconfig, qps: 100, burst: 200}
	client, err := asking.connect(log, "divvy-controller-pool")
	if err != nil {
		return nil, err
	}
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", f.address)
	if err != nil {
		return nil, fmt.Errorf("listen for agents: %w", err)
	}
	return func(ctx context.Context) error {
		log.Info("issuing certificates", "address", listener.Addr().String())
		return issuer.Serve(ctx, listener, issuer.Options{
			Client: client, Namespace: o.namespace, Agents: "system:serviceaccount:" + o.namespace + ":" + f.agents,
			Names: []string{f.service + "." + o.namespace + ".svc"}, Log: log,
		})
	}, nil
}

// issuerFlags say where a node gets its certificates.
func issuerFlags(flags *pflag.FlagSet, c *issuer.Client) {
	flags.StringVar(&c.Address, "pool-issuer", "", "`ADDRESS` of the controller that gives this node certificates for GPUs of others")
	flags.StringVar(&c.Dir, "pool-credentials", "/etc/divvy/pool", "`DIR` with the token for --pool-issuer and the certificate by which it is known")
}
