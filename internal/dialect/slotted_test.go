package dialect

import (
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"sigs.k8s.io/yaml"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// twoNodes has a node with a GPU of 16 GiB and one with a GPU of 40 GiB, of which nobody may be placed on a third.
const (
	smallNode = `{"version":1,"gpus":[{"uuid":"GPU-aaaa","index":0,"memory":17179869184,"numaNode":-1}]}`
	largeNode = `{"version":1,"gpus":[{"uuid":"GPU-bbbb","index":0,"memory":42949672960,"numaNode":-1},{"uuid":"GPU-cccc","index":1,"memory":85899345920,"numaNode":-1,"fault":"lost"}]}`
)

func sizesOfNodes(annotations ...string) *Sizes {
	return NewSizes(func(yield func(Published) bool) {
		for i, text := range annotations {
			if !yield(PublishedOfNode("n"+string(rune('1'+i)), text)) {
				return
			}
		}
	}, nil, nil)
}

func TestPublishedOfNode(t *testing.T) {
	large := PublishedOfNode("n2", largeNode)
	if len(large.Sizes) != 2 || len(large.Inventory.Sizes) != 1 || large.Inventory.Sizes[0] != 40<<30 || large.Pool != "n2" {
		t.Errorf("%+v", large)
	}
	for _, text := range []string{"", "{}", strings.Replace(largeNode, `"version":1`, `"version":9`, 1)} {
		if p := PublishedOfNode("n1", text); len(p.Sizes)+len(p.Inventory.Sizes) > 0 {
			t.Errorf("%q: %+v", text, p)
		}
	}
}

// TestSlotsCountAsClaims has a pod count the same in both modes while it waits.
func TestSlotsCountAsClaims(t *testing.T) {
	published := []resourcev1.ResourceSlice{sharedSlice(t, "n1", "16Gi"), sharedSlice(t, "n2", "40Gi")}
	healthy := strings.Replace(largeNode, `,{"uuid":"GPU-cccc","index":1,"memory":85899345920,"numaNode":-1,"fault":"lost"}`, "", 1)
	for _, limits := range []string{
		"divvy.dev/gpu: 2", "divvy.dev/gpu-memory: 4Gi", "divvy.dev/gpu-memory: 4Gi, divvy.dev/gpu-cores: 30", "divvy.dev/gpu-cores: 30",
		"divvy.dev/gpu: 3, divvy.dev/gpu-memory-percent: 50", "divvy.dev/gpu-memory-percent: 100", "divvy.dev/gpu-memory: 20Gi",
	} {
		claims := newTranslator(t, "{plain: {}}")
		inventory := Inventory{Sizes: []uint64{16 << 30, 40 << 30}}
		made, err := claims.Translate(limitsOf(t, limits), inventory)
		if err != nil {
			t.Fatal(err)
		}
		want := UseOf(&made.Templates[0].Spec.Spec, nil, SizesOf(published))
		pod := limitsOf(t, limits)
		patch, _, err := translate(slotted(claims), pod, inventory)
		if err != nil {
			t.Fatal(err)
		}
		if got, settled := CountedOfPod(apply(t, pod, patch)).Use(sizesOfNodes(smallNode, healthy)); got != want || settled {
			t.Errorf("%s counts %+v, and in claims %+v", limits, got, want)
		}
	}
}

// sharedSlice is a node's slice with one GPU.
func sharedSlice(t *testing.T, node, memory string) resourcev1.ResourceSlice {
	t.Helper()
	var slice resourcev1.ResourceSlice
	text := []byte(`{spec: {driver: divvy.dev, pool: {name: ` + node + `}, devices: [{name: gpu-shared, allowMultipleAllocations: true, capacity: {memory: {value: ` + memory + `}}}]}}`)
	if err := yaml.UnmarshalStrict(text, &slice); err != nil {
		t.Fatal(err)
	}
	return slice
}

// A pod counts what it was given once that is said, and nothing once it holds nothing.
func TestCountedOfPod(t *testing.T) {
	const request = `{"version":1,"shares":[{"name":"a","containers":["a"],"gpus":1,"part":{"of":1,"in":2},"config":{"policy":"weighted","weight":1,"class":"online","backend":"slice"}}]}`
	const assignment = `{"version":1,"pod":"u1","shares":[{"name":"a","containers":["a"],"gpus":[{"uuid":"GPU-aaaa","memory":8589934592}],"config":{"policy":"weighted","weight":1,"class":"online","backend":"slice"}}]}`
	sizes := sizesOfNodes(smallNode, largeNode)
	of := func(request, assignment string, change func(*corev1.Pod)) (Use, bool) {
		pod := readPod(t, `{metadata: {uid: u1, annotations: {}}, spec: {nodeName: n1, containers: [{name: a}]}}`)
		for name, text := range map[string]string{v1alpha1.RequestAnnotation: request, v1alpha1.AssignmentAnnotation: assignment} {
			if text != "" {
				pod.Annotations[name] = text
			}
		}
		if change != nil {
			change(pod)
		}
		return CountedOfPod(pod).Use(sizes)
	}
	waits, settled := of(request, "", nil)
	if waits.Memory != 40<<30 || waits.Part != million/2 || settled {
		t.Errorf("while it waits it counts %+v: half of the largest GPU that there is, a lost one of 80 GiB included", waits)
	}
	bound, settled := of(request, assignment, nil)
	if bound.Memory != 8<<30 || bound.Part != million/2 || bound.GPUs != 1 || !settled {
		t.Errorf("bound it counts %+v", bound)
	}
	for name, got := range map[string]func() (Use, bool){
		"forged for another pod": func() (Use, bool) { return of(request, strings.Replace(assignment, "u1", "u2", 1), nil) },
		"unreadable":             func() (Use, bool) { return of(request, "x", nil) },
	} {
		if use, settled := got(); use != waits || settled {
			t.Errorf("an assignment that is %s: %+v", name, use)
		}
	}
	for _, phase := range []corev1.PodPhase{corev1.PodSucceeded, corev1.PodFailed} {
		if use, _ := of(request, assignment, func(pod *corev1.Pod) { pod.Status.Phase = phase }); use != (Use{}) {
			t.Errorf("%s: %+v", phase, use)
		}
	}
	if use, _ := of("", assignment, nil); use != (Use{}) {
		t.Errorf("a pod that asks nothing: %+v", use)
	}
}

func TestCheckSlotted(t *testing.T) {
	config := "apiVersion: divvy.dev/v1alpha1\nkind: WebhookConfig\nmode: slots\nmaxWeight: 5\nownKernels: [kata]\ndialects: {plain: {}, hami: {}}"
	translator, err := NewTranslator([]byte(config))
	if err != nil {
		t.Fatal(err)
	}
	const request = `{"version":1,"shares":[{"name":"a","containers":["a"],"gpus":1,"memory":1048576,"config":{"policy":"weighted","weight":WEIGHT,"class":"online","backend":"slice"}}]}`
	for name, c := range map[string]struct{ containers, request, more, want string }{
		"as translated":           {"[{name: a, resources: {limits: {divvy.dev/shares: 1}}}, {name: b}]", request, "", ""},
		"nothing":                 {"[{name: a}]", "", "", ""},
		"a slot by hand":          {"[{name: a, resources: {limits: {divvy.dev/shares: 1}}}]", "", "", `container "a" asks for divvy.dev/shares, which Divvy counts itself`},
		"a request of two slots":  {"[{name: a, resources: {limits: {divvy.dev/shares: 2}}}]", request, "", `asks for 2 of divvy.dev/shares`},
		"a request without slots": {"[{name: a}]", request, "", `asks for 0 of divvy.dev/shares`},
		"another's slot":          {"[{name: a, resources: {limits: {divvy.dev/shares: 1}}}, {name: b, resources: {limits: {divvy.dev/shares: 1}}}]", request, "", `container "b" asks for 1`},
		"a container too few":     {"[{name: b}]", request, "", "names a container that the pod does not have"},
		"no request":              {"[{name: a}]", "{}", "", v1alpha1.RequestAnnotation},
		"more weight":             {"[{name: a, resources: {limits: {divvy.dev/shares: 1}}}]", strings.Replace(request, "WEIGHT", "6", 1), "", "weight 6 is more than the 5"},
		"a privilege":             {"[{name: a, resources: {limits: {divvy.dev/shares: 1}}}, {name: b, securityContext: {privileged: true}}]", request, "", `container "b" is privileged`},
		"a kernel of its own":     {"[{name: a, resources: {limits: {divvy.dev/shares: 1}}}]", request, ", runtimeClassName: kata", "kernel of their own"},
		"the default scheduler":   {"[{name: a, resources: {limits: {divvy.dev/shares: 1}}}]", request, ", schedulerName: default-scheduler", `scheduler "default-scheduler", which gives no GPUs here: name divvy-scheduler`},
		"another system's":        {"[{name: a, resources: {limits: {divvy.dev/shares: 1}}}]", request, ", schedulerName: hami-scheduler", "which gives no GPUs here"},
		"its own node":            {"[{name: a, resources: {limits: {divvy.dev/shares: 1}}}]", request, ", nodeName: n1", `names its node "n1"`},
		"another form":            {"[{name: a, resources: {limits: {divvy.dev/shares: 1}}}]", strings.Replace(request, "slice", "mps", 1), "", "backend mps needs a claim"},
		"a scheduler of its own":  {"[{name: a, resources: {limits: {divvy.dev/shares: 1}}}]", request, ", schedulerName: mine", ""},
	} {
		if !strings.Contains(c.more, "schedulerName") {
			c.more += ", schedulerName: divvy-scheduler"
		}
		pod := readPod(t, "{metadata: {annotations: {}}, spec: {containers: "+c.containers+c.more+"}}")
		if c.request != "" {
			pod.Annotations[v1alpha1.RequestAnnotation] = strings.Replace(c.request, "WEIGHT", "1", 1)
		}
		got, err := translator.CheckSlotted(pod, Inventory{})
		if (err == nil) != (c.want == "") || err != nil && (!errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil && (got != nil) != (c.request != "") {
			t.Errorf("%s asks %+v", name, got)
		}
	}
}

func TestCheckBinding(t *testing.T) {
	translator := slotted(newTranslator(t, "{plain: {}}"))
	for text, refused := range map[string]bool{
		"{spec: {containers: [{name: a}]}}":                                                                          false,
		"{spec: {containers: [{name: a, resources: {limits: {cpu: 1}}}]}}":                                           false,
		"{spec: {containers: [{name: a, resources: {limits: {divvy.dev/shares: 1}}}]}}":                              true,
		"{metadata: {annotations: {divvy.dev/request: x}}, spec: {containers: [{name: a}]}}":                         true,
		"{spec: {initContainers: [{name: a, resources: {limits: {divvy.dev/shares: 1}}}], containers: [{name: b}]}}": true,
	} {
		if err := translator.CheckBinding(readPod(t, text)); (err != nil) != refused || err != nil && !errors.Is(err, ErrRefused) {
			t.Errorf("%s: %v", text, err)
		}
	}
}
