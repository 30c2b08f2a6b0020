// Package cluster checks what Divvy needs of a Kubernetes cluster it is installed in, and says what to do about each
// fault. It changes nothing.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/doctor"
	"github.com/divvy-gpu/divvy/internal/webhook"
)

// Names that the chart gives.
const (
	webhookName    = "divvy-webhook"
	controllerName = "divvy-controller"
	agentName      = "divvy-agent"
	webhookPort    = "8443"
)

// Cluster is the cluster to check.
type Cluster struct {
	Client kubernetes.Interface
	// Namespace is Divvy's.
	Namespace string
	// Port asks whether an address serves who shows no client certificate, and returns an error where that cannot be
	// found out from here.
	Port func(ctx context.Context, address string) (open bool, err error)
}

// Run makes every check.
func (c Cluster) Run(ctx context.Context) []doctor.Check {
	version, err := c.Client.Discovery().ServerVersion()
	if err != nil {
		return []doctor.Check{{
			ID: "cluster.server", Name: "API server", Status: doctor.Fail, Found: err.Error(), Next: "give --kubeconfig the file with the cluster's address and credentials",
		}}
	}
	checks := []doctor.Check{server(version)}
	deployment, check := c.deployment(ctx, "cluster.webhook", webhookName, "the webhook")
	checks = append(checks, check)
	if deployment != nil {
		checks = append(checks, c.trust(ctx), c.callers(ctx, deployment))
	}
	agents, check := c.agents(ctx)
	if slots(agents) {
		checks = append(append(checks, c.placing(ctx, version)...), c.fenced(ctx), c.runtimes(ctx))
	} else {
		_, controller := c.deployment(ctx, "cluster.controller", controllerName, "the controller")
		checks = append(checks, controller)
		if deployment != nil {
			checks = append(checks, c.scheduler(ctx)...)
		}
	}
	return append(append(checks, check), c.versions(ctx)...)
}

// slots reports whether the cluster is served by slots, where there is no controller.
func slots(agents *appsv1.DaemonSet) bool {
	return agents != nil && slices.ContainsFunc(agents.Spec.Template.Spec.Containers, func(c corev1.Container) bool {
		return slices.Contains(c.Args, "--mode=slots")
	})
}

// deployment checks that replicas of a deployment answer.
func (c Cluster) deployment(ctx context.Context, id doctor.ID, name, what string) (*appsv1.Deployment, doctor.Check) {
	check := doctor.Check{ID: id, Name: what, Status: doctor.OK}
	found, err := c.Client.AppsV1().Deployments(c.Namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		check.Status, check.Found = doctor.Fail, err.Error()
		if apierrors.IsNotFound(err) {
			check.Next = "install the chart, or name its namespace: --namespace"
		}
		return nil, check
	}
	want, ready := wanted(found), found.Status.ReadyReplicas
	check.Found = fmt.Sprintf("%d of %d replicas are ready", ready, want)
	switch {
	case ready == 0:
		check.Status, check.Next = doctor.Fail, fmt.Sprintf("`kubectl -n %s describe deployment %s` says why", c.Namespace, name)
	case ready < want || want == 1 && name == webhookName:
		check.Status, check.Next = doctor.Warn, "while none answers, pods that ask for GPUs are refused: run two or more"
	}
	return found, check
}

// wanted is how many replicas a deployment is to have.
func wanted(deployment *appsv1.Deployment) int32 {
	if deployment.Spec.Replicas == nil {
		return 1
	}
	return *deployment.Spec.Replicas
}

// trust checks that the API server was told whom to trust for each of the webhooks.
func (c Cluster) trust(ctx context.Context) doctor.Check {
	check := doctor.Check{ID: "cluster.certificate", Name: "the webhook's certificate", Status: doctor.OK, Found: "the API server knows the authority"}
	var without []string
	note := func(name string, config *admissionregistrationv1.WebhookClientConfig) {
		if len(config.CABundle) == 0 {
			without = append(without, name)
		}
	}
	registration := c.Client.AdmissionregistrationV1()
	mutating, first := registration.MutatingWebhookConfigurations().Get(ctx, webhook.DefaultConfiguration, metav1.GetOptions{})
	validating, second := registration.ValidatingWebhookConfigurations().Get(ctx, webhook.DefaultConfiguration, metav1.GetOptions{})
	err := errors.Join(first, second)
	if err == nil {
		for i := range mutating.Webhooks {
			note(mutating.Webhooks[i].Name, &mutating.Webhooks[i].ClientConfig)
		}
		for i := range validating.Webhooks {
			note(validating.Webhooks[i].Name, &validating.Webhooks[i].ClientConfig)
		}
	}
	switch {
	case err != nil:
		check.Status, check.Found, check.Next = doctor.Fail, err.Error(), "install the chart again: without it no pod's request is translated"
	case len(without) > 0:
		check.Status, check.Found = doctor.Fail, "the API server trusts nobody for "+strings.Join(without, ", ")
		check.Next = fmt.Sprintf("`kubectl -n %s logs deployment/%s` says why; with cert-manager, see that its CA injector runs", c.Namespace, webhookName)
	}
	return check
}

// callers says who may ask the webhook.
func (c Cluster) callers(ctx context.Context, deployment *appsv1.Deployment) doctor.Check {
	check := doctor.Check{ID: "cluster.callers", Name: "the webhook's port", Status: doctor.OK}
	names := clientNames(deployment)
	open, asked := c.asked(ctx)
	if asked == "" {
		open = len(names) == 0
	}
	if !open {
		check.Found = "it serves only who shows a client certificate of " + strings.Join(names, ", ")
		return check
	}
	check.Status, check.Found = doctor.Warn, "it is open: whoever reaches it may ask for reviews, and no client certificate is asked for"+asked
	if n := c.namedCallers(ctx); n > 0 {
		check.Found += fmt.Sprintf("; a network policy names %d callers, which holds if the cluster's network enforces it", n)
	}
	check.Next = "set webhook.clients, and networkPolicy.callers (docs/kubernetes.md, Security)"
	return check
}

// clientNames are the subjects that the webhook was told to serve.
func clientNames(deployment *appsv1.Deployment) []string {
	var names []string
	for i := range deployment.Spec.Template.Spec.Containers {
		for _, arg := range deployment.Spec.Template.Spec.Containers[i].Args {
			if name, ok := strings.CutPrefix(arg, "--client-name="); ok {
				names = append(names, name)
			}
		}
	}
	return names
}

// asked asks the webhook's pods whether they serve everybody, and says which one does, or else which answered, "" for
// none. Those that are about to end, as during a rollout, are not asked.
func (c Cluster) asked(ctx context.Context) (open bool, by string) {
	pods, err := c.Client.CoreV1().Pods(c.Namespace).List(ctx, metav1.ListOptions{
		LabelSelector: "app.kubernetes.io/name=divvy,app.kubernetes.io/component=webhook",
	})
	if err != nil || c.Port == nil {
		return false, ""
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		if pod.Status.Phase != corev1.PodRunning || pod.Status.PodIP == "" || pod.DeletionTimestamp != nil {
			continue
		}
		serves, err := c.Port(ctx, net.JoinHostPort(pod.Status.PodIP, webhookPort))
		if err == nil && (serves || !open) {
			open, by = serves, " (asked pod "+pod.Name+")"
		}
	}
	return open, by
}

// namedCallers counts the callers that the chart's network policy names.
func (c Cluster) namedCallers(ctx context.Context) int {
	policy, err := c.Client.NetworkingV1().NetworkPolicies(c.Namespace).Get(ctx, webhookName, metav1.GetOptions{})
	if err != nil {
		return 0
	}
	for _, rule := range policy.Spec.Ingress {
		for _, port := range rule.Ports {
			if port.Port != nil && port.Port.String() == "https" {
				return len(rule.From)
			}
		}
	}
	return 0
}

// agents checks that the agents of all nodes answer.
func (c Cluster) agents(ctx context.Context) (*appsv1.DaemonSet, doctor.Check) {
	check := doctor.Check{ID: "cluster.agents", Name: "agents", Status: doctor.OK}
	found, err := c.Client.AppsV1().DaemonSets(c.Namespace).Get(ctx, agentName, metav1.GetOptions{})
	if err != nil {
		check.Status, check.Found = doctor.Fail, err.Error()
		return nil, check
	}
	ready, want := found.Status.NumberReady, found.Status.DesiredNumberScheduled
	check.Found = fmt.Sprintf("%d of %d nodes have one that is ready", ready, want)
	switch {
	case want == 0:
		check.Status, check.Next = doctor.Warn, "label the nodes that have GPUs: `kubectl label node NODE "+v1alpha1.NodeLabel+"=`"
	case ready < want:
		check.Status = doctor.Warn
		check.Next = fmt.Sprintf("`kubectl -n %s get pods -o wide` shows where; pods there neither start nor end meanwhile", c.Namespace)
	}
	return found, check
}
