// Package nodelabels writes on a node what GPUs it has, as labels by which pods choose nodes and people list them.
//
// The labels are applied, not patched one by one: the API server takes away what this package wrote earlier and does
// not write any more, and leaves alone what others wrote. Nothing but patching nodes is needed for it.
package nodelabels

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
)

// The labels.
const (
	// Model is the driver's name of the GPUs with dashes for what labels cannot have, Mixed where they differ.
	Model = "divvy.dev/gpu.model"
	// Memory is what the smallest GPU has for tenants, in whole MiB.
	Memory = "divvy.dev/gpu.memory"
	// Count is how many GPUs there are.
	Count = "divvy.dev/gpu.count"
)

// Mixed stands for GPUs of several models.
const Mixed = "mixed"

// Manager is the name under which the API server keeps what this package wrote.
const Manager = "divvy-agent-labels"

// GPU is what labels tell of a GPU; Memory is in bytes.
type GPU struct {
	Model  string
	Memory uint64
}

// Labels returns the labels of a node with these GPUs. Without GPUs only their number is told.
func Labels(gpus []GPU) map[string]string {
	labels := map[string]string{Count: strconv.Itoa(len(gpus))}
	if len(gpus) == 0 {
		return labels
	}
	model, memory := gpus[0].Model, gpus[0].Memory
	for _, gpu := range gpus[1:] {
		if gpu.Model != model {
			model = Mixed
		}
		memory = min(memory, gpu.Memory)
	}
	labels[Memory] = strconv.FormatUint(memory>>20, 10)
	if value := labelValue(model); value != "" {
		labels[Model] = value
	}
	return labels
}

// longest is what a label's value may have.
const longest = 63

// labelValue replaces what a label cannot have.
func labelValue(text string) string {
	value := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '-', r == '.', r == '_':
			return r
		}
		return '-'
	}, text)
	if len(value) > longest {
		value = value[:longest]
	}
	return strings.Trim(value, "-._")
}

// Nodes is the part of the API that is needed; client-go's CoreV1().Nodes() is one.
type Nodes interface {
	Apply(ctx context.Context, node *corev1ac.NodeApplyConfiguration, options metav1.ApplyOptions) (*corev1.Node, error)
}

// Apply makes the node's labels of ours these.
func Apply(ctx context.Context, nodes Nodes, node string, labels map[string]string) error {
	if _, err := nodes.Apply(ctx, corev1ac.Node(node).WithLabels(labels), metav1.ApplyOptions{FieldManager: Manager, Force: true}); err != nil {
		return fmt.Errorf("label node %s with its GPUs: %w", node, err)
	}
	return nil
}

// Keeper keeps a node's labels true.
type Keeper struct {
	Nodes Nodes
	Node  string
	// GPUs returns the GPUs that are there and a channel that is closed when that may have changed.
	GPUs func() ([]GPU, <-chan struct{})
	// Failed is told of every error; nil is not.
	Failed func(error)
	Log    *slog.Logger
	// Again is the time after which labels are applied although nothing changed, as somebody may have taken them away;
	// Retry that after an error. 0 is ten minutes, and ten seconds.
	Again, Retry time.Duration
}

// Run applies the labels now, whenever the GPUs change, and from time to time, until ctx is done. Labels stay when the
// agent ends: the GPUs do too.
func (k *Keeper) Run(ctx context.Context) {
	again, retry := k.Again, k.Retry
	if again <= 0 {
		again = 10 * time.Minute
	}
	if retry <= 0 {
		retry = 10 * time.Second
	}
	var last map[string]string
	for {
		gpus, changed := k.GPUs()
		labels := Labels(gpus)
		pause := again
		if err := Apply(ctx, k.Nodes, k.Node, labels); err != nil && ctx.Err() == nil {
			pause = retry
			k.Log.WarnContext(ctx, "cannot label the node", "error", err)
			if k.Failed != nil {
				k.Failed(err)
			}
		} else if err == nil && !maps.Equal(labels, last) {
			k.Log.InfoContext(ctx, "labelled the node", "labels", labels)
			last = labels
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-time.After(pause):
		}
	}
}
