package webhook

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// keeper renews the server's own certificates. They are in a Secret that all replicas share, and the webhook
// configurations tell the API server which authorities to trust. The first replica renews; the others find what it
// wrote, because the API server refuses a write to an older version of the Secret. Without the name of a configuration
// nobody is told whom to trust.
type keeper struct {
	client        kubernetes.Interface
	namespace     string
	secret        string
	configuration string
	names         []string
	now           func() time.Time
	log           *slog.Logger

	current atomic.Pointer[tls.Certificate]
}

// period is how often the Secret and the configurations are read. Replacing a configuration removes the trusted
// authorities, and no review arrives until they are back.
const period = 10 * time.Second

// certificate implements [certificates].
func (k *keeper) certificate() (*tls.Certificate, error) {
	if current := k.current.Load(); current != nil {
		return current, nil
	}
	return nil, errors.New("no certificate has been made yet")
}

// run looks after the certificates until the context ends.
func (k *keeper) run(ctx context.Context) {
	tick := time.NewTicker(period)
	defer tick.Stop()
	last := ""
	for {
		err := k.step(ctx)
		text := ""
		if err != nil && ctx.Err() == nil {
			text = err.Error()
		}
		if text != "" && text != last {
			k.log.Error("the certificates are not in order; trying again", "error", err)
		}
		last = text
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// step brings everything up to date once. A new certificate is served one step after its authority became trusted, so
// that no API server meets a certificate that it cannot know yet. The very first one is served at once.
func (k *keeper) step(ctx context.Context) error {
	id, err := k.identity(ctx)
	if err != nil {
		return err
	}
	changed := false
	if k.configuration != "" {
		changed, err = k.trust(ctx, id.bundle())
	}
	if !changed || k.current.Load() == nil {
		k.current.Store(id.serving)
	}
	return err
}

// identity returns the one in the Secret, renewed where that is due.
func (k *keeper) identity(ctx context.Context) (*identity, error) {
	const attempts = 5
	var err error
	for range attempts {
		var secret *corev1.Secret
		secret, err = k.client.CoreV1().Secrets(k.namespace).Get(ctx, k.secret, metav1.GetOptions{})
		missing := apierrors.IsNotFound(err)
		if err != nil && !missing {
			return nil, fmt.Errorf("read the secret %s: %w", k.secret, err)
		}
		found, reason := readIdentity(secret.Data)
		if reason == nil {
			if reason = found.due(k.names, k.now()); reason == nil {
				return found, nil
			}
		}
		var renewed *identity
		if renewed, err = renewIdentity(found, k.names, k.now()); err != nil {
			return nil, err
		}
		if err = k.write(ctx, secret, missing, renewed); err == nil {
			k.log.Info("made a serving certificate", "secret", k.secret, "until", renewed.serving.Leaf.NotAfter, "because", reason)
			return renewed, nil
		}
		if !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) && !apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("write the secret %s: %w", k.secret, err)
		}
	}
	return nil, fmt.Errorf("write the secret %s: %w", k.secret, err)
}

func (k *keeper) write(ctx context.Context, secret *corev1.Secret, missing bool, id *identity) error {
	data, err := id.data()
	if err != nil {
		return err
	}
	secrets := k.client.CoreV1().Secrets(k.namespace)
	if missing {
		_, err = secrets.Create(ctx, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: k.secret, Namespace: k.namespace}, Data: data,
		}, metav1.CreateOptions{FieldManager: manager})
		return err
	}
	changed := secret.DeepCopy()
	changed.Data = data
	_, err = secrets.Update(ctx, changed, metav1.UpdateOptions{FieldManager: manager})
	return err
}

// trust writes the authorities into both configurations and reports whether it changed one of them.
func (k *keeper) trust(ctx context.Context, bundle []byte) (changed bool, err error) {
	registration := k.client.AdmissionregistrationV1()
	mutating, first := registration.MutatingWebhookConfigurations().Get(ctx, k.configuration, metav1.GetOptions{})
	if first == nil {
		old := false
		for i := range mutating.Webhooks {
			old = replaceBundle(&mutating.Webhooks[i].ClientConfig, bundle) || old
		}
		if old {
			changed = true
			_, first = registration.MutatingWebhookConfigurations().Update(ctx, mutating, metav1.UpdateOptions{FieldManager: manager})
		}
	}
	validating, second := registration.ValidatingWebhookConfigurations().Get(ctx, k.configuration, metav1.GetOptions{})
	if second == nil {
		old := false
		for i := range validating.Webhooks {
			old = replaceBundle(&validating.Webhooks[i].ClientConfig, bundle) || old
		}
		if old {
			changed = true
			_, second = registration.ValidatingWebhookConfigurations().Update(ctx, validating, metav1.UpdateOptions{FieldManager: manager})
		}
	}
	if err := errors.Join(first, second); err != nil {
		return changed, fmt.Errorf("tell the API server whom to trust, in the webhook configurations %s: %w", k.configuration, err)
	}
	return changed, nil
}

// replaceBundle reports whether the bundle was another.
func replaceBundle(config *admissionregistrationv1.WebhookClientConfig, bundle []byte) bool {
	if bytes.Equal(config.CABundle, bundle) {
		return false
	}
	config.CABundle = bundle
	return true
}
