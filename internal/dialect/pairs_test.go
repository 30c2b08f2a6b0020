package dialect

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// paired writes a pod with one container that asks for pairs.
func paired(t testing.TB, fallback string, limits ...string) *corev1.Pod {
	pod := limitsOf(t, limits...)
	if fallback != "" {
		pod.Annotations = map[string]string{v1alpha1.PairsFallbackAnnotation: fallback}
	}
	return pod
}

func TestPairs(t *testing.T) {
	translator := newTranslator(t, "{plain: {}}")
	checkExamples(t, translator, sixteenForty, []example{
		{"whole GPUs", paired(t, "", "divvy.dev/pairs: 2"), "main: 2 strict pairs of 1 gpu"},
		{"strict in words", paired(t, "strict", "divvy.dev/pairs: 1"), "main: 1 strict pairs of 1 gpu"},
		{"shares", paired(t, "", "divvy.dev/pairs: 3", "divvy.dev/gpu-memory: 4Gi", "divvy.dev/gpu-cores: 30"),
			"main: 3 strict pairs of 1 share memory=4Gi cores=30 fixed"},
		{"bridge", paired(t, "bridge", "divvy.dev/pairs: 4"), "main: 4 bridge pairs of 1 gpu"},
		{"socket", paired(t, "socket", "divvy.dev/pairs: 1", "divvy.dev/gpu-memory: 1Gi"), "main: 1 socket pairs of 1 share memory=1Gi weighted"},
		{"parts", paired(t, "", "divvy.dev/pairs: 2", "divvy.dev/gpu-memory-percent: 50"),
			`main: 2 strict pairs of 1 share memory=8Gi [device.capacity["divvy.dev"].memory.compareTo(quantity("17179869184")) == 0] or 1 share memory=20Gi [device.capacity["divvy.dev"].memory.compareTo(quantity("42949672960")) == 0] weighted`},
		{"no pairs", paired(t, "", "divvy.dev/pairs: 0"), ""},
		{"no pairs and a GPU", paired(t, "", "divvy.dev/pairs: 0", "divvy.dev/gpu: 1"), `container "main": divvy.dev/pairs is 0: leave it out, or give a number above 0`},
		{"GPUs as well", paired(t, "", "divvy.dev/pairs: 2", "divvy.dev/gpu: 2"), `container "main": divvy.dev/pairs and divvy.dev/gpu exclude each other: a pair has a GPU`},
		{"no GPUs as well", paired(t, "", "divvy.dev/pairs: 2", "divvy.dev/gpu: 0"), `container "main": divvy.dev/pairs and divvy.dev/gpu exclude each other: a pair has a GPU`},
		{"half a pair", paired(t, "", "divvy.dev/pairs: 500m"), `container "main": divvy.dev/pairs: 500m is not a whole number from 0 to what a GPU can have`},
		{"too many", paired(t, "", "divvy.dev/pairs: 9"),
			`container "main" asks for more pairs than the 8 that one claim has with annotation divvy.dev/pairs-fallback at strict: ask for fewer, or have Divvy's scheduler place the pod`},
		{"far too many", paired(t, "socket", "divvy.dev/pairs: 1000000"),
			`container "main" asks for more pairs than the 4 that one claim has with annotation divvy.dev/pairs-fallback at socket: ask for fewer, or have Divvy's scheduler place the pod`},
		{"an unknown word", paired(t, "switch", "divvy.dev/pairs: 1"), `annotation divvy.dev/pairs-fallback: "switch" is none of strict, bridge and socket`},
		{"two words", paired(t, "bridge,\nsocket", "divvy.dev/pairs: 1"), `annotation divvy.dev/pairs-fallback: "bridge,\nsocket" is none of strict, bridge and socket`},
		{"fallback of nothing", paired(t, "bridge", "divvy.dev/gpu: 1"), "annotation divvy.dev/pairs-fallback is for pods that ask for divvy.dev/pairs: leave it out"},
		{"parts that fall back", paired(t, "bridge", "divvy.dev/pairs: 1", "divvy.dev/gpu-memory-percent: 50"),
			`container "main" asks for a part of each GPU's memory and for pairs that fall back to bridge: ask for an amount of memory, or for strict pairs`},
	})
}

func TestPairsWithBackends(t *testing.T) {
	translator := newTranslator(t, "{plain: {}}")
	for backend, want := range map[string]string{
		"timeslice": "main: 1 strict pairs of 1 timeslice memory=1Gi",
		"mps":       "main: 1 strict pairs of 1 mps memory=1Gi",
		"two mps":   `container "main" asks for 2 GPUs with backend mps: ask for one, because each has a control daemon of its own and a process can be the client of one only`,
		"mig":       `container "main" asks for pairs with backend mig, and a MIG instance is none of a pair: use slice, or leave out the annotation`,
	} {
		pod := limitsOf(t, "divvy.dev/pairs: 1", "divvy.dev/gpu-memory: 1Gi")
		if one, two := strings.CutPrefix(backend, "two "); two {
			pod, backend = limitsOf(t, "divvy.dev/pairs: 2", "divvy.dev/gpu-memory: 1Gi"), one
		}
		pod.Annotations = map[string]string{v1alpha1.BackendAnnotation: backend}
		made, err := translator.Translate(pod, sixteen)
		got := strings.TrimPrefix(fmt.Sprint(err), ErrRefused.Error()+": ")
		if err == nil {
			got = describe(t, apply(t, pod, made.Patch), made.Templates)
		}
		if got != want {
			t.Errorf("%s: got  %s\nwant %s", backend, got, want)
		}
	}
}

// Where Divvy's scheduler places the pod, a claim has as many pairs as the API lets it have.
func TestPairsForDivvysScheduler(t *testing.T) {
	translator, err := NewTranslator([]byte("apiVersion: divvy.dev/v1alpha1\nkind: WebhookConfig\nscheduler: {users: [s]}\ndialects: {plain: {}}"))
	if err != nil {
		t.Fatal(err)
	}
	inventory := sixteen
	inventory.Name = func() string { return v1alpha1.ClaimName([10]byte{1}) }
	for _, reach := range v1alpha1.PairReaches() {
		most := v1alpha1.MostPairs(reach)
		made, err := translator.Translate(paired(t, string(reach), fmt.Sprint("divvy.dev/pairs: ", most), "divvy.dev/gpu-memory: 1Gi"), inventory)
		if err != nil {
			t.Errorf("%s: %v", reach, err)
		}
		for _, spec := range made.Described {
			if len(spec.Devices.Requests) > resourcev1.DeviceRequestsMaxSize || len(spec.Devices.Constraints) > resourcev1.DeviceConstraintsMaxSize {
				t.Errorf("%s: %d requests, %d constraints", reach, len(spec.Devices.Requests), len(spec.Devices.Constraints))
			}
			if pairs, ok := PairsOf(&spec); !ok || pairs.Count != most || pairs.Reach != reach || CheckTranslated(&spec) != nil {
				t.Errorf("%s: %+v, %v, %v", reach, pairs, ok, CheckTranslated(&spec))
			}
		}
		_, err = translator.Translate(paired(t, string(reach), fmt.Sprint("divvy.dev/pairs: ", most+1)), inventory)
		if !errors.Is(err, ErrRefused) || !strings.HasSuffix(err.Error(), "ask for fewer") {
			t.Errorf("%s: one more: %v", reach, err)
		}
	}
}

// A claim for pairs that anybody has changed is none of a translation.
func TestChangedPairs(t *testing.T) {
	translator := newTranslator(t, "{plain: {}}")
	for name, change := range map[string]func(d *resourcev1.DeviceClaim){
		"a constraint less":    func(d *resourcev1.DeviceClaim) { d.Constraints = d.Constraints[1:] },
		"a constraint more":    func(d *resourcev1.DeviceClaim) { d.Constraints = append(d.Constraints, d.Constraints[0]) },
		"another attribute":    func(d *resourcev1.DeviceClaim) { d.Constraints[0].MatchAttribute = d.Constraints[1].MatchAttribute },
		"another class":        func(d *resourcev1.DeviceClaim) { d.Requests[1].Exactly.DeviceClassName = "nic.example.com" },
		"GPUs of another kind": func(d *resourcev1.DeviceClaim) { d.Requests[2].FirstAvailable[0].DeviceClassName = v1alpha1.ClassShare },
		"two cards":            func(d *resourcev1.DeviceClaim) { d.Requests[1].Exactly.Count = 2 },
		"two GPUs": func(d *resourcev1.DeviceClaim) {
			for _, i := range []int{0, 2} {
				for k := range d.Requests[i].FirstAvailable {
					d.Requests[i].FirstAvailable[k].Count = 2
				}
			}
		},
		"admin access": func(d *resourcev1.DeviceClaim) { admin := true; d.Requests[1].Exactly.AdminAccess = &admin },
		"a card's selector": func(d *resourcev1.DeviceClaim) {
			d.Requests[1].Exactly.Selectors = selectors([]string{"true"})
		},
		"a request less": func(d *resourcev1.DeviceClaim) { d.Requests = d.Requests[:3] },
		"a configuration": func(d *resourcev1.DeviceClaim) {
			d.Config = configuration([]byte("{}"), []string{"nic-0"})
		},
	} {
		_, templates, err := translate(translator, paired(t, "bridge", "divvy.dev/pairs: 2"), sixteen)
		if err != nil {
			t.Fatal(err)
		}
		spec := &templates[0].Spec.Spec
		if _, ok := PairsOf(spec); !ok || CheckTranslated(spec) != nil {
			t.Fatalf("the claim is none of a translation: %v", CheckTranslated(spec))
		}
		change(&spec.Devices)
		if err := CheckTranslated(spec); !errors.Is(err, ErrClaim) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestPairOf(t *testing.T) {
	for name, want := range map[string]string{
		"gpu-0": "0 false true", "nic-15": "15 true true", "gpu-3/bridge": "3 false true", "nic-1/strict": "1 true true",
		"gpu": "0 false false", "gpu-": "0 false false", "gpu-01": "1 false false", "gpu--1": "-1 false false", "nic-x": "0 true false", "vf-1": "0 false false",
	} {
		pair, nic, ok := PairOf(name)
		if got := fmt.Sprint(pair, nic, ok); ok != strings.HasSuffix(want, "true") || ok && got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
}

// Quotas count the GPUs and the cards of pairs: neither while the claim waits nor once it is allocated.
func TestPairsCount(t *testing.T) {
	translator := newTranslator(t, "{plain: {}}")
	_, templates, err := translate(translator, paired(t, "socket", "divvy.dev/pairs: 4", "divvy.dev/gpu-memory: 4Gi"), sixteen)
	if err != nil {
		t.Fatal(err)
	}
	spec := &templates[0].Spec.Spec
	sizes := SizesOf(nil)
	if use := UseOf(spec, nil, sizes); use.GPUs != 4 || use.Memory != 16<<30 || use.Cards != 4 {
		t.Errorf("it counts as %+v", use)
	}
	allocation := &resourcev1.AllocationResult{}
	for _, request := range []string{"gpu-0/strict", "nic-0", "gpu-1/socket", "nic-1"} {
		allocation.Devices.Results = append(allocation.Devices.Results, resourcev1.DeviceRequestAllocationResult{Request: request, Driver: v1alpha1.Driver, Pool: "n", Device: request[:5]})
	}
	if use := UseOf(spec, allocation, sizes); use.GPUs != 2 || use.Cards != 2 {
		t.Errorf("allocated it counts as %+v", use)
	}
}
