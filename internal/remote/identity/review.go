package identity

import (
	"bytes"
	"crypto/x509"
	"fmt"
	"path/filepath"
	"time"
)

// Validity is until when what a server's directory has is valid.
type Validity struct {
	Authority, Server time.Time
	// Hosts are the names and addresses of the server's certificate.
	Hosts []string
}

// Review reads the certificates and keys of a server's directory, as a server would that starts now. The error says why it would
// not serve.
func Review(dir string) (Validity, error) {
	a, err := Open(dir)
	if err != nil {
		return Validity{}, err
	}
	pair, err := readPair(dir)
	if err != nil {
		return Validity{}, err
	}
	server, err := x509.ParseCertificate(pair.Certificate[0])
	if err != nil {
		return Validity{}, fmt.Errorf("%s: %w: %w", dir, ErrInvalid, err)
	}
	v := Validity{Authority: a.certificate.NotAfter, Server: server.NotAfter, Hosts: hostsOf(server)}
	if err := server.CheckSignatureFrom(a.certificate); err != nil {
		return v, fmt.Errorf("%s: %w: it is of another authority: run `divvy serve init --renew`", filepath.Join(dir, fileServer), ErrInvalid)
	}
	if _, err := a.now(); err != nil {
		return v, err
	}
	switch now := time.Now(); {
	case now.After(server.NotAfter):
		return v, fmt.Errorf("%s is %w since %s: run `divvy serve init --renew`", filepath.Join(dir, fileServer), ErrTime, day(server.NotAfter))
	case now.Before(server.NotBefore), now.Before(a.certificate.NotBefore):
		return v, fmt.Errorf("%s is %w until %s: set this machine's clock", filepath.Join(dir, fileServer), ErrTime, day(server.NotBefore))
	}
	return v, nil
}

// Akin reports whether two bundles are for the same server: they are of one authority.
func (b *Bundle) Akin(other *Bundle) bool {
	return bytes.Equal(b.authority.Raw, other.authority.Raw)
}
