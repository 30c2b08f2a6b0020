package nodelabels

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"maps"
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

func TestLabels(t *testing.T) {
	a100 := GPU{Model: "NVIDIA A100-SXM4-80GB", Memory: 80<<30 - 600<<20}
	for name, test := range map[string]struct {
		gpus []GPU
		want map[string]string
	}{
		"none":          {nil, map[string]string{v1alpha1.CountLabel: "0"}},
		"one":           {[]GPU{a100}, map[string]string{v1alpha1.CountLabel: "1", v1alpha1.ModelLabel: "NVIDIA-A100-SXM4-80GB", v1alpha1.MemoryLabel: "81320"}},
		"eight":         {[]GPU{a100, a100}, map[string]string{v1alpha1.CountLabel: "2", v1alpha1.ModelLabel: "NVIDIA-A100-SXM4-80GB", v1alpha1.MemoryLabel: "81320"}},
		"several kinds": {[]GPU{a100, {Model: "Tesla T4", Memory: 15 << 30}}, map[string]string{v1alpha1.CountLabel: "2", v1alpha1.ModelLabel: "mixed", v1alpha1.MemoryLabel: "15360"}},
		"no name":       {[]GPU{{Model: " ()", Memory: 1 << 30}}, map[string]string{v1alpha1.CountLabel: "1", v1alpha1.MemoryLabel: "1024"}},
		"a long name": {
			[]GPU{{Model: strings.Repeat("é", 70) + "x" + strings.Repeat("y", 70), Memory: 1 << 20}},
			map[string]string{v1alpha1.CountLabel: "1", v1alpha1.MemoryLabel: "1"},
		},
	} {
		got := Labels(test.gpus)
		for key, value := range got {
			if faults := append(validation.IsQualifiedName(key), validation.IsValidLabelValue(value)...); len(faults) > 0 {
				t.Errorf("%s: %s=%s: %v", name, key, value, faults)
			}
		}
		if !maps.Equal(got, test.want) {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}

func FuzzLabelValue(f *testing.F) {
	f.Add("NVIDIA A100-SXM4-80GB")
	f.Fuzz(func(t *testing.T, text string) {
		if faults := validation.IsValidLabelValue(labelValue(text)); len(faults) > 0 {
			t.Errorf("%q: %q: %v", text, labelValue(text), faults)
		}
	})
}

// What was ours and is not any more goes away; what is others' stays.
func TestApply(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{"kubernetes.io/os": "linux", v1alpha1.NodeLabel: ""}}}
	nodes := fake.NewClientset(node).CoreV1().Nodes()
	theirs := maps.Clone(node.Labels)
	for _, gpus := range [][]GPU{{{Model: "Tesla T4", Memory: 15 << 30}}, {{Model: "A", Memory: 1 << 30}, {Model: "B", Memory: 2 << 30}}, nil} {
		ours := Labels(gpus)
		if err := Apply(t.Context(), nodes, "n1", ours); err != nil {
			t.Fatal(err)
		}
		got, err := nodes.Get(t.Context(), "n1", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		want := maps.Clone(theirs)
		maps.Copy(want, ours)
		if !maps.Equal(got.Labels, want) {
			t.Errorf("labels are %v, want %v", got.Labels, want)
		}
	}
}

// recorder is an API that tells a test what is applied, and fails as often as it is told.
type recorder struct {
	applied  chan map[string]string
	failures int
}

func (r *recorder) Apply(_ context.Context, node *corev1ac.NodeApplyConfiguration, options metav1.ApplyOptions) (*corev1.Node, error) {
	if options.FieldManager == DiscoveryManager && !options.Force && len(node.Labels) == 0 {
		return nil, nil
	}
	if options.FieldManager != Manager || !options.Force {
		return nil, errors.New("not applied as ours")
	}
	if r.failures > 0 {
		r.failures--
		return nil, errors.New("the API server is away")
	}
	r.applied <- node.Labels
	return nil, nil
}

func TestKeeper(t *testing.T) {
	api := &recorder{applied: make(chan map[string]string), failures: 2}
	failed := 0
	changed := make(chan struct{})
	gpus := []GPU{{Model: "Tesla T4", Memory: 1 << 30}}
	turns := make(chan struct{}, 1) // guards gpus and changed
	turns <- struct{}{}
	keeper := Keeper{
		Nodes: api, Node: "n1", Log: slog.New(slog.NewTextHandler(io.Discard, nil)), Again: time.Hour, Retry: time.Microsecond,
		Failed: func(error) { failed++ },
		GPUs: func() ([]GPU, <-chan struct{}) {
			<-turns
			defer func() { turns <- struct{}{} }()
			return gpus, changed
		},
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { keeper.Run(ctx); close(ended) }()
	if got := <-api.applied; got[v1alpha1.CountLabel] != "1" || failed != 2 {
		t.Errorf("at first: %v after %d failures", got, failed)
	}
	<-turns
	gpus = append(gpus, gpus[0])
	close(changed)
	changed = make(chan struct{})
	turns <- struct{}{}
	if got := <-api.applied; got[v1alpha1.CountLabel] != "2" {
		t.Errorf("after a change: %v", got)
	}
	cancel()
	<-ended
}

// Somebody may take the labels away.
func TestKeeperComesAgain(t *testing.T) {
	api := &recorder{applied: make(chan map[string]string)}
	keeper := Keeper{
		Nodes: api, Node: "n1", Log: slog.New(slog.NewTextHandler(io.Discard, nil)), Again: time.Microsecond,
		GPUs: func() ([]GPU, <-chan struct{}) { return nil, nil },
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { keeper.Run(ctx); close(ended) }()
	<-api.applied
	<-api.applied
	cancel()
	for {
		select {
		case <-api.applied:
		case <-ended:
			return
		}
	}
}
