package binder

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

const gib = 1 << 30

// nodeOf is a ready node with these GPUs.
func nodeOf(t *testing.T, name string, slots int64, gpus ...v1alpha1.NodeGPU) *corev1.Node {
	t.Helper()
	text, err := v1alpha1.NodeGPUs{GPUs: gpus}.Text()
	if err != nil {
		t.Fatal(err)
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{v1alpha1.GPUsAnnotation: text}},
		Status: corev1.NodeStatus{
			Conditions:  []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
			Allocatable: corev1.ResourceList{v1alpha1.SlotResource: *resource.NewQuantity(slots, resource.DecimalSI)},
		},
	}
}

func gpu(uuid string, gibs uint64, numa int) v1alpha1.NodeGPU {
	return v1alpha1.NodeGPU{UUID: "GPU-" + uuid, Model: "Model " + uuid, Memory: gibs * gib, ContextBytes: 512 << 20, NUMANode: numa}
}

var weighted = &v1alpha1.ShareConfig{Policy: "weighted", Weight: 1, Class: "online", Backend: "slice"}

// ask is a share for a container of its own name.
func ask(name string, memory uint64, change func(*v1alpha1.ShareRequired)) v1alpha1.ShareRequired {
	s := v1alpha1.ShareRequired{Name: name, Containers: []string{name}, GPUs: 1, Memory: memory * gib, Config: weighted}
	if change != nil {
		change(&s)
	}
	return s
}

func whole(s *v1alpha1.ShareRequired) { s.Memory, s.Whole, s.Config = 0, true, nil }

// describe says which GPUs shares got.
func describe(node string, a v1alpha1.PodAssignment) string {
	words := []string{node}
	for _, s := range a.Shares {
		for _, g := range s.GPUs {
			words = append(words, fmt.Sprintf("%s=%s:%d/%d", s.Name, strings.TrimPrefix(g.UUID, "GPU-"), g.Memory/gib, g.Cores))
		}
	}
	return strings.Join(words, " ")
}

func TestPlace(t *testing.T) {
	small, large := gpu("aaaa", 16, 0), gpu("bbbb", 40, 1)
	ill := gpu("cccc", 80, 0)
	ill.Fault = "it fell off the bus"
	nodes := []*corev1.Node{nodeOf(t, "n1", 64, small), nodeOf(t, "n2", 128, gpu("dddd", 16, 0), gpu("eeee", 16, 1), large), nodeOf(t, "n3", 64, ill)}
	held := placement{node: "n1", assignment: v1alpha1.PodAssignment{Shares: []v1alpha1.ShareAssigned{
		{Name: "x", Containers: []string{"x"}, Config: weighted, GPUs: []v1alpha1.GPUAssigned{{UUID: "GPU-aaaa", Memory: 12 * gib}}},
	}}}
	for name, test := range map[string]struct {
		shares []v1alpha1.ShareRequired
		want   string
	}{
		"fullest node first":   {[]v1alpha1.ShareRequired{ask("a", 4, nil)}, "n1 a=aaaa:4/0"},
		"where there is room":  {[]v1alpha1.ShareRequired{ask("a", 5, nil)}, "n2 a=bbbb:5/0"},
		"two shares, one node": {[]v1alpha1.ShareRequired{ask("a", 4, nil), ask("b", 12, nil)}, "n2 a=bbbb:4/0 b=bbbb:12/0"},
		"whole":                {[]v1alpha1.ShareRequired{ask("a", 0, whole)}, "n2 a=bbbb:40/0"},
		"whole beside a share": {[]v1alpha1.ShareRequired{ask("a", 1, nil), ask("b", 0, whole), ask("c", 0, whole), ask("d", 0, whole)}, "no share fits"},
		"two GPUs":             {[]v1alpha1.ShareRequired{ask("a", 4, func(s *v1alpha1.ShareRequired) { s.GPUs = 2 })}, "n2 a=bbbb:4/0 a=eeee:4/0"},
		"cores": {[]v1alpha1.ShareRequired{ask("a", 1, func(s *v1alpha1.ShareRequired) {
			s.Cores, s.Config = 60, &v1alpha1.ShareConfig{Policy: "fixed", Weight: 1, Class: "online", Backend: "slice"}
		}), ask("b", 1, func(s *v1alpha1.ShareRequired) {
			s.Cores, s.Config = 60, &v1alpha1.ShareConfig{Policy: "fixed", Weight: 1, Class: "online", Backend: "slice"}
		})}, "n2 a=bbbb:1/60 b=eeee:1/60"},
		"a part of each size": {[]v1alpha1.ShareRequired{ask("a", 0, func(s *v1alpha1.ShareRequired) { s.Part = &v1alpha1.Part{Of: 1, In: 2} })}, "n2 a=eeee:8/0"},
		"a selector": {[]v1alpha1.ShareRequired{ask("a", 1, func(s *v1alpha1.ShareRequired) {
			s.Selectors = []string{`("NVIDIA-" + device.attributes["divvy.dev"].model).lowerAscii().contains("model bbbb")`}
		})}, "n2 a=bbbb:1/0"},
		"a selector of none": {[]v1alpha1.ShareRequired{ask("a", 1, func(s *v1alpha1.ShareRequired) {
			s.Selectors = []string{`device.attributes["divvy.dev"].uuid == "GPU-ffff"`}
		})}, "no share fits"},
		"one NUMA node": {[]v1alpha1.ShareRequired{ask("a", 1, func(s *v1alpha1.ShareRequired) { s.GPUs, s.SameNUMA = 2, true })}, "n2 a=bbbb:1/0 a=eeee:1/0"},
		"more than any": {[]v1alpha1.ShareRequired{ask("a", 41, nil)}, "no share fits"},
	} {
		t.Run(name, func(t *testing.T) {
			request := v1alpha1.PodRequest{Shares: test.shares}
			node, assignment, err := place(t.Context(), machines(nodes, []placement{held}), "uid", request)
			if err != nil {
				if !errors.Is(err, errNoNode) || strings.Contains(err.Error(), "\n") || test.want != errNoNode.Error() {
					t.Error(err)
				}
				return
			}
			if got := describe(node, assignment); got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
			if err := assignment.Answers("uid", &request); err != nil {
				t.Error(err)
			}
			if _, err := assignment.Text(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestMachinesThatTakeNone(t *testing.T) {
	good := nodeOf(t, "good", 1, gpu("aaaa", 16, 0))
	cordoned, away, silent, garbled := good.DeepCopy(), good.DeepCopy(), good.DeepCopy(), good.DeepCopy()
	cordoned.Spec.Unschedulable = true
	away.Status.Conditions = nil
	silent.Annotations = nil
	garbled.Annotations[v1alpha1.GPUsAnnotation] = "{}"
	if got := machines([]*corev1.Node{cordoned, away, silent, garbled, good}, nil); len(got) != 1 {
		t.Errorf("%d machines", len(got))
	}
	two := v1alpha1.PodRequest{Shares: []v1alpha1.ShareRequired{ask("a", 1, nil), ask("b", 1, nil)}}
	if _, _, err := place(t.Context(), machines([]*corev1.Node{good}, nil), "uid", two); err == nil || !strings.Contains(err.Error(), "slots") {
		t.Errorf("two containers with one slot: %v", err)
	}
}
