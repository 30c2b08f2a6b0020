package cluster

import (
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
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

// pki is the cluster's certificate authority and where its files lie.
type pki struct {
	dir    string
	key    *ecdsa.PrivateKey
	cert   *x509.Certificate
	serial int64
}

func (p *pki) file(name string) string { return filepath.Join(p.dir, name) }

// newPKI makes the authority, the one of the front proxy, and the keys by which
// service accounts' tokens are signed.
func newPKI(dir string) (*pki, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	p := &pki{dir: dir}
	for _, name := range []string{"front-proxy-ca", "ca"} {
		template := p.template(name)
		template.IsCA, template.BasicConstraintsValid = true, true
		template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
		key, der, err := sign(template, nil, nil)
		if err != nil {
			return nil, err
		}
		if p.cert, err = x509.ParseCertificate(der); err != nil {
			return nil, err
		}
		p.key = key
		if err := p.write(name, key, der); err != nil {
			return nil, err
		}
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return nil, err
	}
	if err := writePEM(p.file("sa.pub"), "PUBLIC KEY", public); err != nil {
		return nil, err
	}
	return p, writeKey(p.file("sa.key"), key)
}

func (p *pki) template(name string, groups ...string) *x509.Certificate {
	p.serial++
	now := time.Now()
	return &x509.Certificate{
		SerialNumber: big.NewInt(p.serial),
		Subject:      pkix.Name{CommonName: name, Organization: groups},
		NotBefore:    now.Add(-time.Hour),
		NotAfter:     now.Add(7 * 24 * time.Hour),
	}
}

// sign makes a key and a certificate for it; without a parent it signs itself.
func sign(template, parent *x509.Certificate, by crypto.Signer) (*ecdsa.PrivateKey, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	if parent == nil {
		parent, by = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), by)
	if err != nil {
		return nil, nil, fmt.Errorf("sign certificate of %s: %w", template.Subject.CommonName, err)
	}
	return key, der, nil
}

// issue writes FILE.crt and FILE.key for a user and, with names or addresses,
// for a server.
func (p *pki) issue(file, user string, groups []string, names []string, addresses []net.IP) error {
	template := p.template(user, groups...)
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}
	template.DNSNames, template.IPAddresses = names, addresses
	key, der, err := sign(template, p.cert, p.key)
	if err != nil {
		return err
	}
	return p.write(file, key, der)
}

func (p *pki) write(file string, key *ecdsa.PrivateKey, der []byte) error {
	if err := writePEM(p.file(file+".crt"), "CERTIFICATE", der); err != nil {
		return err
	}
	return writeKey(p.file(file+".key"), key)
}

func writeKey(path string, key *ecdsa.PrivateKey) error {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	return writePEM(path, "EC PRIVATE KEY", der)
}

func writePEM(path, kind string, der []byte) error {
	return os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
}

// admissionFile configures how the API server calls webhooks.
const admissionFile = "admission.yaml"

// admission has the API server show one of its certificates to the webhooks that a server's name answers, where they
// ask for one (docs/kubernetes.md, "Security").
func (p *pki) admission(certificate, server string) error {
	config := api.NewConfig()
	config.AuthInfos[server] = &api.AuthInfo{ClientCertificate: p.file(certificate + ".crt"), ClientKey: p.file(certificate + ".key")}
	client := p.file("admission.conf")
	if err := clientcmd.WriteToFile(*config, client); err != nil {
		return err
	}
	text := "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins:\n"
	for _, plugin := range []string{"MutatingAdmissionWebhook", "ValidatingAdmissionWebhook"} {
		text += fmt.Sprintf("  - {name: %s, configuration: {apiVersion: apiserver.config.k8s.io/v1, kind: WebhookAdmissionConfiguration, kubeConfigFile: %q}}\n",
			plugin, client)
	}
	return os.WriteFile(p.file(admissionFile), []byte(text), 0o600)
}

// kubeconfig issues a certificate and writes a client configuration that uses
// it; the files lie side by side.
func (p *pki) kubeconfig(file, server, user string, groups ...string) (string, error) {
	if err := p.issue(file, user, groups, nil, nil); err != nil {
		return "", err
	}
	config := api.NewConfig()
	config.Clusters["divvy"] = &api.Cluster{Server: server, CertificateAuthority: p.file("ca.crt")}
	config.AuthInfos[user] = &api.AuthInfo{ClientCertificate: p.file(file + ".crt"), ClientKey: p.file(file + ".key")}
	config.Contexts["divvy"] = &api.Context{Cluster: "divvy", AuthInfo: user}
	config.CurrentContext = "divvy"
	path := p.file(file + ".conf")
	return path, clientcmd.WriteToFile(*config, path)
}
