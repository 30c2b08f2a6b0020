package cluster

import (
	"context"
	"io"

	corev1 "k8s.io/api/core/v1"
)

// PodExec runs a program in a container of a pod and returns what it prints.
func (c *Cluster) PodExec(ctx context.Context, namespace, pod, container string, command ...string) (string, error) {
	args := []string{"exec", "--namespace", namespace, pod}
	if container != "" {
		args = append(args, "--container", container)
	}
	return c.Kubectl(ctx, append(append(args, "--"), command...)...)
}

// PodLogs is what a container of a pod has printed.
func (c *Cluster) PodLogs(ctx context.Context, namespace, pod, container string) (string, error) {
	stream, err := c.client.CoreV1().Pods(namespace).GetLogs(pod, &corev1.PodLogOptions{Container: container}).Stream(ctx)
	if err != nil {
		return "", err
	}
	defer stream.Close()
	text, err := io.ReadAll(stream)
	return string(text), err
}
