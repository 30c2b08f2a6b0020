package identity

import (
	"bytes"
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/divvy-gpu/divvy/internal/servefile"
)

// blockBundle is the first block of a bundle: headers alone.
const blockBundle = "DIVVY REMOTE BUNDLE"

// The headers of a bundle.
const (
	headerHosts  = "Hosts"
	headerPort   = "Port"
	headerClient = "Client"
)

// Bundle is all that a client needs for one server.
type Bundle struct {
	// Hosts are the names and addresses of the server, and Port is where it listens; 0 is the usual one.
	Hosts []string
	Port  int

	// path is the file that it was read from.
	path        string
	authority   *x509.Certificate
	certificate *x509.Certificate
	key         crypto.Signer
}

// Name is the client's.
func (b *Bundle) Name() string { return b.certificate.Subject.CommonName }

// Path is the file that it was read from, empty if it was not.
func (b *Bundle) Path() string { return b.path }

// NotAfter is until when it is valid.
func (b *Bundle) NotAfter() time.Time { return b.certificate.NotAfter }

// Issued is when it was made.
func (b *Bundle) Issued() time.Time { return b.certificate.NotBefore.Add(skew) }

// Encode returns the bundle's file.
func (b *Bundle) Encode() ([]byte, error) {
	key, err := encodeKey(b.key)
	if err != nil {
		return nil, err
	}
	headers := map[string]string{headerClient: b.Name(), headerHosts: strings.Join(b.Hosts, ", ")}
	if b.Port != 0 {
		headers[headerPort] = strconv.Itoa(b.Port)
	}
	head := pem.EncodeToMemory(&pem.Block{Type: blockBundle, Headers: headers})
	return slices.Concat(head, encodeCertificates(b.certificate, b.authority), key), nil
}

// ReadBundle reads a bundle's file. One that others can read is [ErrOpen].
func ReadBundle(path string) (*Bundle, error) {
	text, err := readFile(path, true)
	if err != nil {
		return nil, err
	}
	b, err := ParseBundle(text)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	b.path = path
	return b, nil
}

// ParseBundle reads a bundle.
func ParseBundle(text []byte) (*Bundle, error) {
	b := &Bundle{}
	head, rest := pem.Decode(text)
	if head == nil || head.Type != blockBundle {
		return nil, fmt.Errorf("%w: it is no bundle of `divvy serve admit`", ErrInvalid)
	}
	if err := b.headers(head.Headers); err != nil {
		return nil, err
	}
	var certificates, keys []byte
	for {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		switch {
		case block.Type == blockCertificate:
			certificates = append(certificates, pem.EncodeToMemory(block)...)
		case block.Type == blockKey && keys == nil:
			keys = pem.EncodeToMemory(block)
		default:
			return nil, fmt.Errorf("%w: it has a %q too many", ErrInvalid, block.Type)
		}
	}
	if len(bytes.TrimSpace(rest)) > 0 {
		return nil, fmt.Errorf("%w: it ends with something else", ErrInvalid)
	}
	if err := b.pair(certificates, keys); err != nil {
		return nil, err
	}
	if named := head.Headers[headerClient]; named != b.Name() {
		return nil, fmt.Errorf("%w: it is named %.80q, and its certificate is of %.80q", ErrInvalid, named, b.Name())
	}
	return b, nil
}

// headers reads where the server is.
func (b *Bundle) headers(of map[string]string) error {
	for host := range strings.SplitSeq(of[headerHosts], ",") {
		b.Hosts = append(b.Hosts, strings.TrimSpace(host))
	}
	if err := checkHosts(b.Hosts); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if text, given := of[headerPort]; given {
		port, err := strconv.ParseUint(text, 10, 16)
		if err != nil || port == 0 {
			return fmt.Errorf("%w: port %.20q", ErrInvalid, text)
		}
		b.Port = int(port)
	}
	return nil
}

// pair reads the certificates, the client's first, and the key.
func (b *Bundle) pair(certificates, keys []byte) error {
	found, err := decodeCertificates(certificates)
	if err != nil {
		return err
	}
	pair, err := tls.X509KeyPair(certificates, keys)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	signer, ok := pair.PrivateKey.(crypto.Signer)
	if !ok || len(found) != 2 || !found[1].IsCA {
		return fmt.Errorf("%w: a bundle has a client's certificate, that of its authority, and a key", ErrInvalid)
	}
	if err := found[0].CheckSignatureFrom(found[1]); err != nil {
		return fmt.Errorf("%w: the certificate is of another authority: %w", ErrInvalid, err)
	}
	if !slices.Contains(found[0].ExtKeyUsage, x509.ExtKeyUsageClientAuth) {
		return fmt.Errorf("%w: the certificate is not a client's", ErrInvalid)
	}
	b.certificate, b.authority, b.key = found[0], found[1], signer
	return checkName(b.Name())
}

// Serves reports whether the bundle is for a host, with or without a port.
func (b *Bundle) Serves(host string) bool {
	name, _ := splitHost(host)
	return slices.ContainsFunc(b.Hosts, func(has string) bool { return sameHost(has, name) })
}

// Address is where the server of a host listens, which Serves.
func (b *Bundle) Address(host string) string {
	name, port := splitHost(host)
	if port == "" {
		port = strconv.Itoa(b.port())
	}
	return net.JoinHostPort(name, port)
}

// at reports whether the bundle is for the server at the port that a host is named with, if it is.
func (b *Bundle) at(host string) bool {
	_, port := splitHost(host)
	return port == "" || port == strconv.Itoa(b.port())
}

// better reports whether the bundle is to be taken for a host rather than another one, which may be nil: one for that port, and
// of these the one that is valid for longer.
func (b *Bundle) better(other *Bundle, host string) bool {
	if other == nil || b.at(host) != other.at(host) {
		return other == nil || b.at(host)
	}
	return b.NotAfter().After(other.NotAfter())
}

func (b *Bundle) port() int {
	if b.Port == 0 {
		return servefile.Port
	}
	return b.Port
}

// splitHost divides HOST or HOST:PORT. An address of version 6 may be in brackets or not.
func splitHost(host string) (name, port string) {
	if name, port, err := net.SplitHostPort(host); err == nil {
		return name, port
	}
	return strings.TrimSuffix(strings.TrimPrefix(host, "["), "]"), ""
}

func sameHost(x, y string) bool {
	a, errA := netip.ParseAddr(x)
	b, errB := netip.ParseAddr(y)
	if errA == nil && errB == nil {
		return a.Unmap() == b.Unmap()
	}
	return strings.EqualFold(strings.TrimSuffix(x, "."), strings.TrimSuffix(y, "."))
}

// FindBundle finds the bundle for a host, with or without a port. Of several it takes one for that port if there is one, and of
// these the one that is valid for longest.
func FindBundle(host string) (*Bundle, error) {
	var best *Bundle
	var faults []error
	for _, dir := range Dirs() {
		files, err := filepath.Glob(filepath.Join(dir, "*.pem"))
		if err != nil {
			continue // a directory whose name is a bad pattern
		}
		for _, path := range files {
			b, err := ReadBundle(path)
			switch {
			case errors.Is(err, os.ErrPermission) && dir == systemDir: // a bundle of others is none of this user's
			case errors.Is(err, os.ErrPermission):
				faults = append(faults, fmt.Errorf("%w: run `chown` to have it be yours, if root brought it", err))
			case err != nil:
				faults = append(faults, err)
			case err == nil && b.Serves(host) && b.better(best, host):
				best = b
			}
		}
		if best != nil {
			break
		}
	}
	if best == nil {
		return nil, errors.Join(append([]error{fmt.Errorf("a bundle for %s was %w in %s: have `divvy serve admit NAME` run there, and put the file that it writes into %s",
			host, ErrNone, strings.Join(Dirs(), " and "), Dirs()[0])}, faults...)...)
	}
	return best, best.Check(host)
}

// Check returns why a bundle cannot be used now for a host, [ErrTime].
func (b *Bundle) Check(host string) error {
	switch now := time.Now(); {
	case now.After(b.certificate.NotAfter):
		return fmt.Errorf("%s is %w since %s: have `divvy serve admit %s` run on %s again, and put the file in its place", b.path, ErrTime, day(b.NotAfter()), b.Name(), host)
	case now.Before(b.certificate.NotBefore):
		return fmt.Errorf("%s is %w until %s: compare this machine's clock with that of %s", b.path, ErrTime, day(b.certificate.NotBefore), host)
	}
	return nil
}

// systemDir is where bundles of the machine's users are.
const systemDir = "/etc/divvy/remote"

// Dirs are where clients look for bundles, in order.
func Dirs() []string {
	if dir := os.Getenv(Variable); dir != "" {
		return []string{dir}
	}
	dirs := []string{systemDir}
	if config, err := os.UserConfigDir(); err == nil {
		dirs = slices.Insert(dirs, 0, filepath.Join(config, "divvy", "remote"))
	}
	return dirs
}

// Hosts are the names of all servers for which there is a bundle that is valid now.
func Hosts() ([]string, error) {
	var found []string
	for _, dir := range Dirs() {
		files, err := filepath.Glob(filepath.Join(dir, "*.pem"))
		if err != nil {
			continue // a directory whose name is a bad pattern
		}
		for _, path := range files {
			b, err := ReadBundle(path)
			if err != nil || len(b.Hosts) == 0 || b.Check(b.Hosts[0]) != nil {
				continue // FindBundle tells of it who asks for its host
			}
			if name := b.called(); !slices.Contains(found, name) {
				found = append(found, name)
			}
		}
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("a bundle that is valid was %w in %s: have `divvy serve admit NAME` run on a host, and put the file that it writes into %s",
			ErrNone, strings.Join(Dirs(), " and "), Dirs()[0])
	}
	return found, nil
}

// called is the first name of the bundle's host, with the port if it is not the usual one.
func (b *Bundle) called() string {
	if b.port() == servefile.Port {
		return b.Hosts[0]
	}
	return b.Address(b.Hosts[0])
}
