package chart_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/big"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/history/store"
	"github.com/divvy-gpu/divvy/test/chart/render"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/yaml"
)

// issued is what cert-manager keeps of a Certificate in its Secret.
type issued struct {
	certificate *x509.Certificate
	key         crypto.Signer
	authority   *x509.Certificate // ca.crt
}

// certManager issues what the chart asks it for, as its documentation says: by Issuers that sign themselves or have the
// authority of a Secret, with a new key at each renewal unless rotationPolicy is Never.
type certManager struct {
	t            *testing.T
	certificates map[string]certificateSpec
	issuers      map[string]issuerSpec
	secrets      map[string]issued
}

type certificateSpec struct {
	SecretName, CommonName string
	IsCA                   bool
	DNSNames               []string
	PrivateKey             struct{ RotationPolicy string }
	IssuerRef              struct{ Name, Kind string }
}

type issuerSpec struct {
	SelfSigned *struct{}
	CA         *struct{ SecretName string }
}

func newCertManager(t *testing.T, documents []render.Document) *certManager {
	t.Helper()
	m := &certManager{t: t, certificates: map[string]certificateSpec{}, issuers: map[string]issuerSpec{}, secrets: map[string]issued{}}
	for _, d := range documents {
		var object struct {
			Kind     string
			Metadata struct{ Name string }
		}
		read := func(into any) {
			if err := yaml.Unmarshal(d.Text, into); err != nil {
				t.Fatal(err)
			}
		}
		switch read(&object); object.Kind {
		case "Certificate":
			var c struct{ Spec certificateSpec }
			read(&c)
			m.certificates[object.Metadata.Name] = c.Spec
		case "Issuer":
			var i struct{ Spec issuerSpec }
			read(&i)
			m.issuers[object.Metadata.Name] = i.Spec
		}
	}
	return m
}

// issue makes or renews a certificate.
func (m *certManager) issue(name string) {
	m.t.Helper()
	spec, ok := m.certificates[name]
	issuer, has := m.issuers[spec.IssuerRef.Name]
	if !ok || !has || spec.IssuerRef.Kind != "Issuer" {
		m.t.Fatalf("certificate %s has no issuer", name)
	}
	before, renewed := m.secrets[spec.SecretName]
	key := before.key
	if !renewed || spec.PrivateKey.RotationPolicy != "Never" {
		made, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			m.t.Fatal(err)
		}
		key = made
	}
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		m.t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: spec.CommonName}, DNSNames: spec.DNSNames, IsCA: spec.IsCA, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageDigitalSignature,
	}
	if spec.IsCA {
		template.KeyUsage |= x509.KeyUsageCertSign
	}
	parent, signer := template, key
	if issuer.CA != nil {
		authority, ok := m.secrets[issuer.CA.SecretName]
		if !ok {
			m.t.Fatalf("certificate %s is asked for before its authority is there", name)
		}
		parent, signer = authority.certificate, authority.key
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		m.t.Fatal(err)
	}
	made, err := x509.ParseCertificate(raw)
	if err != nil {
		m.t.Fatal(err)
	}
	if issuer.CA == nil {
		parent = made
	}
	m.secrets[spec.SecretName] = issued{made, key, parent}
}

// The API server hears of a renewed certificate's authority a minute or two before or after nodes see the certificate.
// Whichever comes first, it trusts what is served.
func TestCertManagerRenewals(t *testing.T) {
	documents := rendered(t, newest, "certificates: cert-manager")
	m := newCertManager(t, documents)
	const leaf = "divvy-webhook"
	text := joined(documents)
	if got := strings.Count(text, "cert-manager.io/inject-ca-from: "+namespace+"/"+leaf+"\n"); got != 2 {
		t.Fatalf("%d webhook configurations have the authority of %s injected", got, leaf)
	}
	secret := m.certificates[leaf].SecretName
	for _, set := range find[*appsv1.Deployment](t, documents) {
		if set.Name == "divvy-webhook" && !slices.ContainsFunc(set.Spec.Template.Spec.Volumes, func(v corev1.Volume) bool { return v.Secret != nil && v.Secret.SecretName == secret }) {
			t.Errorf("the webhook does not mount the Secret %s", secret)
		}
	}
	var authorities []string
	for name, spec := range m.certificates {
		if spec.IsCA {
			authorities = append(authorities, name)
			m.issue(name)
		}
	}
	m.issue(leaf)
	for i, renewed := range append(append([]string{leaf, leaf}, authorities...), leaf, leaf) {
		before := m.secrets[secret]
		m.issue(renewed)
		after := m.secrets[secret]
		for what, pair := range map[string][2]*x509.Certificate{
			"the old certificate by the new authority": {before.certificate, after.authority},
			"the new certificate by the old authority": {after.certificate, before.authority},
		} {
			roots := x509.NewCertPool()
			roots.AddCert(pair[1])
			if _, err := pair[0].Verify(x509.VerifyOptions{Roots: roots, DNSName: fmt.Sprintf("divvy-webhook.%s.svc", namespace)}); err != nil {
				t.Errorf("renewal %d, of %s: %s: %v", i, renewed, what, err)
			}
		}
	}
}

const authorityText = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----"

// Who may ask is what the webhook is told, and another authority makes other pods.
func TestClients(t *testing.T) {
	webhook := func(values string) *appsv1.Deployment {
		for _, d := range find[*appsv1.Deployment](t, rendered(t, newest, values)) {
			if d.Name == "divvy-webhook" {
				return d
			}
		}
		t.Fatal("no webhook")
		return nil
	}
	open := webhook("")
	if args := strings.Join(open.Spec.Template.Spec.Containers[0].Args, " "); strings.Contains(args, "--client") {
		t.Errorf("as it comes: %s", args)
	}
	values := "webhook: {clients: {authority: \"" + strings.ReplaceAll(authorityText, "\n", `\n`) + "\", names: [kube-apiserver, \"a, b\"]}}"
	closed := webhook(values)
	container := closed.Spec.Template.Spec.Containers[0]
	if !slices.Contains(container.Args, "--client-authority=/etc/divvy/clients.crt") || !slices.Contains(container.Args, "--client-name=kube-apiserver") {
		t.Errorf("arguments %q", container.Args)
	}
	if !slices.ContainsFunc(container.VolumeMounts, func(m corev1.VolumeMount) bool {
		return m.MountPath == "/etc/divvy/clients.crt" && m.SubPath == "clients.crt"
	}) {
		t.Errorf("mounts %v", container.VolumeMounts)
	}
	if open.Spec.Template.Annotations["divvy.dev/config"] == closed.Spec.Template.Annotations["divvy.dev/config"] {
		t.Error("another authority leaves the pods as they are")
	}
	for _, m := range find[*corev1.ConfigMap](t, rendered(t, newest, values)) {
		if m.Name == "divvy-webhook" && strings.TrimSpace(m.Data["clients.crt"]) != authorityText {
			t.Errorf("the authority is %q", m.Data["clients.crt"])
		}
	}
}

// Reviews come from callers only, metrics from scrapers.
func TestNetworkPolicies(t *testing.T) {
	documents := rendered(t, newest, "networkPolicy: {enabled: true, callers: [{ipBlock: {cidr: 10.0.0.4/32}}, {ipBlock: {cidr: 10.0.0.5/32}}]}")
	seen := map[string]int{}
	for _, p := range find[*networkingv1.NetworkPolicy](t, documents) {
		for _, rule := range p.Spec.Ingress {
			if len(rule.Ports) != 1 {
				t.Fatalf("%s: %+v", p.Name, rule)
			}
			seen[p.Name+" "+rule.Ports[0].Port.String()] = len(rule.From)
		}
	}
	if want := map[string]int{"divvy-webhook https": 2, "divvy-webhook metrics": 0, "divvy-controller metrics": 0}; fmt.Sprint(seen) != fmt.Sprint(want) {
		t.Errorf("%v, want %v", seen, want)
	}
}

// The history of a node's agent lies on the node, where the agent looks for it, and no folder is made for one that keeps none.
func TestHistoryOutlivesTheAgentsPod(t *testing.T) {
	for _, kubernetes := range []string{newest, oldest} {
		for values, want := range map[string]string{
			"": store.System + " at " + store.System, "agent: {history: {days: 30}}": store.System + " at " + store.System, "agent: {history: {record: false}}": "",
			"agent: {simgpu: {dir: /run/divvy/simgpu/node}}": "",
		} {
			spec := find[*appsv1.DaemonSet](t, rendered(t, kubernetes, values))[0].Spec.Template.Spec
			host := map[string]string{}
			for _, v := range spec.Volumes {
				if v.HostPath != nil {
					host[v.Name] = v.HostPath.Path
				}
			}
			got := ""
			for _, m := range spec.Containers[0].VolumeMounts {
				if strings.HasPrefix(host[m.Name]+m.MountPath, "/var/lib/divvy") {
					got += host[m.Name] + " at " + m.MountPath
				}
			}
			if got != want {
				t.Errorf("%s, %q: %q, want %q", kubernetes, values, got, want)
			}
		}
	}
}

// The kubelet's folder is the same on the host, in the container and in what the agent is told.
func TestKubeletDir(t *testing.T) {
	for kubernetes, below := range map[string][]string{newest: {"plugins/divvy.dev", "plugins_registry", "device-plugins"}, oldest: {"device-plugins"}} {
		for values, dir := range map[string]string{"": "/var/lib/kubelet", "agent: {kubeletDir: /var/lib/k0s/kubelet}": "/var/lib/k0s/kubelet"} {
			spec := find[*appsv1.DaemonSet](t, rendered(t, kubernetes, values))[0].Spec.Template.Spec
			var host, mounted []string
			for _, v := range spec.Volumes {
				if v.HostPath != nil && strings.Contains(v.HostPath.Path, "kubelet") {
					host = append(host, v.HostPath.Path)
				}
			}
			for _, m := range spec.Containers[0].VolumeMounts {
				if strings.Contains(m.MountPath, "kubelet") {
					mounted = append(mounted, m.MountPath)
				}
			}
			var want []string
			for _, b := range below {
				want = append(want, path.Join(dir, b))
			}
			if !slices.Equal(host, want) || !slices.Equal(mounted, want) {
				t.Errorf("%s with %q: on the host %v, in the container %v, want %v", kubernetes, values, host, mounted, want)
			}
			if told := slices.Contains(spec.Containers[0].Args, "--kubelet-dir="+dir); told != (values != "") {
				t.Errorf("%s with %q: arguments %q", kubernetes, values, spec.Containers[0].Args)
			}
		}
	}
}
