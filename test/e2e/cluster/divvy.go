package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// Names that Divvy's chart gives.
const (
	Namespace  = "divvy-system"
	Agent      = "divvy-agent"
	Webhook    = "divvy-webhook"
	Controller = "divvy-controller"
)

// Install installs Divvy's chart, or upgrades to it, with one replica of each
// part and further values, such as "agent.outside=stop", and waits until all of
// it is ready. Nodes need the image and the label divvy.dev/node.
func (c *Cluster) Install(ctx context.Context, values ...string) error {
	args := []string{
		"upgrade", "--install", "divvy", filepath.Join(c.places.root, "deploy", "chart"),
		"--namespace", Namespace, "--create-namespace", "--set", "webhook.replicas=1", "--set", "controller.replicas=1",
	}
	if len(c.Nodes) > 0 {
		args = append(args, "--set", "agent.simgpu.dir="+c.Nodes[0].SimgpuDir())
	}
	for _, value := range values {
		args = append(args, "--set", value)
	}
	if _, err := c.Helm(ctx, args...); err != nil {
		return err
	}
	return c.WaitInstalled(ctx)
}

// WaitInstalled waits until every part of Divvy that is installed is ready, in
// its newest version.
func (c *Cluster) WaitInstalled(ctx context.Context) error {
	err := Wait(ctx, c.client.AppsV1().RESTClient(), "daemonsets", Namespace, Agent, func(d *appsv1.DaemonSet) (bool, error) {
		if d == nil {
			return false, errors.New("it was deleted")
		}
		s := d.Status
		return s.ObservedGeneration >= d.Generation && s.DesiredNumberScheduled > 0 &&
			s.UpdatedNumberScheduled == s.DesiredNumberScheduled && s.NumberReady == s.DesiredNumberScheduled, nil
	})
	if err != nil {
		return fmt.Errorf("wait until the agents are ready: %w%s", err, c.explainPods(context.WithoutCancel(ctx), Namespace))
	}
	list, err := c.client.AppsV1().Deployments(Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, wanted := range list.Items {
		err := Wait(ctx, c.client.AppsV1().RESTClient(), "deployments", Namespace, wanted.Name, func(d *appsv1.Deployment) (bool, error) {
			if d == nil {
				return false, errors.New("it was deleted")
			}
			s := d.Status
			return s.ObservedGeneration >= d.Generation && s.UpdatedReplicas == *d.Spec.Replicas &&
				s.ReadyReplicas == *d.Spec.Replicas && s.Replicas == *d.Spec.Replicas, nil
		})
		if err != nil {
			return fmt.Errorf("wait until %s is ready: %w%s", wanted.Name, err, c.explainPods(context.WithoutCancel(ctx), Namespace))
		}
	}
	return nil
}

// WaitAsked waits until the API server asks Divvy's webhook and trusts its certificate: of its replicas and of that it hears by itself.
func (c *Cluster) WaitAsked(ctx context.Context) error {
	probe := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "probe"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{
		Name: "main", Image: "none",
		Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{v1alpha1.ResourceMemory: resource.MustParse("1")}},
	}}}}
	return until(ctx, "the webhook is asked", func(ctx context.Context) error {
		// A dry run goes through admission; a request that cannot be is refused by the webhook alone.
		_, err := c.client.CoreV1().Pods(corev1.NamespaceDefault).Create(ctx, probe, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil || !strings.Contains(err.Error(), "GPU request refused") {
			return fmt.Errorf("a pod that asks for one byte: %w", cmp.Or(err, errAdmitted))
		}
		return nil
	})
}

var errAdmitted = errors.New("it is admitted")

// explainPods says for an error what became of a namespace's pods that are not
// ready.
func (c *Cluster) explainPods(ctx context.Context, namespace string) string {
	list, err := c.client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return ": " + err.Error()
	}
	var text strings.Builder
	for i := range list.Items {
		pod := &list.Items[i]
		if PodReady(pod) {
			continue
		}
		fmt.Fprintf(&text, "\npod %s:%s", pod.Name, c.explain(ctx, pod))
		for _, previous := range []bool{true, false} {
			lines := int64(10)
			logs, err := c.client.CoreV1().Pods(namespace).GetLogs(pod.Name, &corev1.PodLogOptions{
				Previous: previous, TailLines: &lines,
			}).DoRaw(ctx)
			if err == nil && len(logs) > 0 {
				fmt.Fprintf(&text, "\n  says: %s", strings.ReplaceAll(strings.TrimSpace(string(logs)), "\n", "\n    "))
			}
		}
	}
	return text.String()
}
