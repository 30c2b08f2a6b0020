package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"time"
)

// clientName is whom the extender answers.
const clientName = "bench-scheduler"

// certificate makes a key and its certificate by a parent, or by itself without one.
func certificate(template *x509.Certificate, parent *tls.Certificate) (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("make a key: %w", err)
	}
	template.SerialNumber, template.NotAfter = big.NewInt(time.Now().UnixNano()), time.Now().Add(24*time.Hour)
	by, with := template, any(key)
	if parent != nil {
		by, with = parent.Leaf, parent.PrivateKey
	}
	made, err := x509.CreateCertificate(rand.Reader, template, by, key.Public(), with)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("make a certificate: %w", err)
	}
	leaf, err := x509.ParseCertificate(made)
	return tls.Certificate{Certificate: [][]byte{made}, PrivateKey: key, Leaf: leaf}, err
}

// writeClient makes the certificate by which the scheduler asks, and writes it and its authority into a folder.
func writeClient(dir string) (tls.Certificate, error) {
	authority, err := certificate(&x509.Certificate{
		Subject: pkix.Name{CommonName: "bench"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}, nil)
	if err != nil {
		return authority, err
	}
	client, err := certificate(&x509.Certificate{
		Subject: pkix.Name{CommonName: clientName}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, KeyUsage: x509.KeyUsageDigitalSignature,
	}, &authority)
	if err != nil {
		return client, err
	}
	key, err := x509.MarshalPKCS8PrivateKey(client.PrivateKey)
	if err != nil {
		return client, fmt.Errorf("write a key: %w", err)
	}
	for name, block := range map[string]pem.Block{
		"authority.crt": {Type: "CERTIFICATE", Bytes: authority.Certificate[0]},
		"client.crt":    {Type: "CERTIFICATE", Bytes: client.Certificate[0]},
		"client.key":    {Type: "PRIVATE KEY", Bytes: key},
	} {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(&block), 0o600); err != nil {
			return client, fmt.Errorf("write the scheduler's certificate: %w", err)
		}
	}
	return client, nil
}
