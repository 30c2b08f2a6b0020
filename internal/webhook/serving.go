package webhook

import (
	"context"
	"crypto/tls"
	"log/slog"
	"time"

	"k8s.io/client-go/kubernetes"
)

// Serving says of a server of the cluster where its certificate comes from.
type Serving struct {
	Client kubernetes.Interface
	// Certificates is [OwnCertificates] or a directory with tls.crt and tls.key.
	Certificates string
	// Namespace and Service name the server's Service; Hosts are further names of the server.
	Namespace, Service string
	Hosts              []string
	// Secret keeps own certificates, for all replicas.
	Secret string
	Log    *slog.Logger
}

// Certificates keeps the certificate of a server in order until the context ends, and returns what supplies it. That
// returns an error while there is none.
func Certificates(ctx context.Context, s Serving) func() (*tls.Certificate, error) {
	return certificatesOf(ctx, s, "").certificate
}

// certificatesOf starts what keeps certificates, and tells of them in the webhook configurations of a name, unless that is "".
func certificatesOf(ctx context.Context, s Serving, configuration string) certificates {
	if s.Certificates != OwnCertificates {
		return &directory{path: s.Certificates, now: time.Now, log: s.Log}
	}
	service := s.Service + "." + s.Namespace
	keeper := &keeper{
		client: s.Client, namespace: s.Namespace, secret: s.Secret, configuration: configuration,
		names: append([]string{service + ".svc", service}, s.Hosts...), now: time.Now, log: s.Log,
	}
	go keeper.run(ctx)
	return keeper
}
