package identity

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
)

// Explain returns why the server of a host refused this client or is refused by it, with what to do, if that is why a handshake or
// the first read after it failed. Other errors stay as they are.
func (b *Bundle) Explain(host string, err error) error {
	var name x509.HostnameError
	var unknown x509.UnknownAuthorityError
	var invalid x509.CertificateInvalidError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &name):
		return fmt.Errorf("%s: %w: its certificate is for %s: use one of these, or have `divvy serve init --renew` run there with this name too",
			host, ErrRefused, strings.Join(hostsOf(name.Certificate), ", "))
	case errors.As(err, &unknown):
		return Foreign(host, []*Bundle{b})
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return fmt.Errorf("%s: %w: its certificate is valid from %s to %s: compare the clocks, or have `divvy serve init --renew` run there",
			host, ErrRefused, day(invalid.Cert.NotBefore), day(invalid.Cert.NotAfter))
	case errors.As(err, &invalid):
		return fmt.Errorf("%s: %w: its certificate is not a server's: %w", host, ErrRefused, err)
	}
	return b.explainAlert(host, err)
}

// Foreign is what is said of a host's server whose certificate is of none of the authorities of bundles for that host.
func Foreign(host string, tried []*Bundle) error {
	var from, names []string
	for _, b := range tried {
		from = append(from, b.from())
		if !slices.Contains(names, b.Name()) {
			names = append(names, b.Name())
		}
	}
	if len(names) > 1 {
		names = []string{"NAME"}
	}
	return fmt.Errorf("%s: %w: its certificate is of another authority than %s: have `divvy serve admit %s` run there, and use the bundle that it writes",
		host, ErrRefused, strings.Join(from, " and "), names[0])
}

// explainAlert is Explain of what the server says. TLS has no types for its alerts.
func (b *Bundle) explainAlert(host string, err error) error {
	var remote *net.OpError
	if !errors.As(err, &remote) || remote.Op != "remote error" {
		return err
	}
	switch alert := remote.Err.Error(); {
	case strings.HasSuffix(alert, "no application protocol"), strings.HasSuffix(alert, "protocol version not supported"):
		return fmt.Errorf("%s: %w: it speaks another protocol than %s: use the same version of Divvy on both hosts", host, ErrRefused, Protocol)
	case strings.HasSuffix(alert, "expired certificate"):
		return fmt.Errorf("%s: %w: it takes the certificate in %s for expired: compare the clocks, or have `divvy serve admit %s` run there again", host, ErrRefused, b.from(), b.Name())
	case strings.HasSuffix(alert, "unknown certificate authority"), strings.HasSuffix(alert, "bad certificate"), strings.HasSuffix(alert, "unknown certificate"):
		return fmt.Errorf("%s: %w: it does not know the certificate in %s: have `divvy serve admit %s` run there, and use the bundle that it writes", host, ErrRefused, b.from(), b.Name())
	}
	return err
}

// from names where the bundle is from.
func (b *Bundle) from() string {
	if b.path == "" {
		return "the bundle"
	}
	return b.path
}

// ExplainClient returns why a server refused a client or the other way round, for the server's log.
func ExplainClient(err error) error {
	var unknown x509.UnknownAuthorityError
	var invalid x509.CertificateInvalidError
	switch {
	case errors.As(err, &unknown):
		return fmt.Errorf("%w: its certificate is of another authority: %w", ErrRefused, err)
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return fmt.Errorf("%w: client %q: its certificate is valid from %s to %s: `divvy serve admit` renews it",
			ErrRefused, invalid.Cert.Subject.CommonName, day(invalid.Cert.NotBefore), day(invalid.Cert.NotAfter))
	case errors.As(err, &invalid) && invalid.Reason == x509.IncompatibleUsage:
		return fmt.Errorf("%w: its certificate is not a client's: %w", ErrRefused, err)
	}
	return err
}
