package webhook

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/divvy-gpu/divvy/internal/dialect"
)

const day = 24 * time.Hour

// installed is a cluster in which the chart has made what it makes: an empty Secret and both configurations.
func installed(t testing.TB) *fake.Clientset {
	t.Helper()
	translator, err := dialect.NewTranslator([]byte("apiVersion: divvy.dev/v1alpha1\nkind: WebhookConfig\ndialects: {plain: {}}"))
	if err != nil {
		t.Fatal(err)
	}
	mutating, validating := Configurations(DefaultConfiguration, "divvy-system", "divvy-webhook", translator)
	return fake.NewClientset(mutating, validating,
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "divvy-system", Name: "certificates"}})
}

func keeperOf(client *fake.Clientset, now func() time.Time) *keeper {
	return &keeper{
		client: client, namespace: "divvy-system", secret: "certificates", configuration: DefaultConfiguration,
		names: []string{"divvy-webhook.divvy-system.svc", "127.0.0.1"}, now: now, log: quiet(),
	}
}

// bundles returns whom the API server trusts, of all webhooks.
func bundles(t testing.TB, client *fake.Clientset) [][]byte {
	t.Helper()
	registration := client.AdmissionregistrationV1()
	mutating, err := registration.MutatingWebhookConfigurations().Get(context.Background(), DefaultConfiguration, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	validating, err := registration.ValidatingWebhookConfigurations().Get(context.Background(), DefaultConfiguration, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var all [][]byte
	for i := range mutating.Webhooks {
		all = append(all, mutating.Webhooks[i].ClientConfig.CABundle)
	}
	for i := range validating.Webhooks {
		all = append(all, validating.Webhooks[i].ClientConfig.CABundle)
	}
	if len(all) != 7 {
		t.Errorf("%d webhooks", len(all))
	}
	return all
}

// trusted checks that every webhook's client would accept what the keeper serves.
func trusted(t testing.TB, k *keeper, now time.Time) {
	t.Helper()
	served, err := k.certificate()
	if err != nil {
		t.Fatal(err)
	}
	for _, bundle := range bundles(t, k.client.(*fake.Clientset)) {
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(bundle)
		for _, name := range k.names {
			if _, err := served.Leaf.Verify(x509.VerifyOptions{DNSName: name, Roots: roots, CurrentTime: now}); err != nil {
				t.Errorf("%s at %s: %v", name, now, err)
			}
		}
	}
}

func step(t testing.TB, k *keeper) {
	t.Helper()
	if err := k.step(context.Background()); err != nil {
		t.Fatal(err)
	}
}

func TestKeeperLifetime(t *testing.T) {
	now := noon
	client := installed(t)
	k := keeperOf(client, func() time.Time { return now })
	if _, err := k.certificate(); err == nil {
		t.Fatal("a certificate before the first step")
	}
	step(t, k)
	trusted(t, k, now)
	first, _ := k.certificate()
	// A step changes nothing while nothing is due.
	client.ClearActions()
	step(t, k)
	for _, action := range client.Actions() {
		if action.GetVerb() != "get" {
			t.Errorf("a step without need: %s %s", action.GetVerb(), action.GetResource().Resource)
		}
	}
	// Through 25 years, looking at it now and then: what is served is always trusted and valid, and the clients'
	// bundle changes only with the authority.
	renewals, authorities := 0, map[string]bool{}
	for range 25 * 365 / 30 {
		now = now.Add(30 * day)
		step(t, k)
		trusted(t, k, now)
		step(t, k) // what a new authority signed is served from the step after
		trusted(t, k, now)
		served, _ := k.certificate()
		if served.Leaf.NotAfter.Sub(now) < 60*day {
			t.Fatalf("at %s the certificate ends in %s", now, served.Leaf.NotAfter.Sub(now))
		}
		if !served.Leaf.Equal(first.Leaf) {
			renewals, first = renewals+1, served
		}
		authorities[string(bundles(t, client)[0])] = true
	}
	if renewals < 30 || renewals > 45 || len(authorities) < 2 || len(authorities) > 6 {
		t.Errorf("%d renewals, %d bundles in 25 years", renewals, len(authorities))
	}
}

// TestKeeperTrustsBeforeItServes replaces the authority: the old certificate is served until the new authority is
// known to the clients.
func TestKeeperTrustsBeforeItServes(t *testing.T) {
	now := noon
	client := installed(t)
	k := keeperOf(client, func() time.Time { return now })
	step(t, k)
	first, _ := k.certificate()
	now = now.Add(authorityFor - servingFor + day)
	before := bundles(t, client)[0]
	step(t, k)
	if served, _ := k.certificate(); !served.Leaf.Equal(first.Leaf) {
		t.Error("a new authority's certificate is served in the step that made it known")
	}
	if after := bundles(t, client)[0]; bytes.Equal(before, after) || !bytes.HasSuffix(after, before) {
		t.Error("the old authority is not trusted beside the new one")
	}
	step(t, k)
	if served, _ := k.certificate(); served.Leaf.Equal(first.Leaf) {
		t.Error("the new certificate is not served")
	}
	trusted(t, k, now)
}

// TestReplicasAgree has another replica write between this one's look and its write.
func TestReplicasAgree(t *testing.T) {
	client := installed(t)
	theirs, err := renewIdentity(nil, keeperOf(client, nil).names, noon)
	if err != nil {
		t.Fatal(err)
	}
	data, err := theirs.data()
	if err != nil {
		t.Fatal(err)
	}
	raced := false
	client.PrependReactor("update", "secrets", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if raced {
			return false, nil, nil
		}
		raced = true
		written := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "divvy-system", Name: "certificates"}, Data: data}
		if err := client.Tracker().Update(action.GetResource(), written, "divvy-system"); err != nil {
			t.Error(err)
		}
		return true, nil, apierrors.NewConflict(corev1.Resource("secrets"), "certificates", errors.New("the object has been modified"))
	})
	k := keeperOf(client, func() time.Time { return noon })
	step(t, k)
	if served, err := k.certificate(); err != nil || !raced || !served.Leaf.Equal(theirs.serving.Leaf) {
		t.Errorf("two replicas serve different certificates, %v", err)
	}
	trusted(t, k, noon)
}

func TestKeeperRepairs(t *testing.T) {
	client := installed(t)
	k := keeperOf(client, func() time.Time { return noon })
	step(t, k)
	// Somebody installs the configurations anew, without a bundle.
	registration := client.AdmissionregistrationV1()
	validating, err := registration.ValidatingWebhookConfigurations().Get(context.Background(), DefaultConfiguration, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range validating.Webhooks {
		validating.Webhooks[i].ClientConfig.CABundle = nil
	}
	if _, err := registration.ValidatingWebhookConfigurations().Update(context.Background(), validating, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	step(t, k)
	trusted(t, k, noon)
	// Somebody damages the Secret, in one way after the other.
	for key, text := range map[string]string{keyAuthorities: "", keyAuthorityKey: "x", keyCertificate: "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n", keyPrivate: ""} {
		secret, err := client.CoreV1().Secrets("divvy-system").Get(context.Background(), "certificates", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		secret.Data[key] = []byte(text)
		if _, err := client.CoreV1().Secrets("divvy-system").Update(context.Background(), secret, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		step(t, k)
		step(t, k)
		trusted(t, k, noon)
	}
	// The Secret is gone, or a name is added.
	if err := client.CoreV1().Secrets("divvy-system").Delete(context.Background(), "certificates", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	step(t, k)
	step(t, k)
	trusted(t, k, noon)
	k.names = append(k.names, "host.example.com")
	step(t, k)
	trusted(t, k, noon)
}

// TestKeeperServesWithoutConfigurations: the server may be there first.
func TestKeeperServesWithoutConfigurations(t *testing.T) {
	client := fake.NewClientset()
	k := keeperOf(client, func() time.Time { return noon })
	if err := k.step(context.Background()); !apierrors.IsNotFound(err) {
		t.Errorf("error %v, want one that names the configurations", err)
	}
	if _, err := k.certificate(); err != nil {
		t.Error(err)
	}
}

func TestReplaceBundle(t *testing.T) {
	config := admissionregistrationv1.WebhookClientConfig{CABundle: []byte("a")}
	if replaceBundle(&config, []byte("a")) || !replaceBundle(&config, []byte("b")) || string(config.CABundle) != "b" {
		t.Errorf("%s", config.CABundle)
	}
}

// write puts an identity's files into a directory.
func write(t testing.TB, path string, id *identity, names ...string) {
	t.Helper()
	data, err := id.data()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if err := os.WriteFile(filepath.Join(path, name), data[name], 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func TestDirectoryReloads(t *testing.T) {
	now := noon
	path := t.TempDir()
	d := &directory{path: path, now: func() time.Time { return now }, log: quiet()}
	identityOf := func() *identity {
		id, err := renewIdentity(nil, []string{"here.example.com"}, now)
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	if _, err := d.certificate(); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("an empty directory: %v", err)
	}
	serves := func(want *tls.Certificate) {
		t.Helper()
		now = now.Add(lookAgain)
		if got, err := d.certificate(); err != nil || !got.Leaf.Equal(want.Leaf) {
			t.Errorf("another certificate, %v", err)
		}
	}
	first, second := identityOf(), identityOf()
	write(t, path, first, keyCertificate, keyPrivate)
	serves(first.serving)
	write(t, path, second, keyCertificate) // the key is still the first one's
	serves(first.serving)
	write(t, path, second, keyPrivate)
	serves(second.serving)
	if err := os.Remove(filepath.Join(path, keyPrivate)); err != nil {
		t.Fatal(err)
	}
	serves(second.serving)
}
