package cluster

import (
	"context"
	"fmt"
	"syscall"

	corev1 "k8s.io/api/core/v1"
)

// Upgrade replaces Kubernetes by another version as an administrator does it: the API server first, then the rest of the control
// plane, then the kubelets one after the other. Pods go on, containerd and etcd stay as they are. Programs of the version that was are
// found no more.
func (c *Cluster) Upgrade(ctx context.Context, version string) error {
	where, err := find(version, c.options.Containerd)
	if err != nil {
		return err
	}
	if err := c.StopAPIServer(ctx); err != nil {
		return err
	}
	c.options.Version, c.places = version, where
	if err := c.StartAPIServer(ctx); err != nil {
		return err
	}
	for name, args := range c.followers() {
		if err := c.replace(ctx, name, args); err != nil {
			return fmt.Errorf("upgrade %s: %w", name, err)
		}
	}
	for _, n := range c.Nodes {
		if err := n.restartKubelet(ctx); err != nil {
			return fmt.Errorf("upgrade node %s: %w", n.Name, err)
		}
	}
	c.log("upgraded to %s", version)
	return nil
}

// replace starts a part of the control plane in the place of the one that runs.
func (c *Cluster) replace(ctx context.Context, name string, args []string) error {
	for i, p := range c.services {
		if p.name != name {
			continue
		}
		if err := p.signal(ctx, syscall.SIGTERM); err != nil {
			return err
		}
		var err error
		c.services[i], err = c.serve(name, args...)
		return err
	}
	return fmt.Errorf("%s does not run", name)
}

func (n *Machine) restartKubelet(ctx context.Context) error {
	if err := n.KillKubelet(ctx); err != nil {
		return err
	}
	if err := n.StartKubelet(ctx); err != nil {
		return err
	}
	// The node of the kubelet that was is ready until the one that is has registered.
	if err := n.cluster.WaitNode(ctx, n.Name, "it has kubelet "+n.cluster.options.Version, func(node *corev1.Node) (bool, error) {
		return node.Status.NodeInfo.KubeletVersion == n.cluster.options.Version, n.kubelet.alive()
	}); err != nil {
		return err
	}
	return n.WaitReady(ctx)
}
