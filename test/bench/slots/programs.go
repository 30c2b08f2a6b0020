package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/test/bench/plane"
)

// Programs, as the plane calls them, and the namespace of what Divvy keeps.
const (
	schedulerProgram = plane.Scheduler
	extenderProgram  = "divvy-extender"
	system           = "divvy-system"
)

// clientRate is what the scheduler is allowed in requests per second: more than this machine can serve, so that it is the program
// that is measured and not its bounds.
const clientRate = 5000

// schedulerConfig is the scheduler's configuration as the chart has it, but for how the extender is reached, how long it may take, and
// the client's rate. All nodes are scored, because the scheduler would otherwise draw some of them before it asks the extender.
const schedulerConfig = `apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {leaderElect: false}
clientConnection: {kubeconfig: %q, qps: %d, burst: %d, contentType: application/vnd.kubernetes.protobuf}
percentageOfNodesToScore: 100
profiles: [{schedulerName: %s}]
extenders:
- urlPrefix: %s
  filterVerb: filter
  preemptVerb: preempt
  bindVerb: bind
  enableHTTPS: true
  tlsConfig: {insecure: true, certFile: %q, keyFile: %q}
  httpTimeout: 10s
  nodeCacheCapable: true
  ignorable: false
  managedResources: [{name: %s, ignoredByScheduler: false}]
- urlPrefix: %[5]s
  prioritizeVerb: prioritize
  weight: 100
  enableHTTPS: true
  tlsConfig: {insecure: true, certFile: %[6]q, keyFile: %[7]q}
  httpTimeout: 3s
  nodeCacheCapable: true
  ignorable: true
`

func schedulerConfigOf(kubeconfig, address, certificate, key string) string {
	return fmt.Sprintf(schedulerConfig, kubeconfig, clientRate, 2*clientRate, v1alpha1.SchedulerName, address, certificate, key, v1alpha1.SlotResource)
}

// startScheduler starts the scheduler of Kubernetes with the extender at an address.
func (c *cluster) startScheduler(ctx context.Context, name, address, kubeconfig string) error {
	path := filepath.Join(c.Dir(), name+".yaml")
	text := schedulerConfigOf(kubeconfig, address, c.file("client.crt"), c.file("client.key"))
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		return fmt.Errorf("write the scheduler's configuration: %w", err)
	}
	_, err := c.Run(ctx, plane.Program{
		Name: name, Path: filepath.Join(c.components, plane.Scheduler), Ports: 1, Scheme: "https", Ready: plane.Answers("/healthz"),
		Args: func(ports []int) []string { return append(c.Serving(name, ports[0]), "--config="+path) },
	})
	return err
}

// extenderOf is the shipped extender, as a replica whose pod has the same name, which connects by the credentials of a file. It
// answers the scheduler on its second port.
func (c *cluster) extenderOf(name, kubeconfig string, more ...string) (plane.Program, error) {
	path, err := filepath.Abs(filepath.Join(c.build, "libexec", "divvy", "divvy-cluster"))
	if err != nil {
		return plane.Program{}, err
	}
	return plane.Program{
		Name: name, Path: path, Ports: 2, Scheme: "http", Ready: plane.Answers("/readyz"),
		Args: func(ports []int) []string {
			return append([]string{
				"scheduler-extender", "--kubeconfig=" + kubeconfig, "--namespace=" + system, "--pod=" + name,
				"--client-authority=" + c.file("authority.crt"), "--client-name=" + clientName,
				fmt.Sprintf("--metrics-address=127.0.0.1:%d", ports[0]), fmt.Sprintf("--address=127.0.0.1:%d", ports[1]),
			}, more...)
		},
	}, nil
}

// addReplica makes the pod of a replica, which it marks while it leads.
func (c *cluster) addReplica(ctx context.Context, name string) error {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: system},
		Spec:       corev1.PodSpec{NodeName: "control-plane", Containers: []corev1.Container{{Name: "extender", Image: "bench.test/none"}}},
	}
	if _, err := c.client.CoreV1().Pods(system).Create(ctx, pod, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("make pod %s: %w", name, err)
	}
	return nil
}

// startExtender starts one replica of the extender and waits until it answers.
func (c *cluster) startExtender(ctx context.Context) error {
	if err := c.addReplica(ctx, extenderProgram); err != nil {
		return err
	}
	program, err := c.extenderOf(extenderProgram, c.Kubeconfig())
	if err != nil {
		return err
	}
	_, err = c.Run(ctx, program)
	return err
}

// extender is where the extender answers the scheduler.
func (c *cluster) extender() string {
	return fmt.Sprintf("https://127.0.0.1:%d", c.Process(extenderProgram).Port(1))
}

// startBoth starts the extender and then the scheduler.
func (c *cluster) startBoth(ctx context.Context) error {
	if err := c.startExtender(ctx); err != nil {
		return err
	}
	return c.startScheduler(ctx, schedulerProgram, c.extender(), c.Kubeconfig())
}
