package identity

import (
	"cmp"
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// The files of an authority's directory.
const (
	fileAuthority = "ca.crt"
	fileKey       = "ca.key"
	fileServer    = "server.crt"
	fileServerKey = "server.key"
)

// Authority signs the certificates of one server and of its clients.
type Authority struct {
	// dir is where it lies, empty for one that was not read from a directory.
	dir         string
	certificate *x509.Certificate
	key         crypto.Signer
	// server is the certificate of the server, nil if there is none.
	server *x509.Certificate
}

// Make makes an authority and the certificate of its server in a directory, which it makes too. Hosts are the names and addresses
// by which clients reach the server. What is there is never overwritten: the error is [ErrExists] then.
func Make(dir string, hosts []string) (*Authority, error) {
	if err := checkHosts(hosts); err != nil {
		return nil, err
	}
	hint := "`divvy serve init --renew` renews the server's certificate and keeps the authority"
	for _, name := range []string{fileAuthority, fileKey, fileServer, fileServerKey} {
		if _, err := os.Lstat(filepath.Join(dir, name)); !errors.Is(err, fs.ErrNotExist) {
			return nil, cmp.Or(err, fmt.Errorf("%s %w: %s", filepath.Join(dir, name), ErrExists, hint))
		}
		hint = "it is no authority without " + fileAuthority + ", so move it away"
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the authority's directory: %w", err)
	}
	a, err := NewAuthority(authorityFor)
	if err != nil {
		return nil, err
	}
	a.dir = dir
	certificate, key, err := a.IssueServer(hosts, authorityFor)
	if err != nil {
		return nil, err
	}
	authorityKey, err := encodeKey(a.key)
	if err != nil {
		return nil, err
	}
	// The authority's certificate is the last, so that what was interrupted is no authority.
	if err := createAll(dir, []file{
		{fileKey, authorityKey, 0o600}, {fileServerKey, key, 0o600}, {fileServer, certificate, 0o644},
		{fileAuthority, encodeCertificates(a.certificate), 0o644},
	}); err != nil {
		return nil, err
	}
	return Open(dir)
}

// createAll writes files that must not be there, all or none.
func createAll(dir string, files []file) error {
	for i, f := range files {
		err := f.create(dir)
		if err == nil {
			continue
		}
		for _, made := range files[:i] {
			err = errors.Join(err, os.Remove(filepath.Join(dir, made.name)))
		}
		return err
	}
	return nil
}

// NewAuthority makes an authority in memory.
func NewAuthority(validity time.Duration) (*Authority, error) {
	now := time.Now()
	certificate, key, err := sign(authorityTemplate(now, validity), nil, nil)
	if err != nil {
		return nil, err
	}
	return &Authority{certificate: certificate, key: key}, nil
}

// Open reads the authority of a directory.
func Open(dir string) (*Authority, error) {
	certificate, err := readFile(filepath.Join(dir, fileAuthority), false)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: the authority was %w: run `divvy serve init` first", dir, ErrNone)
	} else if err != nil {
		return nil, err
	}
	key, err := readFile(filepath.Join(dir, fileKey), true)
	if err != nil {
		return nil, err
	}
	a, err := ParseAuthority(certificate, key)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	a.dir = dir
	if text, err := readFile(filepath.Join(dir, fileServer), false); err == nil {
		if found, err := decodeCertificates(text); err == nil {
			a.server = found[0]
		}
	}
	return a, nil
}

// ParseAuthority reads an authority from its certificate and key, as Encode writes them.
func ParseAuthority(certificate, key []byte) (*Authority, error) {
	found, err := decodeCertificates(certificate)
	if err != nil {
		return nil, fmt.Errorf("read the authority's certificate: %w", err)
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return nil, fmt.Errorf("%w: read the authority's key: %w", ErrInvalid, err)
	}
	signer, ok := pair.PrivateKey.(crypto.Signer)
	switch {
	case !ok:
		return nil, fmt.Errorf("%w: the authority's key cannot sign", ErrInvalid)
	case !found[0].IsCA:
		return nil, fmt.Errorf("%w: %s is no authority's certificate", ErrInvalid, found[0].Subject.CommonName)
	}
	return &Authority{certificate: found[0], key: signer}, nil
}

// Encode returns what ParseAuthority reads.
func (a *Authority) Encode() (certificate, key []byte, err error) {
	key, err = encodeKey(a.key)
	return encodeCertificates(a.certificate), key, err
}

// Certificate is that of the authority.
func (a *Authority) Certificate() *x509.Certificate { return a.certificate }

// Hosts are the names and addresses of the server's certificate, names first.
func (a *Authority) Hosts() []string {
	if a.server == nil {
		return nil
	}
	return hostsOf(a.server)
}

// Issue makes a client's certificate and returns it as a bundle for the server's hosts. Its key is nowhere else. A validity beyond
// that of the authority ends with it.
func (a *Authority) Issue(name string, validity time.Duration) (*Bundle, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	now, err := a.now()
	if err != nil {
		return nil, err
	}
	certificate, key, err := sign(clientTemplate(name, now, a.until(now, validity)), a.certificate, a.key)
	if err != nil {
		return nil, err
	}
	return &Bundle{Hosts: a.Hosts(), authority: a.certificate, certificate: certificate, key: key}, nil
}

// IssueServer makes a server's certificate for hosts and its key.
func (a *Authority) IssueServer(hosts []string, validity time.Duration) (certificate, key []byte, err error) {
	if err := checkHosts(hosts); err != nil {
		return nil, nil, err
	}
	now, err := a.now()
	if err != nil {
		return nil, nil, err
	}
	made, signer, err := sign(serverTemplate(hosts, now, a.until(now, validity)), a.certificate, a.key)
	if err != nil {
		return nil, nil, err
	}
	key, err = encodeKey(signer)
	return encodeCertificates(made), key, err
}

// Renew gives the server a new certificate, for the hosts that the old one has if none are named. The authority stays, so clients
// notice nothing. A server that runs uses it for its next connection.
func (a *Authority) Renew(hosts []string) error {
	if len(hosts) == 0 {
		hosts = a.Hosts()
	}
	certificate, key, err := a.IssueServer(hosts, authorityFor)
	if err != nil {
		return err
	}
	// A server that reads between the two finds a key that does not fit, and goes on with what it has.
	for _, f := range []file{{fileServerKey, key, 0o600}, {fileServer, certificate, 0o644}} {
		if err := f.replace(a.dir); err != nil {
			return err
		}
	}
	renewed, err := Open(a.dir)
	if err != nil {
		return err
	}
	*a = *renewed
	return nil
}

// now is the time, for an authority that can still sign.
func (a *Authority) now() (time.Time, error) {
	now := time.Now()
	if now.After(a.certificate.NotAfter) {
		return now, fmt.Errorf("the authority in %s is %w since %s: move the directory away and run `divvy serve init`; each client needs a new bundle then",
			a.dir, ErrTime, day(a.certificate.NotAfter))
	}
	return now, nil
}

// until is the end of something that is valid for a time from now on.
func (a *Authority) until(now time.Time, validity time.Duration) time.Time {
	if end := now.Add(validity); end.Before(a.certificate.NotAfter) {
		return end
	}
	return a.certificate.NotAfter
}
