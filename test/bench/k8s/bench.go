package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/divvy-gpu/divvy/test/bench/measurement"
	"github.com/divvy-gpu/divvy/test/e2e/cluster"
)

const (
	nodeName  = "node-1"
	namespace = corev1.NamespaceDefault
	command   = "make bench-k8s"
)

// plan is how much is done.
type plan struct {
	// shares are made in waves, so that the kubelet has several to prepare at a time and never hundreds.
	shares, wave int
	// windows are looks at the idle agent, each so long.
	windows int
	window  time.Duration
	// turns are how often room is freed for a pod that waits.
	turns int
	// cold claims for MPS start their GPU's daemon, warm ones find it running.
	cold, warm int
}

var (
	whole = plan{shares: 100, wave: 10, windows: 3, window: time.Minute, turns: 10, cold: 10, warm: 30}
	short = plan{shares: 10, wave: 5, windows: 1, window: 10 * time.Second, turns: 2, cold: 2, warm: 5}
)

// scrapeEvery is how often the agent's metrics are read while it is idle, as Prometheus would.
const scrapeEvery = 15 * time.Second

// bench is one cluster with Divvy installed.
type bench struct {
	options options
	plan    plan
	cluster *cluster.Cluster
	agent   *agentView
}

// measure makes all figures.
func (b *bench) measure(ctx context.Context) ([]measurement.Row, error) {
	var err error
	if b.agent, err = b.findAgent(ctx); err != nil {
		return nil, err
	}
	if err := b.cluster.ApplyText(ctx, templates); err != nil {
		return nil, err
	}
	var rows []measurement.Row
	for _, part := range []struct {
		ids []string
		run func(context.Context) ([]measurement.Row, error)
	}{
		{[]string{"k8s.prepare_p99_ms", "k8s.agent_rss_mib", "k8s.agent_idle_cpu_percent"}, b.crowd},
		{[]string{"k8s.freed_to_running_s"}, b.freed},
		{[]string{mpsID}, b.mps}, // it installs Divvy anew
		{[]string{migID}, b.mig}, // the last: the GPUs stay divided
	} {
		if !slices.ContainsFunc(part.ids, b.wanted) {
			continue
		}
		made, err := part.run(ctx)
		if err != nil {
			return nil, err
		}
		rows = append(rows, made...)
	}
	return slices.DeleteFunc(rows, func(r measurement.Row) bool { return !b.wanted(r.ID) }), nil
}

func (b *bench) wanted(id string) bool { return strings.HasPrefix(id, b.options.only) }

// crowd starts many pods, and looks at the agent while they do nothing.
func (b *bench) crowd(ctx context.Context) ([]measurement.Row, error) {
	rows, err := b.prepare(ctx)
	if err != nil {
		return nil, err
	}
	idle, err := b.idle(ctx)
	if err != nil {
		return nil, err
	}
	return append(rows, idle...), b.removePods(ctx)
}

// templates are the claims of the pods: a share, and all GPUs of the node.
const templates = `
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: share}
spec:
  spec:
    devices:
      requests:
        - name: gpu
          exactly: {deviceClassName: share.divvy.dev, capacity: {requests: {memory: 1Gi}}}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: node}
spec:
  spec:
    devices:
      requests:
        - name: gpu
          exactly: {deviceClassName: gpu.divvy.dev, allocationMode: ExactCount, count: 8}
`

// pod is a pod of one container with a claim of the template; dir is a directory of the node that it has at /bench, or
// "".
func pod(name, template, dir string, command ...string) *corev1.Pod {
	made := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{
			RestartPolicy:                 corev1.RestartPolicyNever,
			TerminationGracePeriodSeconds: new(int64),
			ResourceClaims:                []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimTemplateName: &template}},
			Containers: []corev1.Container{{
				Name: "main", Image: "ghcr.io/divvy-gpu/gpubench:0.1.0", Command: command, Stdin: true,
				Resources: corev1.ResourceRequirements{Claims: []corev1.ResourceClaim{{Name: "gpu"}}},
			}},
		},
	}
	if dir != "" {
		made.Spec.Volumes = []corev1.Volume{{Name: "bench", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: dir}}}}
		made.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "bench", MountPath: "/bench"}}
	}
	return made
}

func (b *bench) create(ctx context.Context, p *corev1.Pod) error {
	if _, err := b.cluster.Client().CoreV1().Pods(namespace).Create(ctx, p, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("make pod %s: %w", p.Name, err)
	}
	return nil
}

// removePods removes all of ours and waits until the agent has let go of their claims.
func (b *bench) removePods(ctx context.Context) error {
	b.say("remove all pods")
	now := int64(0)
	pods := b.cluster.Client().CoreV1().Pods(namespace)
	if err := pods.DeleteCollection(ctx, metav1.DeleteOptions{GracePeriodSeconds: &now}, metav1.ListOptions{}); err != nil {
		return fmt.Errorf("remove the pods: %w", err)
	}
	return b.agent.until(ctx, "no claim is prepared", func(f figures) bool { return f.value("divvy_agent_prepared_claims") == 0 })
}
