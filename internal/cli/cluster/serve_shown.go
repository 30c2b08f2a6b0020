package cluster

import (
	"context"
	"crypto/tls"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/divvy-gpu/divvy/internal/remote/identity"
	"github.com/divvy-gpu/divvy/internal/remote/issuer"
)

// shown is the certificate that a host shows to nodes. It is asked for again when half of its time has passed.
type shown struct {
	ask  func(context.Context) (*issuer.Host, error)
	log  *slog.Logger
	last atomic.Pointer[issuer.Host]
}

// shownRetry is the time between two tries to get a certificate.
const shownRetry = 10 * time.Second

// config is what the host accepts. It waits for the first certificate: a controller may be starting, too.
func (s *shown) config(ctx context.Context) (*tls.Config, error) {
	said := ""
	for {
		first, err := s.ask(ctx)
		if err == nil {
			s.last.Store(first)
			return identity.ServerConfig(first.Authority, func() (*tls.Certificate, error) { return s.last.Load().Certificate, nil }), nil
		}
		if text := err.Error(); text != said {
			s.log.WarnContext(ctx, "no certificate yet, and will try again", "error", err)
			said = text
		}
		select {
		case <-time.After(shownRetry):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// keep renews the certificate until the context is done.
func (s *shown) keep(ctx context.Context) {
	wait := time.Until(s.last.Load().NotAfter()) / 2
	for {
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return
		}
		next, err := s.ask(ctx)
		if err != nil {
			s.log.WarnContext(ctx, "cannot renew this host's certificate, and will try again", "error", err, "until", s.last.Load().NotAfter())
			wait = shownRetry
			continue
		}
		s.last.Store(next)
		wait = time.Until(next.NotAfter()) / 2
	}
}
