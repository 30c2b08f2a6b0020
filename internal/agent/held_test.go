package agent

import (
	"reflect"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// What tenants hold is told of pods of slots one by one, as the cluster asked for it, and of all others in sums.
func TestHeld(t *testing.T) {
	n := newNode(t)
	r := n.start()
	if held, _ := r.Held(); len(held.GPUs)+len(held.Shares) > 0 {
		t.Fatalf("nobody holds %+v", held)
	}
	_, changed := r.Held()
	slots := claimed(PodKey("6d9e", "main"), 4*gib, 30)
	slots.Shares = append(slots.Shares, TenancyShare{UUID: otherID, Memory: 5 * gib, Config: v1alpha1.ShareConfig{Class: v1alpha1.ClassOffline}})
	n.prepared(r, slots)
	select {
	case <-changed:
	default:
		t.Error("the change is not told")
	}
	n.prepared(r, claimed("a", 6*gib, 20))
	if _, err := r.create(t.Context(), n.asker(1000).peer, askOn("0", 7*gib)); err != nil {
		t.Fatal(err)
	}
	held, _ := r.Held()
	want := v1alpha1.NodeHeld{
		GPUs: []v1alpha1.GPUHeld{{UUID: firstID, Memory: 13 * gib, Cores: 20, Tenants: 2, Form: v1alpha1.BackendSlice}},
		Shares: []v1alpha1.ShareHeld{{Pod: "6d9e", Name: "main", Offline: true, GPUs: []v1alpha1.GPUAssigned{
			{UUID: firstID, Memory: 4 * gib, Cores: 30}, {UUID: otherID, Memory: 5 * gib},
		}}},
	}
	if !reflect.DeepEqual(held, want) {
		t.Errorf("%+v\nwant %+v", held, want)
	}
	if text, err := held.Text(); err != nil || !strings.Contains(text, "6d9e") {
		t.Errorf("%s, %v", text, err)
	}
	r.stopAgent()
	r = n.start()
	if again, _ := r.Held(); !reflect.DeepEqual(again, want) {
		t.Errorf("after a restart %+v", again)
	}
	if err := r.Release(t.Context(), slots.Key); err != nil {
		t.Fatal(err)
	}
	if held, _ := r.Held(); len(held.Shares) > 0 || len(held.GPUs) != 1 {
		t.Errorf("after the pod %+v", held)
	}
}

// A whole GPU is held with everything that it has, a pod's and another's.
func TestHeldWholes(t *testing.T) {
	n := newNode(t)
	r := n.start()
	n.prepared(r, wholeGPU(PodKey("6d9e", "all"), firstID))
	n.prepared(r, wholeGPU("a", otherID))
	held, _ := r.Held()
	capacity := n.list(r).GPUs[0].Capacity
	want := v1alpha1.NodeHeld{
		GPUs:   []v1alpha1.GPUHeld{{UUID: otherID, Memory: n.list(r).GPUs[1].Capacity, Cores: 100, Tenants: 1, Form: v1alpha1.BackendSlice}},
		Shares: []v1alpha1.ShareHeld{{Pod: "6d9e", Name: "all", Whole: true, GPUs: []v1alpha1.GPUAssigned{{UUID: firstID, Memory: capacity, Cores: 100}}}},
	}
	if !reflect.DeepEqual(held, want) {
		t.Errorf("%+v\nwant %+v", held, want)
	}
}
