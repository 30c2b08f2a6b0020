package extender

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
)

// Authorities reads certificates in PEM.
func Authorities(text []byte) (*x509.CertPool, error) {
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, errors.New("read the schedulers' authority: it holds no certificate in PEM")
	}
	return pool, nil
}

// Only has a server refuse in the handshake whoever has no certificate of these authorities with one of these names: who may ask
// can have any pod bound to any node.
func Only(config *tls.Config, authorities *x509.CertPool, names []string) *tls.Config {
	config.ClientAuth, config.ClientCAs = tls.RequireAndVerifyClientCert, authorities
	config.VerifyConnection = func(state tls.ConnectionState) error {
		if name := state.PeerCertificates[0].Subject.CommonName; !slices.Contains(names, name) {
			return fmt.Errorf("the client's certificate is of %q, who may not ask: name it with --client-name", name)
		}
		return nil
	}
	return config
}
