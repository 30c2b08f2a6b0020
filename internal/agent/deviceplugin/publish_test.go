package deviceplugin

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

func TestPublishedGPUs(t *testing.T) {
	n := newNode(gpu("GPU-bbbb", 1), gpu("GPU-aaaa", 0))
	n.refuse = 1
	startPlugin(t, t.TempDir(), n)
	got, err := v1alpha1.ParseNodeGPUs(next(t, n.patches))
	if err != nil || len(got.GPUs) != 2 || got.GPUs[0].UUID != "GPU-aaaa" {
		t.Fatalf("%+v, %v", got, err)
	}
	ill := gpu("GPU-aaaa", 0)
	ill.Fault = "it fell off the bus"
	n.set(0, func() { n.gpus = []v1alpha1.NodeGPU{ill} })
	if text := next(t, n.patches); !strings.Contains(text, "fell off") || strings.Contains(text, "bbbb") {
		t.Error(text)
	}
}

// A node that was deleted comes back without what was written on it.
func TestGPUsArePublishedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(gpu("GPU-aaaa", 0))
		n.refuse = 3
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		Config{GPUs: n.GPUs, Nodes: n, Node: "n1", Log: slog.New(slog.DiscardHandler)}.publish(ctx)
		if len(n.patches) != 6 || n.refuse > 0 {
			t.Errorf("published %d times in an hour, of which 3 were refused", len(n.patches))
		}
	})
}

func (n *node) Held() (v1alpha1.NodeHeld, <-chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.held, n.changed[0]
}

// What is held is told with the GPUs, when it changes, and of many changes at once no more than once a second.
func TestHeldIsPublished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(gpu("GPU-aaaa", 0))
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			Config{GPUs: n.GPUs, Held: n.Held, Nodes: n, Node: "n1", Log: slog.New(slog.DiscardHandler)}.publish(ctx)
		}()
		defer func() { cancel(); <-ended }()
		synctest.Wait()
		hold := func(shares int) {
			n.set(0, func() {
				n.held.Shares = nil
				for i := range shares {
					n.held.Shares = append(n.held.Shares, v1alpha1.ShareHeld{Pod: fmt.Sprint("pod", i), Name: "main", GPUs: []v1alpha1.GPUAssigned{{UUID: "GPU-aaaa", Memory: 1}}})
				}
			})
		}
		told := func() (writes, shares int) {
			synctest.Wait()
			n.mu.Lock()
			defer n.mu.Unlock()
			held, err := v1alpha1.ParseNodeHeld(n.notes[len(n.notes)-1][v1alpha1.HeldAnnotation])
			if err != nil {
				t.Fatal(err)
			}
			return len(n.notes), len(held.Shares)
		}
		if writes, shares := told(); writes != 1 || shares != 0 {
			t.Fatalf("%d writes, %d shares at first", writes, shares)
		}
		for i := range 40 {
			hold(i + 1)
			time.Sleep(50 * time.Millisecond)
		}
		time.Sleep(publishMost)
		if writes, shares := told(); writes > 4 || shares != 40 {
			t.Errorf("%d writes of 40 changes in two seconds, and %d shares at the end", writes, shares)
		}
		before, _ := told()
		n.set(0, func() {}) // nothing that is published
		time.Sleep(5 * publishMost)
		if writes, _ := told(); writes != before {
			t.Errorf("the same was written %d times", writes-before)
		}
		n.mu.Lock()
		n.refuse = 1
		n.mu.Unlock()
		hold(3)
		time.Sleep(2 * publishMost)
		if _, shares := told(); shares != 3 {
			t.Errorf("%d shares after a refusal", shares)
		}
	})
}

// What cannot be told of what is held keeps nobody from the GPUs: one that has failed is told of, and once.
func TestGPUsArePublishedWithoutHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(gpu("GPU-aaaa", 0))
		n.held.Shares = []v1alpha1.ShareHeld{{Pod: "pod", Name: "main"}} // of no GPU
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		Config{GPUs: n.GPUs, Held: n.Held, Nodes: n, Node: "n1", Log: slog.New(slog.DiscardHandler)}.publish(ctx)
		if len(n.notes) != 1 || n.notes[0][v1alpha1.GPUsAnnotation] == "" {
			t.Fatalf("written: %q", n.notes)
		}
		if _, told := n.notes[0][v1alpha1.HeldAnnotation]; told {
			t.Error("what is held was told of")
		}
	})
}
