package deviceplugin

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

const (
	firstPause = 500 * time.Millisecond
	lastPause  = 30 * time.Second
	// publishAgain is the time after which the same is published again: a node
	// that was deleted comes back without annotations, and somebody may remove them.
	publishAgain = 10 * time.Minute
	// publishMost is the least time between two writes: tenants that come together are told of together.
	publishMost = time.Second
)

// publish writes the GPUs and what is held of them into the node's annotations, and again when they
// change and from time to time, until ctx is done.
func (c Config) publish(ctx context.Context) {
	pause := firstPause
	var written map[string]string
	var at time.Time
	for ctx.Err() == nil {
		texts, changed, err := c.texts()
		next := publishAgain - time.Since(at)
		if len(texts) > 0 && (!maps.Equal(texts, written) || next <= 0) {
			unwritten := c.write(ctx, texts)
			written, at, next = texts, time.Now(), publishAgain
			if unwritten != nil {
				written, err = nil, errors.Join(err, unwritten)
			}
		}
		if err != nil {
			c.Log.Warn("cannot publish the node's GPUs", "node", c.Node, "error", err)
			next, pause = pause, min(2*pause, lastPause)
		} else {
			pause = firstPause
		}
		select {
		case <-ctx.Done():
		case <-changed[0]:
		case <-changed[1]:
		case <-time.After(next):
		}
		select {
		case <-ctx.Done():
		case <-time.After(publishMost - time.Since(at)):
		}
	}
}

// texts are the annotations that can be written, and channels of which one is closed when they may be others. One that cannot keeps
// nobody from the other: a GPU's fault is told of whatever is held.
func (c Config) texts() (texts map[string]string, changed [2]<-chan struct{}, err error) {
	texts = map[string]string{}
	add := func(name, text string, unwritable error) {
		if unwritable != nil {
			err = errors.Join(err, unwritable)
			return
		}
		texts[name] = text
	}
	gpus, others := c.GPUs()
	changed[0] = others
	text, unwritable := describe(gpus)
	add(v1alpha1.GPUsAnnotation, text, unwritable)
	if c.Held != nil {
		var held v1alpha1.NodeHeld
		held, changed[1] = c.Held()
		text, unwritable = held.Text()
		add(v1alpha1.HeldAnnotation, text, unwritable)
	}
	return texts, changed, err
}

// describe renders the GPUs in the order of their indexes. It is pure.
func describe(gpus []v1alpha1.NodeGPU) (string, error) {
	gpus = slices.Clone(gpus)
	slices.SortFunc(gpus, func(a, b v1alpha1.NodeGPU) int {
		return cmp.Or(cmp.Compare(a.Index, b.Index), cmp.Compare(a.UUID, b.UUID))
	})
	return v1alpha1.NodeGPUs{GPUs: gpus}.Text()
}

func (c Config) write(ctx context.Context, texts map[string]string) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": texts}})
	if err != nil {
		return fmt.Errorf("describe the GPUs: %w", err)
	}
	if _, err := c.Nodes.Patch(ctx, c.Node, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: "divvy-agent"}); err != nil {
		return fmt.Errorf("annotate node %s: %w", c.Node, err)
	}
	return nil
}
