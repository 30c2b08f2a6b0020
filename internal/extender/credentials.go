package extender

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// Files of a directory that a scheduler of the same pod reads: whom it trusts, and how it is known.
const (
	FileAuthority  = "ca.crt"
	FileClient     = "client.crt"
	FileClientKey  = "client.key"
	LocalClient    = "divvy-local-scheduler"
	localFor       = 10 * 365 * 24 * time.Hour
	localServer    = "divvy-local-extender"
	localSkew      = time.Hour
	localFileMode  = 0o640 // the scheduler has another user, and the pod's group
	localDirectory = 0o750
)

// Local makes the credentials of a server for schedulers of the same pod, and writes theirs to a directory that only the two
// share. The authority's key is kept nowhere. A server that starts again makes all anew, so a scheduler reads them when it begins:
// kept is what is there already, as long as this server's own files are beside it.
func Local(dir string) (*tls.Config, error) {
	if config, err := readLocal(dir); err == nil {
		return config, nil
	}
	if err := os.MkdirAll(dir, localDirectory); err != nil {
		return nil, fmt.Errorf("make the directory of credentials: %w", err)
	}
	now := time.Now()
	authority := &x509.Certificate{
		Subject: pkix.Name{CommonName: "divvy-local-ca"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	signed, key, err := sign(authority, nil, nil, now)
	if err != nil {
		return nil, err
	}
	server := &x509.Certificate{
		Subject: pkix.Name{CommonName: localServer}, DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	client := &x509.Certificate{
		Subject: pkix.Name{CommonName: LocalClient}, KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	for _, one := range []struct {
		template    *x509.Certificate
		crt, keyPEM string
	}{{server, "tls.crt", "tls.key"}, {client, FileClient, FileClientKey}} {
		made, private, err := sign(one.template, signed, key, now)
		if err != nil {
			return nil, err
		}
		if err := writePair(dir, one.crt, one.keyPEM, made, private); err != nil {
			return nil, err
		}
	}
	if err := writePEM(filepath.Join(dir, FileAuthority), "CERTIFICATE", signed.Raw); err != nil {
		return nil, err
	}
	return readLocal(dir)
}

// readLocal reads what Local has written.
func readLocal(dir string) (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"))
	if err != nil {
		return nil, fmt.Errorf("read the server's certificate: %w", err)
	}
	text, err := os.ReadFile(filepath.Join(dir, FileAuthority))
	if err != nil {
		return nil, fmt.Errorf("read the authority: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("read the authority: %s holds no certificate in PEM", FileAuthority)
	}
	if _, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: pool, DNSName: "localhost"}); err != nil {
		return nil, fmt.Errorf("check the server's certificate: %w", err)
	}
	if _, err := tls.LoadX509KeyPair(filepath.Join(dir, FileClient), filepath.Join(dir, FileClientKey)); err != nil {
		return nil, fmt.Errorf("read the scheduler's certificate: %w", err)
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}}
	return Only(config, pool, []string{LocalClient}), nil
}

func sign(template, authority *x509.Certificate, authorityKey crypto.Signer, now time.Time) (*x509.Certificate, crypto.Signer, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("make a key: %w", err)
	}
	template.NotBefore, template.NotAfter = now.Add(-localSkew), now.Add(localFor)
	if template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120)); err != nil {
		return nil, nil, fmt.Errorf("make a serial number: %w", err)
	}
	if authority == nil {
		authority, authorityKey = template, key
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, authority, key.Public(), authorityKey)
	if err != nil {
		return nil, nil, fmt.Errorf("sign a certificate: %w", err)
	}
	made, err := x509.ParseCertificate(raw)
	if err != nil {
		return nil, nil, fmt.Errorf("read the certificate just made: %w", err)
	}
	return made, key, nil
}

func writePair(dir, crt, keyFile string, made *x509.Certificate, private crypto.Signer) error {
	raw, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return fmt.Errorf("write %s: %w", keyFile, err)
	}
	if err := writePEM(filepath.Join(dir, keyFile), "PRIVATE KEY", raw); err != nil {
		return err
	}
	return writePEM(filepath.Join(dir, crt), "CERTIFICATE", made.Raw)
}

// writePEM writes a file that is there whole or not at all.
func writePEM(path, block string, raw []byte) error {
	fresh := path + ".new"
	if err := os.WriteFile(fresh, pem.EncodeToMemory(&pem.Block{Type: block, Bytes: raw}), localFileMode); err != nil {
		return fmt.Errorf("write credentials: %w", err)
	}
	if err := os.Rename(fresh, path); err != nil {
		return fmt.Errorf("write credentials: %w", err)
	}
	return nil
}
