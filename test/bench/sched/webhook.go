package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/test/bench/plane"
)

// webhookProgram is the webhook's process as the plane calls it, system the namespace of its certificates.
const (
	webhookProgram = "divvy-webhook"
	system         = "divvy-system"
)

// webhook is the shipped program, which answers reviews on the loopback interface.
type webhook struct {
	*plane.Process

	// reviews is where it answers them, bare where a server answers that does nothing.
	reviews, bare string
}

// startWebhook starts the webhook with these dialects, and has the API server send it what its own configurations
// select. The slices must be published and the claims made by then: it reads them before it is ready.
func (b *bench) startWebhook(ctx context.Context, dialects string) (*webhook, error) {
	program, err := filepath.Abs(filepath.Join(b.build, "libexec", "divvy", "divvy-cluster"))
	if err != nil {
		return nil, err
	}
	config := filepath.Join(b.Dir(), "webhook.yaml")
	text := "apiVersion: " + v1alpha1.APIVersion + "\nkind: WebhookConfig\ndialects: " + dialects + "\n"
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return nil, fmt.Errorf("write the webhook's configuration: %w", err)
	}
	if err := b.makeNamespace(ctx, system); err != nil {
		return nil, err
	}
	process, err := b.Run(ctx, plane.Program{
		Name: webhookProgram, Path: program, Ports: 2, Scheme: "http", Ready: plane.Answers("/readyz"),
		Args: func(ports []int) []string {
			return []string{
				"webhook", "--config=" + config, "--kubeconfig=" + b.Kubeconfig(), "--namespace=" + system, "--host=127.0.0.1", "--linger=0s",
				fmt.Sprintf("--metrics-address=127.0.0.1:%d", ports[0]), fmt.Sprintf("--address=127.0.0.1:%d", ports[1]),
			}
		},
	})
	if err != nil {
		return nil, err
	}
	w := &webhook{Process: process, reviews: fmt.Sprintf("https://127.0.0.1:%d", process.Port(1))}
	return w, b.register(ctx, w, program, config)
}

// register tells the API server of the webhook. The configurations name a Service, which nothing here would find: the
// address takes its place, with the authority that the webhook keeps in its Secret.
func (b *bench) register(ctx context.Context, w *webhook, program, config string) error {
	printed, err := exec.CommandContext(ctx, program, "webhook", "--config="+config, "--print-configuration").Output()
	if err != nil {
		return fmt.Errorf("print the webhook's configurations: %w", err)
	}
	secret, err := b.client.CoreV1().Secrets(system).Get(ctx, "divvy-webhook-certificates", metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("read the webhook's certificates: %w", err)
	}
	authority := secret.Data["ca.crt"]
	if len(authority) == 0 {
		return errors.New("read the webhook's certificates: the secret has no ca.crt")
	}
	found := 0
	for document := range bytes.SplitSeq(printed, []byte("---\n")) {
		if strings.TrimSpace(string(document)) == "" {
			continue
		}
		if err := b.registerOne(ctx, document, w.reviews, authority); err != nil {
			return fmt.Errorf("tell the API server of the webhook: %w", err)
		}
		found++
	}
	if found != 2 {
		return fmt.Errorf("tell the API server of the webhook: %d configurations were printed", found)
	}
	return nil
}

func (b *bench) registerOne(ctx context.Context, document []byte, address string, authority []byte) error {
	move := func(client *admissionregistrationv1.WebhookClientConfig) {
		url := address + *client.Service.Path
		*client = admissionregistrationv1.WebhookClientConfig{URL: &url, CABundle: authority}
	}
	registration := b.client.AdmissionregistrationV1()
	if bytes.Contains(document, []byte("kind: MutatingWebhookConfiguration")) {
		var mutating admissionregistrationv1.MutatingWebhookConfiguration
		if err := yaml.Unmarshal(document, &mutating); err != nil {
			return err
		}
		for i := range mutating.Webhooks {
			move(&mutating.Webhooks[i].ClientConfig)
		}
		_, err := registration.MutatingWebhookConfigurations().Create(ctx, &mutating, metav1.CreateOptions{})
		return err
	}
	var validating admissionregistrationv1.ValidatingWebhookConfiguration
	if err := yaml.Unmarshal(document, &validating); err != nil {
		return err
	}
	for i := range validating.Webhooks {
		move(&validating.Webhooks[i].ClientConfig)
	}
	_, err := registration.ValidatingWebhookConfigurations().Create(ctx, &validating, metav1.CreateOptions{})
	return err
}
