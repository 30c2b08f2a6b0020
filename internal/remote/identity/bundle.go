package identity

import (
	"bytes"
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net"
	"net/netip"
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
