package cluster

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	corev1 "k8s.io/api/core/v1"
)

// serve starts a program on the node that runs until it is stopped.
func (n *Machine) serve(name, program string, args ...string) (*process, error) {
	log := n.cluster.logFile(n.Name + "-" + name)
	return n.space.run(n.Name+"'s "+name, log, nodeKinds, []string{"PATH=" + n.path()}, program, args...)
}

// StartContainerd starts containerd and waits until it answers.
func (n *Machine) StartContainerd(ctx context.Context) error {
	var err error
	program := filepath.Join(n.cluster.places.containerd, "containerd")
	if n.containerd, err = n.serve("containerd", program, "--config", n.file("containerd.toml")); err != nil {
		return err
	}
	return until(ctx, "containerd answers", func(ctx context.Context) error {
		if err := n.containerd.alive(); err != nil {
			return err
		}
		_, err := n.ctr(ctx, nil, "version")
		return err
	})
}

// KillContainerd ends containerd at once. Containers go on.
func (n *Machine) KillContainerd(ctx context.Context) error {
	return n.containerd.signal(ctx, syscall.SIGKILL)
}

// StartKubelet starts the kubelet and waits until it is healthy.
func (n *Machine) StartKubelet(ctx context.Context) error {
	args := []string{
		"--config=" + n.file("kubelet.yaml"), "--kubeconfig=" + n.cluster.pki.file("kubelet-"+n.Name+".conf"),
		"--hostname-override=" + n.Name, "--node-ip=" + n.address, "--v=2",
	}
	if len(n.Labels) > 0 {
		var labels []string
		for _, key := range slices.Sorted(maps.Keys(n.Labels)) {
			labels = append(labels, key+"="+n.Labels[key])
		}
		args = append(args, "--node-labels="+strings.Join(labels, ","))
	}
	var err error
	if n.kubelet, err = n.serve("kubelet", n.cluster.places.component("kubelet"), args...); err != nil {
		return err
	}
	client := http.Client{Transport: &http.Transport{DialContext: n.Dial, DisableKeepAlives: true}}
	return until(ctx, "the kubelet is healthy", func(ctx context.Context) error {
		if err := n.kubelet.alive(); err != nil {
			return err
		}
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://127.0.0.1:10248/healthz", http.NoBody)
		if err != nil {
			return err
		}
		answer, err := client.Do(request)
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		if answer.StatusCode != http.StatusOK {
			return fmt.Errorf("it answers %s", answer.Status)
		}
		return nil
	})
}

// KillKubelet ends the kubelet at once. Pods go on.
func (n *Machine) KillKubelet(ctx context.Context) error {
	return n.kubelet.signal(ctx, syscall.SIGKILL)
}

// WaitReady waits until the node takes pods.
func (n *Machine) WaitReady(ctx context.Context) error {
	return n.cluster.WaitNode(ctx, n.Name, "it is ready", func(node *corev1.Node) (bool, error) {
		if err := n.kubelet.alive(); err != nil {
			return false, err
		}
		for _, condition := range node.Status.Conditions {
			if condition.Type == corev1.NodeReady {
				return condition.Status == corev1.ConditionTrue, nil
			}
		}
		return false, nil
	})
}

// loadImages gives the node what every node has from the start.
func (n *Machine) loadImages(ctx context.Context) error {
	for _, archive := range append([]string{n.cluster.places.pause}, n.cluster.options.Images...) {
		if err := n.LoadImage(ctx, archive); err != nil {
			return err
		}
	}
	return nil
}

// LoadImage gives the node an image archive of the host.
func (n *Machine) LoadImage(ctx context.Context, archive string) error {
	file, err := os.Open(archive)
	if err != nil {
		return fmt.Errorf("load image: %w", err)
	}
	defer file.Close()
	_, err = n.ctr(ctx, file, "images", "import", "-")
	return err
}

// ctr runs containerd's own client on the containers of Kubernetes.
func (n *Machine) ctr(ctx context.Context, input io.Reader, args ...string) (string, error) {
	cmd := n.Command(ctx, "ctr", append([]string{"--address=/run/containerd/containerd.sock", "--namespace=k8s.io"}, args...)...)
	cmd.Stdin = input
	return n.Output(cmd)
}

// Restart ends everything on the node but its simulated machine, at once, takes away what containerd, Divvy and the kubelet keep in
// memory, and starts containerd and the kubelet again: what a node does that loses its power.
func (n *Machine) Restart(ctx context.Context) error {
	if err := n.KillKubelet(ctx); err != nil {
		return err
	}
	// One that ends by itself meanwhile cannot be killed.
	const endTasks = `ctr() { command ctr --address=/run/containerd/containerd.sock --namespace=k8s.io tasks "$@"; }
while :; do
  all=$(ctr ls)
  left=$(echo "$all" | awk '$3 == "RUNNING" { print $1 }')
  [ -n "$left" ] || break
  for task in $left; do ctr kill --signal=SIGKILL "$task" || true; done
  sleep 0.1
done`
	if _, err := n.Exec(ctx, "sh", "-ec", endTasks); err != nil {
		return fmt.Errorf("end the containers: %w", err)
	}
	if err := n.KillContainerd(ctx); err != nil {
		return err
	}
	// A shim may unmount what it had meanwhile; what stays mounted cannot be removed.
	const forget = `for mount in $(awk '$2 ~ "^/run/(containerd|netns)/." { print $2 }' /proc/mounts | sort -r); do umount -l "$mount" || true; done
rm -rf /run/containerd/* /run/nri/* /run/netns/* /dev/shm/divvy-0`
	if _, err := n.Exec(ctx, "sh", "-ec", forget); err != nil {
		return fmt.Errorf("empty what is in memory: %w", err)
	}
	if err := n.StartContainerd(ctx); err != nil {
		return err
	}
	return n.StartKubelet(ctx)
}
