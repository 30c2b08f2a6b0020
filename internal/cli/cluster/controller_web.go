package cluster

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/client-go/kubernetes"

	"github.com/divvy-gpu/divvy/internal/controller/web"
	"github.com/divvy-gpu/divvy/internal/version"
	"github.com/divvy-gpu/divvy/internal/webhook"
)

// webFlags say whether and how the controller serves its web page.
type webFlags struct {
	address, certificates, service, secret string
}

func (f *webFlags) flags(flags *pflag.FlagSet) {
	flags.StringVar(&f.address, "web-address", "", "`ADDRESS` where the web page is served over TLS, such as :8443 (left out: nowhere)")
	flags.StringVar(&f.certificates, "web-certificates", webhook.OwnCertificates, "own, or a directory with tls.crt and tls.key")
	flags.StringVar(&f.service, "web-service", "divvy-controller", "the web page's Service, which own certificates name")
	flags.StringVar(&f.secret, "web-secret", "divvy-controller-certificates", "the Secret that keeps own certificates")
}

// server opens the web page's address, and returns what serves it; nil if there is none.
func (f *webFlags) server(ctx context.Context, o *controllerOptions, client kubernetes.Interface, log *slog.Logger) (func(context.Context) error, error) {
	if f.address == "" {
		return nil, nil
	}
	// Those who look have a bound of their own, and those who try tokens another one.
	reading, reviewing := connection{kubeconfig: o.cluster.kubeconfig, qps: 20, burst: 40}, connection{kubeconfig: o.cluster.kubeconfig, qps: 100, burst: 200}
	reads, err := reading.connect(log, "divvy-controller-web")
	if err != nil {
		return nil, err
	}
	reviews, err := reviewing.connect(log, "divvy-controller-reviews")
	if err != nil {
		return nil, err
	}
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", f.address)
	if err != nil {
		return nil, fmt.Errorf("listen for the web page: %w", err)
	}
	return func(ctx context.Context) error {
		pages := web.New(web.Options{
			Client: reads, Reviews: reviews, Version: version.Full(), Now: time.Now, Log: log,
			Certificate: webhook.Certificates(ctx, webhook.Serving{
				Client: client, Certificates: f.certificates, Namespace: o.namespace, Service: f.service, Secret: f.secret, Log: log,
			}),
		})
		log.Info("serving the web page", "address", listener.Addr().String())
		return pages.Serve(ctx, listener, log)
	}, nil
}
