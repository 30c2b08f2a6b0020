package webhook

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"time"
)

// Keys of the Secret that the server keeps its own certificates in.
const (
	keyAuthorities   = "ca.crt" // newest first
	keyAuthorityKey  = "ca.key" // of the newest
	keyCertificate   = "tls.crt"
	keyPrivate       = "tls.key"
	blockCertificate = "CERTIFICATE"
	blockKey         = "PRIVATE KEY"
)

const (
	// authorityFor is how long an authority is valid. While it is, what clients trust does not change.
	authorityFor = 10 * 365 * 24 * time.Hour
	// servingFor is how long a serving certificate is valid; it is renewed when a third is left.
	servingFor = 365 * 24 * time.Hour
	// skew is how far clocks of a cluster may differ.
	skew = time.Hour
)

// identity is what the Secret holds: the authorities that clients trust, and a serving certificate.
type identity struct {
	authorities  []*x509.Certificate
	authorityKey crypto.Signer
	serving      *tls.Certificate
}

// readIdentity reads a Secret's data; what is missing or damaged is an error, and then everything is made anew.
func readIdentity(data map[string][]byte) (*identity, error) {
	var id identity
	rest := data[keyAuthorities]
	for {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		authority, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", keyAuthorities, err)
		}
		id.authorities = append(id.authorities, authority)
	}
	if len(id.authorities) == 0 {
		return nil, fmt.Errorf("read %s: it holds no certificate", keyAuthorities)
	}
	pair, err := tls.X509KeyPair(data[keyCertificate], data[keyPrivate])
	if err != nil {
		return nil, fmt.Errorf("read %s and %s: %w", keyCertificate, keyPrivate, err)
	}
	id.serving = &pair
	// The authority's key is kept in the form of a key pair too, so that a key of another authority is noticed.
	newest := pem.EncodeToMemory(&pem.Block{Type: blockCertificate, Bytes: id.authorities[0].Raw})
	authority, err := tls.X509KeyPair(newest, data[keyAuthorityKey])
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", keyAuthorityKey, err)
	}
	signer, ok := authority.PrivateKey.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("read %s: it cannot sign", keyAuthorityKey)
	}
	id.authorityKey = signer
	return &id, nil
}

// due says why the serving certificate cannot be left as it is, or nil.
func (id *identity) due(names []string, now time.Time) error {
	roots := x509.NewCertPool()
	for _, authority := range id.authorities {
		roots.AddCert(authority)
	}
	leaf := id.serving.Leaf
	if leaf == nil {
		return errors.New("the serving certificate is not parsed")
	}
	for _, name := range names {
		if _, err := leaf.Verify(x509.VerifyOptions{DNSName: name, Roots: roots, CurrentTime: now}); err != nil {
			return fmt.Errorf("check the serving certificate: %w", err)
		}
	}
	if left := leaf.NotAfter.Sub(now); left < servingFor/3 {
		return fmt.Errorf("the serving certificate is valid for another %s only", left.Round(time.Hour))
	}
	return nil
}

// renewIdentity returns an identity with a new serving certificate. The authority is kept while it outlives that
// certificate; otherwise there is a new one, and old ones are trusted until they expire. The previous may be nil.
func renewIdentity(previous *identity, names []string, now time.Time) (*identity, error) {
	id := &identity{}
	if previous != nil {
		for _, authority := range previous.authorities {
			if now.Before(authority.NotAfter) {
				id.authorities = append(id.authorities, authority)
			}
		}
		if newest := previous.authorities[0]; newest.NotAfter.Sub(now) > servingFor {
			id.authorityKey = previous.authorityKey
		}
	}
	if id.authorityKey == nil {
		template := &x509.Certificate{
			Subject: pkix.Name{CommonName: "divvy-webhook-ca"}, NotBefore: now.Add(-skew), NotAfter: now.Add(authorityFor),
			IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		}
		made, key, err := sign(template, nil, nil)
		if err != nil {
			return nil, err
		}
		id.authorities = append([]*x509.Certificate{made}, id.authorities...)
		id.authorityKey = key
	}
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: names[0]}, NotBefore: now.Add(-skew), NotAfter: now.Add(servingFor),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, name := range names {
		if address := net.ParseIP(name); address != nil {
			template.IPAddresses = append(template.IPAddresses, address)
		} else {
			template.DNSNames = append(template.DNSNames, name)
		}
	}
	made, key, err := sign(template, id.authorities[0], id.authorityKey)
	if err != nil {
		return nil, err
	}
	id.serving = &tls.Certificate{Certificate: [][]byte{made.Raw}, PrivateKey: key, Leaf: made}
	return id, nil
}

// sign makes a certificate and its key; without an authority it signs itself.
func sign(template, authority *x509.Certificate, authorityKey crypto.Signer) (*x509.Certificate, crypto.Signer, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("make a key: %w", err)
	}
	template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
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

// bundle is what clients trust.
func (id *identity) bundle() []byte {
	var text bytes.Buffer
	for _, authority := range id.authorities {
		text.Write(pem.EncodeToMemory(&pem.Block{Type: blockCertificate, Bytes: authority.Raw}))
	}
	return text.Bytes()
}

// data is what readIdentity reads.
func (id *identity) data() (map[string][]byte, error) {
	keys := make(map[string][]byte)
	for name, key := range map[string]any{keyAuthorityKey: id.authorityKey, keyPrivate: id.serving.PrivateKey} {
		raw, err := x509.MarshalPKCS8PrivateKey(key)
		if err != nil {
			return nil, fmt.Errorf("write %s: %w", name, err)
		}
		keys[name] = pem.EncodeToMemory(&pem.Block{Type: blockKey, Bytes: raw})
	}
	return map[string][]byte{
		keyAuthorities: id.bundle(), keyAuthorityKey: keys[keyAuthorityKey], keyPrivate: keys[keyPrivate],
		keyCertificate: pem.EncodeToMemory(&pem.Block{Type: blockCertificate, Bytes: id.serving.Certificate[0]}),
	}, nil
}
