package identity

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/netip"
	"regexp"
	"strings"
	"time"
)

// The types of PEM blocks.
const (
	blockCertificate = "CERTIFICATE"
	blockKey         = "PRIVATE KEY"
)

func authorityTemplate(now time.Time, validity time.Duration) *x509.Certificate {
	return &x509.Certificate{
		Subject: pkix.Name{CommonName: "divvy serve"}, NotBefore: now.Add(-skew), NotAfter: now.Add(validity),
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true, KeyUsage: x509.KeyUsageCertSign,
	}
}

func clientTemplate(name string, now, until time.Time) *x509.Certificate {
	return &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, NotBefore: now.Add(-skew), NotAfter: until, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
}

func serverTemplate(hosts []string, now, until time.Time) *x509.Certificate {
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: hosts[0]}, NotBefore: now.Add(-skew), NotAfter: until, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, host := range hosts {
		if address, err := netip.ParseAddr(host); err == nil {
			template.IPAddresses = append(template.IPAddresses, net.IP(address.AsSlice()))
		} else {
			template.DNSNames = append(template.DNSNames, strings.ToLower(host))
		}
	}
	return template
}

// hostsOf are the names and addresses of a certificate.
func hostsOf(certificate *x509.Certificate) []string {
	hosts := append([]string(nil), certificate.DNSNames...)
	for _, address := range certificate.IPAddresses {
		hosts = append(hosts, address.String())
	}
	return hosts
}

// sign makes a certificate and its key; without an authority it signs itself.
func sign(template, authority *x509.Certificate, authorityKey crypto.Signer) (*x509.Certificate, crypto.Signer, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("make a key: %w", err)
	}
	made, err := signKey(template, authority, authorityKey, key)
	return made, key, err
}

// signKey makes a certificate for a key.
func signKey(template, authority *x509.Certificate, authorityKey, key crypto.Signer) (*x509.Certificate, error) {
	var err error
	template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, fmt.Errorf("make a serial number: %w", err)
	}
	if authority == nil {
		authority, authorityKey = template, key
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, authority, key.Public(), authorityKey)
	if err != nil {
		return nil, fmt.Errorf("sign a certificate: %w", err)
	}
	made, err := x509.ParseCertificate(raw)
	if err != nil {
		return nil, fmt.Errorf("read the certificate just made: %w", err)
	}
	return made, nil
}

func encodeCertificates(certificates ...*x509.Certificate) []byte {
	var text bytes.Buffer
	for _, one := range certificates {
		text.Write(pem.EncodeToMemory(&pem.Block{Type: blockCertificate, Bytes: one.Raw}))
	}
	return text.Bytes()
}

func encodeKey(key crypto.Signer) ([]byte, error) {
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("write a key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: blockKey, Bytes: raw}), nil
}

// decodeCertificates reads the certificates of a text, at least one.
func decodeCertificates(text []byte) (found []*x509.Certificate, err error) {
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			break
		}
		if block.Type != blockCertificate {
			return nil, fmt.Errorf("%w: a %q in place of a certificate", ErrInvalid, block.Type)
		}
		one, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
		}
		found = append(found, one)
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("%w: there is no certificate", ErrInvalid)
	}
	return found, nil
}

var validHost = regexp.MustCompile(`^[a-zA-Z0-9]([a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?(\.[a-zA-Z0-9]([a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?)*$`)

// checkHosts returns what is wrong with the names and addresses of a server.
func checkHosts(hosts []string) error {
	if len(hosts) == 0 || len(hosts) > mostHosts {
		return fmt.Errorf("%w: %d names and addresses: give 1 to %d", ErrHosts, len(hosts), mostHosts)
	}
	for _, host := range hosts {
		if address, err := netip.ParseAddr(host); err == nil && address.Zone() == "" {
			continue
		}
		if len(host) > mostOfName || !validHost.MatchString(host) {
			return fmt.Errorf("%w: %q is neither a host's name nor an address", ErrHosts, host)
		}
	}
	return nil
}

var validName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._/:@-]*$`)

// checkName returns what is wrong with a client's name.
func checkName(name string) error {
	if len(name) > mostOfName || !validName.MatchString(name) {
		return fmt.Errorf("%w: client's name %.80q: use letters, digits and . _ - / : @, at most %d", ErrInvalid, name, mostOfName)
	}
	return nil
}

// day writes a time for people.
func day(t time.Time) string { return t.UTC().Format("2006-01-02 15:04 UTC") }
