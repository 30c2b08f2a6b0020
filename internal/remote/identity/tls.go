package identity

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// Server is what a server with the authority of a directory accepts. The certificate is read again when its file has changed.
func Server(dir string) (*tls.Config, error) {
	a, err := Open(dir)
	if err != nil {
		return nil, err
	}
	s := &serving{dir: dir}
	if _, err := s.certificate(); err != nil {
		return nil, err
	}
	return ServerConfig(a.certificate, s.certificate), nil
}

// ServerConfig is what a server accepts whose clients have certificates of an authority.
func ServerConfig(authority *x509.Certificate, certificate func() (*tls.Certificate, error)) *tls.Config {
	pool := x509.NewCertPool()
	pool.AddCert(authority)
	return &tls.Config{
		MinVersion: tls.VersionTLS13, NextProtos: []string{Protocol},
		ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool,
		GetCertificate:         func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return certificate() },
		SessionTicketsDisabled: true, // each connection shows its certificate
		VerifyConnection:       verify,
	}
}

// Config is what a client accepts of the server of a host, with or without a port.
func (b *Bundle) Config(host string) *tls.Config {
	pool := x509.NewCertPool()
	pool.AddCert(b.authority)
	name, _ := splitHost(host)
	return &tls.Config{
		MinVersion: tls.VersionTLS13, NextProtos: []string{Protocol}, RootCAs: pool, ServerName: name,
		Certificates:     []tls.Certificate{{Certificate: [][]byte{b.certificate.Raw}, PrivateKey: b.key, Leaf: b.certificate}},
		VerifyConnection: verify,
	}
}

// verify refuses a side that offered no protocol, which TLS lets pass.
func verify(state tls.ConnectionState) error {
	if state.NegotiatedProtocol != Protocol {
		return fmt.Errorf("%w: the other side does not speak %s", ErrRefused, Protocol)
	}
	return nil
}

// Client is the name of the client at the other end of a connection whose handshake is done.
func Client(state tls.ConnectionState) (string, error) {
	if !state.HandshakeComplete || len(state.VerifiedChains) == 0 || len(state.PeerCertificates) == 0 {
		return "", fmt.Errorf("%w: the client has shown no certificate", ErrRefused)
	}
	name := state.PeerCertificates[0].Subject.CommonName
	return name, checkName(name)
}

// Issued is when the certificate of the client at the other end was made.
func Issued(state tls.ConnectionState) time.Time {
	if len(state.PeerCertificates) == 0 {
		return time.Time{}
	}
	return state.PeerCertificates[0].NotBefore.Add(skew)
}

// serving is the certificate of a server, as its files have it.
type serving struct {
	dir string

	mu   sync.Mutex // guards the rest
	last *tls.Certificate
	read time.Time // when the file was last changed that was read
	size int64
}

// certificate returns the certificate of the files, or the last one that could be read.
func (s *serving) certificate() (*tls.Certificate, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	path := filepath.Join(s.dir, fileServer)
	info, err := os.Stat(path)
	if err == nil && s.last != nil && info.ModTime().Equal(s.read) && info.Size() == s.size {
		return s.last, nil
	}
	made, fault := readPair(s.dir)
	switch err = errors.Join(err, fault); {
	case err == nil:
		s.last, s.read, s.size = made, info.ModTime(), info.Size()
	case s.last == nil:
		return nil, err
	}
	return s.last, nil
}

// readPair reads the server's certificate and key.
func readPair(dir string) (*tls.Certificate, error) {
	certificate, err := readFile(filepath.Join(dir, fileServer), false)
	if err != nil {
		return nil, fmt.Errorf("%w: run `divvy serve init --renew HOST…`", err)
	}
	key, err := readFile(filepath.Join(dir, fileServerKey), true)
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %w: run `divvy serve init --renew`", dir, ErrInvalid, err)
	}
	return &pair, nil
}
