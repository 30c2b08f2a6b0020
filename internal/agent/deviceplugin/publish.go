package deviceplugin

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

const (
	firstPause = 500 * time.Millisecond
	lastPause  = 30 * time.Second
	// publishAgain is the time after which unchanged GPUs are published again: a node
	// that was deleted comes back without the annotation, and somebody may remove it.
	publishAgain = 10 * time.Minute
)

// publish writes the GPUs into the node's annotation, and again when they
// change and from time to time, until ctx is done.
func (c Config) publish(ctx context.Context) {
	pause := firstPause
	for ctx.Err() == nil {
		gpus, changed := c.GPUs()
		text, err := describe(gpus)
		if err == nil {
			err = c.write(ctx, text)
		}
		next := publishAgain
		if err != nil {
			c.Log.Warn("cannot publish the node's GPUs", "node", c.Node, "error", err)
			next, pause = pause, min(2*pause, lastPause)
		} else {
			pause = firstPause
		}
		select {
		case <-ctx.Done():
		case <-changed:
		case <-time.After(next):
		}
	}
}

// describe renders the GPUs in the order of their indexes. It is pure.
func describe(gpus []v1alpha1.NodeGPU) (string, error) {
	gpus = slices.Clone(gpus)
	slices.SortFunc(gpus, func(a, b v1alpha1.NodeGPU) int {
		return cmp.Or(cmp.Compare(a.Index, b.Index), cmp.Compare(a.UUID, b.UUID))
	})
	return v1alpha1.NodeGPUs{GPUs: gpus}.Text()
}

func (c Config) write(ctx context.Context, text string) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{v1alpha1.GPUsAnnotation: text}}})
	if err != nil {
		return fmt.Errorf("describe the GPUs: %w", err)
	}
	if _, err := c.Nodes.Patch(ctx, c.Node, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: "divvy-agent"}); err != nil {
		return fmt.Errorf("annotate node %s: %w", c.Node, err)
	}
	return nil
}
