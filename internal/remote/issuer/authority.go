package issuer

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/divvy-gpu/divvy/internal/remote/identity"
)

// open returns the cluster's authority, which it makes if there is none, and tells agents its certificate. Of several replicas the
// first one makes it: the others' writes are of an older revision.
func open(ctx context.Context, client kubernetes.Interface, namespace string) (*identity.Authority, error) {
	for {
		secret, err := client.CoreV1().Secrets(namespace).Get(ctx, Secret, metav1.GetOptions{})
		if err != nil {
			return nil, fmt.Errorf("read the authority's secret: %w", err)
		}
		a, err := authorityOf(secret)
		if err != nil {
			return nil, err
		}
		if a != nil {
			return a, tell(ctx, client, namespace, secret.Data[keyAuthority])
		}
		if err := fill(secret); err != nil {
			return nil, err
		}
		if _, err = client.CoreV1().Secrets(namespace).Update(ctx, secret, metav1.UpdateOptions{}); err != nil && !apierrors.IsConflict(err) {
			return nil, fmt.Errorf("write the authority's secret: %w", err)
		}
	}
}

// authorityOf is the authority of a secret, nil for an empty one. A damaged one is an error: another authority would end what
// every node trusts.
func authorityOf(secret *corev1.Secret) (*identity.Authority, error) {
	if len(secret.Data[keyAuthority]) == 0 && len(secret.Data[keyPrivate]) == 0 {
		return nil, nil
	}
	a, err := identity.ParseAuthority(secret.Data[keyAuthority], secret.Data[keyPrivate])
	if err != nil {
		return nil, fmt.Errorf("secret %s/%s: %w: empty it to have a new authority made, and restart the agents", secret.Namespace, secret.Name, err)
	}
	return a, nil
}

func fill(secret *corev1.Secret) error {
	made, err := identity.NewAuthority(authorityFor)
	if err != nil {
		return err
	}
	certificate, key, err := made.Encode()
	if err != nil {
		return err
	}
	if secret.Data == nil {
		secret.Data = map[string][]byte{}
	}
	secret.Data[keyAuthority], secret.Data[keyPrivate] = certificate, key
	return nil
}

// tell writes the authority's certificate where agents read it.
func tell(ctx context.Context, client kubernetes.Interface, namespace string, certificate []byte) error {
	for {
		told, err := client.CoreV1().ConfigMaps(namespace).Get(ctx, ConfigMap, metav1.GetOptions{})
		if err != nil {
			return fmt.Errorf("read what agents trust: %w", err)
		}
		if told.Data[keyAuthority] == string(certificate) {
			return nil
		}
		if told.Data == nil {
			told.Data = map[string]string{}
		}
		told.Data[keyAuthority] = string(certificate)
		if _, err = client.CoreV1().ConfigMaps(namespace).Update(ctx, told, metav1.UpdateOptions{}); err != nil && !apierrors.IsConflict(err) {
			return fmt.Errorf("write what agents trust: %w", err)
		}
	}
}
