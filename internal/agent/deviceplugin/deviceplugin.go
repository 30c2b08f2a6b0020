// Package deviceplugin advertises slots to the kubelet of a cluster whose scheduler
// counts them: each container with a share takes one. A slot stands for no GPU and no
// amount. What a container gets was decided when its pod was bound, and package nri
// puts it into the container. A slot's allocation only keeps NVIDIA's runtime from
// giving the container every GPU.
//
// No slots are advertised while containers could be made without package nri, or while
// no GPU is healthy.
package deviceplugin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	corev1 "k8s.io/api/core/v1"
	kubelet "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/socket"
)

// Guard says whether the agent is asked about every container with a slot before it is
// made.
type Guard interface {
	// Down returns why it is not, nil if it is, and a channel that is closed when that
	// changes.
	Down() (changed <-chan struct{}, reason error)
}

// Nodes is the part of the cluster's API that annotates nodes.
type Nodes interface {
	Patch(ctx context.Context, name string, pt types.PatchType, data []byte, opts metav1.PatchOptions, subresources ...string) (*corev1.Node, error)
}

// Config is what Run works with.
type Config struct {
	// Dir is the kubelet's for device plugins; left out it is the usual one.
	Dir   string
	Guard Guard
	// GPUs returns the node's GPUs with their faults, and a channel that is
	// closed when they change.
	GPUs func() ([]v1alpha1.NodeGPU, <-chan struct{})
	// Held returns what tenants hold of them, and a channel that is closed when that, or what GPUs returns, may have
	// changed; nil tells nobody.
	Held func() (v1alpha1.NodeHeld, <-chan struct{})
	// Nodes and Node are where the GPUs are published for the scheduler that binds pods; where Nodes is nil they are not.
	Nodes Nodes
	Node  string
	Log   *slog.Logger
}

// Keep advertises no slots until ctx is done, to every kubelet that starts. A kubelet forgets a plugin five minutes
// after it has gone (endpointStopGracePeriod in pkg/kubelet/cm/devicemanager), and then starts no container again that
// has one of its slots. Dir is as in [Config].
func Keep(ctx context.Context, dir string, log *slog.Logger) error {
	return Run(ctx, Config{Dir: dir, Guard: nobody{}, GPUs: func() ([]v1alpha1.NodeGPU, <-chan struct{}) { return nil, nil }, Log: log})
}

// nobody guards nothing.
type nobody struct{}

// Down implements [Guard].
func (nobody) Down() (<-chan struct{}, error) { return nil, nil }

const socketName = "divvy-shares.sock"

// Run advertises slots and publishes the GPUs until ctx is done, and again to every
// kubelet that starts. It returns only errors that waiting cannot resolve.
func Run(ctx context.Context, c Config) error {
	if c.Dir == "" {
		c.Dir = kubelet.DevicePluginPath
	}
	watcher, err := socket.Watch(filepath.Join(c.Dir, kubeletSocket))
	if err != nil {
		return fmt.Errorf("wait for the kubelet: %w", err)
	}
	defer watcher.Close()
	published := make(chan struct{})
	go func() {
		defer close(published)
		if c.Nodes != nil {
			c.publish(ctx)
		}
	}()
	defer func() { <-published }()
	watcher.Follow(ctx,
		func(ctx context.Context) error { return c.serve(ctx, watcher) },
		func(err error) {
			if errors.Is(err, errKubeletRestarted) {
				c.Log.Info("the kubelet was restarted: advertising slots again")
				return
			}
			c.Log.Warn("cannot advertise slots to the kubelet", "error", err)
		})
	return nil
}
