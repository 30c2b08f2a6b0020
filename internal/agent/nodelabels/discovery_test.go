package nodelabels

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

var a100 = DiscoveredGPU{Model: "NVIDIA A100-SXM4-80GB", Memory: 81920 << 20, Capability: "8.0", MIGCapable: true, Class: 0x030200}

// What GPU feature discovery v0.20.0 writes on a node with two such GPUs, by its source, internal/lm.
func TestDiscovery(t *testing.T) {
	got := Discovery(Machine{Driver: "550.90.07", CUDA: 12040, Product: "PowerEdge R750 (A)", GPUs: []DiscoveredGPU{a100, a100}})
	want := map[string]string{
		"nvidia.com/cuda.driver.major": "550", "nvidia.com/cuda.driver.minor": "90", "nvidia.com/cuda.driver.rev": "07",
		"nvidia.com/cuda.driver-version.major": "550", "nvidia.com/cuda.driver-version.minor": "90",
		"nvidia.com/cuda.driver-version.revision": "07", "nvidia.com/cuda.driver-version.full": "550.90.07",
		"nvidia.com/cuda.runtime.major": "12", "nvidia.com/cuda.runtime.minor": "4",
		"nvidia.com/cuda.runtime-version.major": "12", "nvidia.com/cuda.runtime-version.minor": "4", "nvidia.com/cuda.runtime-version.full": "12.4",
		"nvidia.com/gpu.machine": "PowerEdge-R750-A", "nvidia.com/mig.capable": "true", "nvidia.com/mps.capable": "false",
		"nvidia.com/gpu.mode": "compute", "nvidia.com/vgpu.present": "false",
		"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB", "nvidia.com/gpu.count": "2", "nvidia.com/gpu.replicas": "1",
		"nvidia.com/gpu.sharing-strategy": "none", "nvidia.com/gpu.memory": "81920", "nvidia.com/gpu.family": "ampere",
		"nvidia.com/gpu.compute.major": "8", "nvidia.com/gpu.compute.minor": "0",
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if got[name] != want[name] {
			t.Errorf("%s is %q, not %q", name, got[name], want[name])
		}
		delete(got, name)
	}
	if len(got) > 0 {
		t.Errorf("beside these there are %v", got)
	}
	if none := Discovery(Machine{Driver: "550.90.07", CUDA: 12040}); len(none) > 0 {
		t.Errorf("a node without GPUs has %v", none)
	}
}

func TestDiscoveryOfSharing(t *testing.T) {
	as := func(change func(*DiscoveredGPU)) DiscoveredGPU {
		g := a100
		change(&g)
		return g
	}
	shared := func(b v1alpha1.Backend, replicas int, renamed bool) DiscoveredGPU {
		return as(func(g *DiscoveredGPU) { g.Divided = Divided{replicas, b, renamed} })
	}
	for name, test := range map[string]struct {
		gpus []DiscoveredGPU
		want string // product, replicas, strategy, mps.capable, count
	}{
		"time slicing":     {[]DiscoveredGPU{shared("timeslice", 4, false)}, "NVIDIA-A100-SXM4-80GB-SHARED 4 time-slicing false 1"},
		"renamed":          {[]DiscoveredGPU{shared("timeslice", 4, true)}, "NVIDIA-A100-SXM4-80GB 4 time-slicing false 1"},
		"mps":              {[]DiscoveredGPU{shared("mps", 2, false)}, "NVIDIA-A100-SXM4-80GB-SHARED 2 mps true 1"},
		"one replica":      {[]DiscoveredGPU{shared("mps", 1, false)}, "NVIDIA-A100-SXM4-80GB 1 none false 1"},
		"in MIG mode":      {[]DiscoveredGPU{as(func(g *DiscoveredGPU) { g.MIG = true })}, "NVIDIA-A100-SXM4-80GB 0 none false 1"},
		"MIG beside mps":   {[]DiscoveredGPU{as(func(g *DiscoveredGPU) { g.MIG = true }), shared("mps", 2, true)}, "NVIDIA-A100-SXM4-80GB 2 mps false 2"},
		"two models":       {[]DiscoveredGPU{a100, as(func(g *DiscoveredGPU) { g.Model = "Tesla T4" })}, "NVIDIA-A100-SXM4-80GB 1 none false 1"},
		"a very long name": {[]DiscoveredGPU{as(func(g *DiscoveredGPU) { g.Model, g.Replicas, g.Backend = strings.Repeat("x", 70), 2, "mps" })}, strings.Repeat("x", 56) + "-SHARED 2 mps true 1"},
	} {
		labels := Discovery(Machine{GPUs: test.gpus})
		var got []string
		for _, name := range []string{"gpu.product", "gpu.replicas", "gpu.sharing-strategy", "mps.capable", "gpu.count"} {
			got = append(got, labels["nvidia.com/"+name])
		}
		if text := strings.Join(got, " "); text != test.want {
			t.Errorf("%s: %s, not %s", name, text, test.want)
		}
	}
}

func TestFamilies(t *testing.T) {
	for capability, want := range map[string]string{
		"6.1": "pascal", "7.0": "volta", "7.5": "turing", "8.0": "ampere", "8.6": "ampere", "8.9": "ada-lovelace",
		"9.0": "hopper", "10.0": "blackwell", "12.0": "blackwell", "13.0": "rubin", "99.1": "undefined", "": "",
	} {
		labels := Discovery(Machine{GPUs: []DiscoveredGPU{{Model: "x", Capability: capability}}})
		if got := labels["nvidia.com/gpu.family"]; got != want {
			t.Errorf("%s is %q, not %q", capability, got, want)
		}
	}
}

func FuzzDiscovery(f *testing.F) {
	f.Add("NVIDIA A100-SXM4-80GB", "PowerEdge R750", "550.90.07", 3)
	f.Fuzz(func(t *testing.T, model, machine, driver string, replicas int) {
		for name, value := range Discovery(Machine{Driver: driver, Product: machine, GPUs: []DiscoveredGPU{{Model: model, Capability: "8.0", Divided: Divided{Replicas: replicas, Backend: "mps"}}}}) {
			if strings.Contains(name, "driver") {
				continue // what NVML says, which is no text of users
			}
			if faults := append(validation.IsQualifiedName(name), validation.IsValidLabelValue(value)...); len(faults) > 0 {
				t.Errorf("%s=%q: %v", name, value, faults)
			}
		}
	})
}

// Labels of another writer are neither replaced nor removed, and ours go when they are switched off.
func TestApplyDiscovery(t *testing.T) {
	const count, product = "nvidia.com/gpu.count", "nvidia.com/gpu.product"
	nodes := fake.NewClientset(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}).CoreV1().Nodes()
	apply := func(labels map[string]string) (others error) {
		t.Helper()
		others, err := ApplyDiscovery(t.Context(), nodes, "n1", labels)
		if err != nil {
			t.Fatal(err)
		}
		return others
	}
	has := func(want map[string]string) {
		t.Helper()
		got, err := nodes.Get(t.Context(), "n1", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if !maps.Equal(got.Labels, want) {
			t.Errorf("labels are %v, not %v", got.Labels, want)
		}
	}
	ours := map[string]string{count: "2", product: "A"}
	if others := apply(ours); others != nil {
		t.Errorf("nobody else wrote labels, and the answer is %v", others)
	}
	has(ours)
	apply(nil)
	has(nil)

	theirs := map[string]string{count: "8"}
	if _, err := nodes.Apply(t.Context(), corev1ac.Node("n1").WithLabels(theirs), metav1.ApplyOptions{FieldManager: "gpu-feature-discovery"}); err != nil {
		t.Fatal(err)
	}
	if others := apply(ours); others == nil || !strings.Contains(others.Error(), "gpu-feature-discovery") {
		t.Errorf("beside another writer the answer is %v", others)
	}
	has(theirs)
	apply(nil)
	has(theirs)
}

// A keeper writes these labels when it is told to, and another one takes them away.
func TestKeeperOfDiscovery(t *testing.T) {
	nodes := fake.NewClientset(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}).CoreV1().Nodes()
	machine := func() Machine { return Machine{GPUs: []DiscoveredGPU{a100}} }
	for _, told := range []func() Machine{machine, nil} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		looked := false
		k := Keeper{
			Nodes: nodes, Node: "n1", Machine: told, Log: slog.New(slog.DiscardHandler), Again: time.Millisecond,
			Failed: func(err error) { t.Error(err) },
			GPUs: func() ([]GPU, <-chan struct{}) {
				if looked {
					cancel() // the first round has written everything
				}
				looked = true
				return nil, nil
			},
		}
		k.Run(ctx)
		got, err := nodes.Get(t.Context(), "n1", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if product := got.Labels["nvidia.com/gpu.product"]; (product != "") != (told != nil) {
			t.Errorf("told %v, and the product is %q", told != nil, product)
		}
	}
}
