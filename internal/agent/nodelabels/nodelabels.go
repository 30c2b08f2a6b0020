// Package nodelabels labels a node with its GPUs, so that pods can select nodes by them and people can list them.
//
// It uses server-side apply: the API server removes labels that this package wrote earlier and no longer writes, and
// keeps the labels of others. The only permission it needs is to patch nodes.
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

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// Mixed is the model of a node with GPUs of several models.
const Mixed = "mixed"

// Manager is the field manager under which the API server records these labels.
const Manager = "divvy-agent-labels"

// GPU is what the labels say about a GPU; Memory is in bytes.
type GPU struct {
	Model  string
	Memory uint64
}

// Labels returns the labels of a node with these GPUs; without GPUs, only their number.
func Labels(gpus []GPU) map[string]string {
	labels := map[string]string{v1alpha1.CountLabel: strconv.Itoa(len(gpus))}
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
	labels[v1alpha1.MemoryLabel] = strconv.FormatUint(memory>>20, 10)
	if value := labelValue(model); value != "" {
		labels[v1alpha1.ModelLabel] = value
	}
	return labels
}

// longest is the greatest length of a label's value.
const longest = 63

// labelValue replaces characters that a label's value cannot have.
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

// Apply replaces the labels that this package wrote on the node.
func Apply(ctx context.Context, nodes Nodes, node string, labels map[string]string) error {
	if _, err := nodes.Apply(ctx, corev1ac.Node(node).WithLabels(labels), metav1.ApplyOptions{FieldManager: Manager, Force: true}); err != nil {
		return fmt.Errorf("label node %s with its GPUs: %w", node, err)
	}
	return nil
}

// Keeper keeps a node's labels up to date.
type Keeper struct {
	Nodes Nodes
	Node  string
	// GPUs returns the node's GPUs and a channel that is closed when they may have changed.
	GPUs func() ([]GPU, <-chan struct{})
	// Machine returns what the labels of GPU feature discovery say; nil removes these labels.
	Machine func() Machine
	// Failed, if not nil, is called for every error.
	Failed func(error)
	Log    *slog.Logger
	// Again is the time after which unchanged labels are applied again, because somebody may have removed them; 0 means
	// ten minutes. Retry is the time after an error; 0 means ten seconds.
	Again, Retry time.Duration
}

// Run applies the labels now, whenever the GPUs change, and from time to time, until ctx is done. The labels stay on the
// node when the agent ends.
func (k *Keeper) Run(ctx context.Context) {
	again, retry := k.Again, k.Retry
	if again <= 0 {
		again = 10 * time.Minute
	}
	if retry <= 0 {
		retry = 10 * time.Second
	}
	var last map[string]string
	told := discovery{keeper: k}
	for {
		gpus, changed := k.GPUs()
		labels := Labels(gpus)
		pause := again
		err := Apply(ctx, k.Nodes, k.Node, labels)
		if err == nil {
			if !maps.Equal(labels, last) {
				k.Log.InfoContext(ctx, "labelled the node", "labels", labels)
				last = labels
			}
			err = told.apply(ctx)
		}
		if err != nil && ctx.Err() == nil {
			pause = retry
			k.fail(ctx, err)
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-time.After(pause):
		}
	}
}

func (k *Keeper) fail(ctx context.Context, err error) {
	k.Log.WarnContext(ctx, "cannot label the node", "error", err)
	if k.Failed != nil {
		k.Failed(err)
	}
}

// discovery keeps the labels of GPU feature discovery, and remembers what the log was told.
type discovery struct {
	keeper *Keeper
	others string
}

func (d *discovery) apply(ctx context.Context) error {
	var labels map[string]string
	if d.keeper.Machine != nil {
		labels = Discovery(d.keeper.Machine())
	}
	others, err := ApplyDiscovery(ctx, d.keeper.Nodes, d.keeper.Node, labels)
	if others == nil {
		d.others = ""
	} else if text := others.Error(); text != d.others {
		d.others = text
		d.keeper.Log.WarnContext(ctx, "labels of GPU feature discovery are left to who wrote them", "error", others)
	}
	return err
}
