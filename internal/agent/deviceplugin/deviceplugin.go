// Package deviceplugin offers slots to the kubelet of a cluster whose scheduler
// counts them: one for each container with a share. A slot stands for no GPU
// and no amount. What a container gets was decided when its pod was bound, and
// is put into it by another way, so that being given a slot only keeps others
// from giving the container every GPU.
//
// No slots are offered while containers could come past that other way, and none
// while no GPU is healthy.
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

// SlotsPerGPU is how many containers can have a share of one GPU: more than its
// time can be divided among to any use.
const SlotsPerGPU = 64

// Guard says whether containers with a slot are sure to be shown to the agent
// before they are made.
type Guard interface {
	// Down returns why they are not, nil if they are, and a channel that is
	// closed when that changes.
	Down() (changed <-chan struct{}, reason error)
}

// Nodes is the part of the cluster's API by which the node's GPUs are told.
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
	// Nodes and Node are where the GPUs are published for whoever binds pods.
	Nodes Nodes
	Node  string
	Log   *slog.Logger
}

const socketName = "divvy-shares.sock"

// Run offers slots and publishes the GPUs until ctx is done. It starts again
// with every kubelet. An error is one that waiting cannot mend.
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
		c.publish(ctx)
	}()
	defer func() { <-published }()
	watcher.Follow(ctx,
		func(ctx context.Context) error { return c.serve(ctx, watcher) },
		func(err error) {
			if errors.Is(err, errKubeletRestarted) {
				c.Log.Info("the kubelet was restarted: slots are offered anew")
				return
			}
			c.Log.Warn("no slots are offered to the kubelet", "error", err)
		})
	return nil
}
