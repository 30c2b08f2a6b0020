package kube

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent"
	"github.com/divvy-gpu/divvy/internal/agent/agenttest"
	"github.com/divvy-gpu/divvy/internal/agent/daemon"
	"github.com/divvy-gpu/divvy/internal/agent/dra/pool"
	"github.com/divvy-gpu/divvy/internal/agent/health"
	"github.com/divvy-gpu/divvy/internal/agentconfig"
	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/nvml"
)

// labelled is a node whose labels the test hands out one by one; nil labels are an API server that is away.
type labelled chan map[string]string

func (l labelled) Get(ctx context.Context, name string, _ metav1.GetOptions) (*corev1.Node, error) {
	select {
	case labels := <-l:
		if labels == nil {
			return nil, errors.New("connection refused")
		}
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func TestDefaultsFollowLabels(t *testing.T) {
	labels := make(labelled)
	d := newDefaults(v1alpha1.NodeDefaults{Cores: 5}, labels, "n1", slog.New(slog.DiscardHandler))
	d.again, d.retry = time.Nanosecond, time.Nanosecond
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- d.run(ctx) }()
	if _, _, err := d.get(); !errors.Is(err, errUnlabelled) {
		t.Errorf("at first: %v", err)
	}
	fixed := map[string]string{v1alpha1.DefaultPolicyLabel: "fixed", v1alpha1.DefaultCoresLabel: "10"}
	for _, step := range []struct {
		labels  map[string]string
		want    v1alpha1.NodeDefaults
		changes bool
		fault   string
	}{
		{nil, v1alpha1.NodeDefaults{}, false, errUnlabelled.Error()},
		{map[string]string{"other": "label"}, v1alpha1.NodeDefaults{Cores: 5}, true, ""},
		{fixed, v1alpha1.NodeDefaults{Policy: "fixed", Cores: 10}, true, ""},
		{fixed, v1alpha1.NodeDefaults{Policy: "fixed", Cores: 10}, false, ""},
		{nil, v1alpha1.NodeDefaults{Policy: "fixed", Cores: 10}, false, ""},
		{map[string]string{v1alpha1.DefaultPolicyLabel: "burst"}, v1alpha1.NodeDefaults{}, true, "give default cores too"},
		{map[string]string{}, v1alpha1.NodeDefaults{Cores: 5}, true, ""},
	} {
		_, changed, _ := d.get()
		labels <- step.labels
		if step.changes {
			<-changed
		} else {
			labels <- step.labels // it has looked at the first once it asks again
		}
		now, still, err := d.get()
		if now != step.want || (err == nil) != (step.fault == "") || err != nil && !strings.Contains(err.Error(), step.fault) {
			t.Errorf("%v: %+v, %v", step.labels, now, err)
		}
		if !step.changes && still != changed {
			t.Errorf("%v: a change was told of", step.labels)
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestPoolByDefaults(t *testing.T) {
	const uuid = "GPU-00000000-0000-4000-8000-000000000001"
	o := &publisher{Node: daemon.Node{Agent: new(agent.Agent), Health: &health.Monitor{}, Library: &nvml.Library{}}, gpus: []backend.GPU{{UUID: uuid, Total: 16 << 30}}}
	o.forms = newForms("n1", nil, nil, slog.New(slog.DiscardHandler))
	d := newDefaults(v1alpha1.NodeDefaults{}, nil, "n1", slog.New(slog.DiscardHandler))
	resources, changed, err := o.claims(t.Context(), "n1", d)
	if err != nil || resources.Pools != nil {
		t.Fatalf("before labels are known: %+v, %v", resources, err)
	}
	d.set(v1alpha1.NodeDefaults{Policy: "fixed", Cores: 5}, nil)
	<-changed
	resources, changed, err = o.claims(t.Context(), "n1", d)
	if err != nil || resources.Pools != nil {
		t.Fatalf("before it is known what an earlier agent published: %+v, %v", resources, err)
	}
	o.forms.set(map[string]published{uuid: {form: pool.Shared}})
	<-changed
	for _, step := range []struct {
		fault  error
		taints int
	}{{nil, 0}, {errors.New("bad"), 1}} {
		d.set(v1alpha1.NodeDefaults{Cores: 5}, step.fault)
		resources, _, err = o.claims(t.Context(), "n1", d)
		if err != nil {
			t.Fatal(err)
		}
		for _, slice := range resources.Pools["n1"].Slices {
			for _, device := range slice.Devices {
				cores := device.Capacity[v1alpha1.CapacityCores].RequestPolicy.Default
				if cores.Value() != 5 || len(device.Taints) != step.taints {
					t.Errorf("%v: %s cores by default, taints %v", step.fault, cores, device.Taints)
				}
			}
		}
	}
}

// What the configuration has of the host is published with all GPUs whose memory can leave them. One that cannot swap keeps nothing for turns.
func TestPoolOfANodeThatSwaps(t *testing.T) {
	const uuid = "GPU-00000000-0000-4000-8000-000000000001"
	rules, err := agentconfig.Parse("agent.yaml", []byte("apiVersion: divvy.dev/v1alpha1\nkind: AgentConfig\nturnMemory: 25%\n"), nil)
	if err != nil {
		t.Fatal(err)
	}
	for capability, want := range map[string]string{"6.0": "12Gi 64Gi 4Gi", "5.2": "16Gi 64Gi 0"} {
		o := &publisher{
			Node: daemon.Node{Agent: new(agent.Agent), Health: &health.Monitor{}, Library: &nvml.Library{}, Rules: rules, SwapMemory: 64 << 30},
			gpus: []backend.GPU{{UUID: uuid, Total: 16 << 30}}, kinds: map[string]kind{uuid: {capability: capability}},
		}
		o.forms = newForms("n1", nil, nil, slog.New(slog.DiscardHandler))
		o.forms.set(map[string]published{uuid: {form: pool.Shared}})
		d := newDefaults(v1alpha1.NodeDefaults{}, nil, "n1", slog.New(slog.DiscardHandler))
		d.set(v1alpha1.NodeDefaults{}, nil)
		resources, _, err := o.claims(t.Context(), "n1", d)
		if err != nil {
			t.Fatal(err)
		}
		device := resources.Pools["n1"].Slices[0].Devices[0]
		memory, swap, most := device.Capacity[v1alpha1.CapacityMemory].Value, device.Capacity[v1alpha1.CapacitySwapMemory], "0"
		if swap.RequestPolicy != nil {
			most = swap.RequestPolicy.ValidRange.Max.String()
		}
		if got := memory.String() + " " + swap.Value.String() + " " + most; got != want {
			t.Errorf("capability %s: memory, swapMemory and the most of it are %s, want %s", capability, got, want)
		}
	}
}

// oneGPU is a backend that has one GPU and nothing else.
type oneGPU struct{ backend.Backend }

func (oneGPU) Discover(context.Context) ([]backend.GPU, error) {
	return []backend.GPU{{UUID: "GPU-00000000-0000-4000-8000-000000000001", Total: 16 << 30}}, nil
}

func (oneGPU) Recover(context.Context) ([]backend.Found, error) { return nil, nil }

// Whether a GPU swaps is published anew once the driver has told of it.
func TestPoolWhenTheDriverTells(t *testing.T) {
	why, learned := "its driver is being asked", make(chan struct{})
	a, err := agent.New(t.Context(), agent.Config{
		Backends: agenttest.Backends(oneGPU{}), Checkpoint: filepath.Join(t.TempDir(), "tenants.json"), Log: slog.New(slog.DiscardHandler), Now: time.Now,
		Unswappable: func(backend.GPU) (string, <-chan struct{}) {
			if why == "" {
				return "", nil
			}
			return why, learned
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	rules, err := agentconfig.Parse("agent.yaml", []byte("apiVersion: divvy.dev/v1alpha1\nkind: AgentConfig\nturnMemory: 25%\n"), nil)
	if err != nil {
		t.Fatal(err)
	}
	uuid := a.GPUs()[0].UUID
	o := &publisher{
		Node: daemon.Node{Agent: a, Health: &health.Monitor{}, Library: &nvml.Library{}, Rules: rules, SwapMemory: 64 << 30},
		gpus: a.GPUs(), kinds: map[string]kind{uuid: {capability: "9.0"}},
	}
	o.forms = newForms("n1", nil, nil, slog.New(slog.DiscardHandler))
	o.forms.set(map[string]published{uuid: {form: pool.Shared}})
	d := newDefaults(v1alpha1.NodeDefaults{}, nil, "n1", slog.New(slog.DiscardHandler))
	d.set(v1alpha1.NodeDefaults{}, nil)
	memory := func() (string, <-chan struct{}) {
		resources, changed, err := o.claims(t.Context(), "n1", d)
		if err != nil {
			t.Fatal(err)
		}
		size := resources.Pools["n1"].Slices[0].Devices[0].Capacity[v1alpha1.CapacityMemory].Value
		return size.String(), changed
	}
	before, changed := memory()
	why = ""
	close(learned)
	<-changed
	if after, _ := memory(); before != "16Gi" || after != "12Gi" {
		t.Errorf("%s of its memory are outside turns before, and %s after", before, after)
	}
}

func TestSlotsHaveNoDefaults(t *testing.T) {
	o := Options{Node: "n1", KubeletDir: "/k", Mode: ModeSlots, Defaults: v1alpha1.NodeDefaults{Cores: 5}}
	if err := o.Validate(); !errors.Is(err, errSlotDefaults) {
		t.Errorf("asked for: %v", err)
	}
	k, _ := nodeIn("35", 0)
	k.options.Defaults = o.Defaults
	if err := k.serveSlots(t.Context()); !errors.Is(err, errSlotDefaults) {
		t.Errorf("found: %v", err)
	}
}
