package main

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/install/installtest"
	"github.com/divvy-gpu/divvy/test/bench/plane"
)

const checkout = "../../.."

// No GPU of the fleet is two nodes', and all of one node are linked.
func TestInventory(t *testing.T) {
	machine, err := readInventory(checkout)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for i := range 3 {
		gpus := machine.of(i)
		if len(gpus) != 8 {
			t.Fatalf("a node has %d GPUs", len(gpus))
		}
		for _, gpu := range gpus {
			if seen[gpu.UUID] || gpu.Location.Clique != gpus[0].UUID || gpu.Memory < 64<<30 {
				t.Errorf("node %d has %+v at %+v", i, gpu, gpu.Location)
			}
			seen[gpu.UUID] = true
		}
		published, err := machine.slicesOf(i)
		if err != nil || len(published) == 0 || *published[0].Spec.NodeName != nodeName(i) || published[0].Spec.Pool.ResourceSliceCount != int64(len(published)) {
			t.Errorf("node %d publishes %d slices: %v", i, len(published), err)
		}
	}
}

func TestEach(t *testing.T) {
	done := make([]bool, 100)
	if err := each(t.Context(), len(done), func(_ context.Context, i int) error { done[i] = true; return nil }); err != nil || slices.Contains(done, false) {
		t.Errorf("done: %v, %v", done, err)
	}
	fault := errors.New("fault")
	if err := each(t.Context(), 1000, func(_ context.Context, i int) error {
		if i == 3 {
			return fault
		}
		return nil
	}); !errors.Is(err, fault) {
		t.Errorf("got %v", err)
	}
}

// The scheduler that comes with Kubernetes fills twenty nodes of eight GPUs with what fits, and nothing more: halves,
// whole GPUs beside them, and smaller shares in what the halves left.
func TestStockSchedulerFillsGPUs(t *testing.T) {
	if _, err := plane.Components(checkout); err != nil {
		installtest.Missing(t, "kubernetes", err)
	}
	const nodes, gpus, halves, wholes, smalls = 20, 160, 100, 70, 110
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	b, err := open(ctx, options{root: checkout}, nodes)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Stop(); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(b.Dir()); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the control plane left %s", b.Dir())
		}
	})
	if err := b.publish(ctx); err != nil {
		t.Fatal(err)
	}
	limits := func(memory string) map[corev1.ResourceName]string {
		l := map[corev1.ResourceName]string{v1alpha1.ResourceGPU: "1"}
		if memory != "" {
			l[v1alpha1.ResourceMemory] = memory
		}
		return l
	}
	for _, step := range []struct {
		name, memory string
		pods, fit    int
	}{
		{"half", "50Gi", halves, halves},
		{"whole", "", wholes, gpus - halves},
		{"small", "20Gi", smalls, halves},
	} {
		asking, err := divvyPods(step.name, limits(step.memory))
		if err != nil {
			t.Fatal(err)
		}
		o, err := b.round(ctx, step.pods, 4*time.Minute, func(bound, waiting int) bool {
			return bound == step.fit && waiting == step.pods-step.fit || bound > step.fit
		}, asking)
		if err != nil {
			t.Fatal(err)
		}
		if o.bound != step.fit || o.waiting != step.pods-step.fit {
			t.Errorf("%s: %d pods are bound, %d wait, %d are neither; want %d and %d", step.name, o.bound, o.waiting, o.rest, step.fit, step.pods-step.fit)
		}
		if err := b.check(ctx); err != nil {
			t.Error(err)
		}
	}
	if err := b.clear(ctx); err != nil {
		t.Error(err)
	}
}
