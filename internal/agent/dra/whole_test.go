package dra

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent"
)

// ofClass lets the claim's request r be of a class; amounts are pairs of a capacity and a quantity.
func ofClass(claim *resourcev1.ResourceClaim, class string, amounts ...string) *resourcev1.ResourceClaim {
	exactly := &resourcev1.ExactDeviceRequest{DeviceClassName: class}
	if len(amounts) > 0 {
		exactly.Capacity = &resourcev1.CapacityRequirements{Requests: map[resourcev1.QualifiedName]resource.Quantity{}}
	}
	for i := 0; i < len(amounts); i += 2 {
		exactly.Capacity.Requests[resourcev1.QualifiedName(amounts[i])] = resource.MustParse(amounts[i+1])
	}
	claim.Spec.Devices.Requests = []resourcev1.DeviceRequest{{Name: "r", Exactly: exactly}}
	return claim
}

// byClass is claim a for the whole first GPU, used by one pod.
func byClass() (*resourcev1.ResourceClaim, *corev1.Pod) {
	pod := podOf("p", map[string][]ref{"main": {{"a", ""}}})
	claim := ofClass(claimWith(result("r", firstID, "16Gi", "0")), v1alpha1.ClassWhole)
	reserve(claim, pod)
	return claim, pod
}

// another is claim b with a share of the first GPU.
func another(memory string) (*resourcev1.ResourceClaim, *corev1.Pod) {
	pod := podOf("other", map[string][]ref{"main": {{"b", ""}}})
	claim := claimWith(result("r", firstID, memory, "0"))
	claim.Name, claim.UID = "b", uidB
	reserve(claim, pod)
	return claim, pod
}

func TestWholeByClass(t *testing.T) {
	claim, pod := byClass()
	m := newMachine(t, claim, pod)
	r := m.start()
	devices := m.mustPrepare(r, claim)
	if devices[0].ShareID == nil || devices[0].DeviceName != claim.Status.Allocation.Devices.Results[0].Device {
		t.Errorf("devices %+v", devices)
	}
	r.stop()
	r = m.start() // which finds it in the checkpoint
	l, err := r.agent.Listing(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s := l.Tenants[0].Shares[0]
	if !s.Whole || s.Limit != l.GPUs[0].Capacity || s.Policy != v1alpha1.PolicyWeighted {
		t.Errorf("granted is %+v of %d bytes", s, l.GPUs[0].Capacity)
	}
	if again := m.mustPrepare(r, claim); !reflect.DeepEqual(again, devices) {
		t.Errorf("prepared twice: %+v, then %+v", devices, again)
	}
	if err := m.unprepare(r, claim); err != nil {
		t.Error(err)
	}
	m.mustBeEmpty(r)
}

// Whatever the scheduler says, nobody has a share of a GPU that another one has as a whole.
func TestWholeByClassExcludes(t *testing.T) {
	claim, pod := byClass()
	share, second := another("1Gi")
	for _, c := range []struct {
		first, then *resourcev1.ResourceClaim
		fault       string
	}{
		{claim, share, "team/a has the whole GPU"},
		{share, claim, "GPU 0 has tenants and the request needs a whole GPU"},
	} {
		m := newMachine(t, claim, pod, share, second)
		r := m.start()
		m.mustPrepare(r, c.first)
		if err := m.prepare(r, c.then).Err; err == nil || !strings.Contains(err.Error(), c.fault) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v, want %q", err, c.fault)
		}
		if err := m.unprepare(r, c.first); err != nil {
			t.Error(err)
		}
		m.mustPrepare(r, c.then)
	}
}

func TestWholeByClassRefuses(t *testing.T) {
	alternative := claimWith(result("r/all", firstID, "16Gi", "30"))
	alternative.Spec.Devices.Requests = []resourcev1.DeviceRequest{{Name: "r", FirstAvailable: []resourcev1.DeviceSubRequest{{
		Name: "all", DeviceClassName: v1alpha1.ClassWhole,
		Capacity: &resourcev1.CapacityRequirements{Requests: map[resourcev1.QualifiedName]resource.Quantity{v1alpha1.CapacityCores: resource.MustParse("30")}},
	}}}}
	whole := func() *resourcev1.ResourceClaim { c, _ := byClass(); return c }
	for name, c := range map[string]struct {
		claim *resourcev1.ResourceClaim
		fault string
	}{
		"less memory": {ofClass(claimWith(result("r", firstID, "4Gi", "0")), v1alpha1.ClassWhole, "memory", "4Gi"),
			"request r: claim cannot be served: it names memory 4Gi, and class gpu.divvy.dev gives whole GPUs: leave out the amounts, or ask for a share by class share.divvy.dev"},
		"less time": {ofClass(claimWith(result("r", firstID, "16Gi", "30")), v1alpha1.ClassWhole, "cores", "30"), "it names cores 30, and class"},
		"less of both": {ofClass(claimWith(result("r", firstID, "4Gi", "30")), v1alpha1.ClassWhole, "memory", "4Gi", "cores", "30"),
			"it names cores 30 and memory 4Gi, and class"},
		"an alternative":     {alternative, "request r/all: claim cannot be served: it names cores 30"},
		"a cap":              {withConfig(whole(), configured(fromClaim, `,"policy":"fixed"`)), "policy fixed needs cores"},
		"a guarantee":        {withConfig(whole(), configured(fromClass, `,"policy":"burst"`)), "policy burst needs the cores"},
		"without amounts":    {whole(), ""},
		"a weight":           {withConfig(whole(), configured(fromClaim, `,"weight":3`)), ""},
		"a share by amounts": {ofClass(claimWith(result("r", firstID, "4Gi", "30")), v1alpha1.ClassShare, "memory", "4Gi", "cores", "30"), ""},
	} {
		_, err := allocationsOf(c.claim, nodeName, noDefaults)
		if (err == nil) != (c.fault == "") || err != nil && (!errors.Is(err, ErrClaim) || !strings.Contains(err.Error(), c.fault)) {
			t.Errorf("%s: %v, want %q", name, err, c.fault)
		}
	}
}

// Cores that the scheduler counts by default are no cap for a tenant that is alone.
func TestWholeByClassIgnoresDefaults(t *testing.T) {
	claim := ofClass(claimWith(result("r", firstID, "16Gi", "5")), v1alpha1.ClassWhole)
	allocations, err := allocationsOf(claim, nodeName, func([]string, *allocation) (v1alpha1.NodeDefaults, error) {
		return v1alpha1.NodeDefaults{}, errors.New("labels are invalid")
	})
	if err != nil || allocations[0].config.Policy != v1alpha1.PolicyWeighted || !allocations[0].exclusive {
		t.Errorf("%+v, %v", allocations, err)
	}
}

// What earlier versions prepared as a whole is prepared, found again and released.
func TestWholeDeviceOfAnEarlierVersion(t *testing.T) {
	pod := podOf("p", map[string][]ref{"main": {{"a", ""}}})
	claim := ofClass(claimWith(wholeResult("r", firstID)), v1alpha1.ClassWhole)
	reserve(claim, pod)
	share, second := another("1Gi")
	m := newMachine(t, claim, pod, share, second)
	r := m.start()
	devices := m.mustPrepare(r, claim)
	r.stop()
	r = m.start()
	if again := m.mustPrepare(r, claim); !reflect.DeepEqual(again, devices) {
		t.Errorf("prepared twice: %+v, then %+v", devices, again)
	}
	if held, _ := r.agent.Wholes(); len(held) != 1 || held[firstID] != 0 {
		t.Errorf("the slices are told of %v", held)
	}
	if err := m.prepare(r, share).Err; err == nil || !strings.Contains(err.Error(), "team/a has the whole GPU") {
		t.Errorf("%v", err)
	}
	if err := m.unprepare(r, claim); err != nil {
		t.Error(err)
	}
	if held, _ := r.agent.Wholes(); len(held) != 0 {
		t.Errorf("the slices are told of %v", held)
	}
	m.mustPrepare(r, share)
}

// An agent of an earlier version takes a whole GPU by class for a share with all memory. Such a share goes on as it is
// when this version takes over.
func TestWholeByClassPreparedAsAShare(t *testing.T) {
	claim, pod := byClass()
	m := newMachine(t, claim, pod)
	r := m.start()
	r.defaults = func() (v1alpha1.NodeDefaults, error) { return v1alpha1.NodeDefaults{Policy: "fixed", Cores: 5}, nil }
	claim.Status.Allocation.Devices.Results[0].ConsumedCapacity[v1alpha1.CapacityCores] = resource.MustParse("5")
	spec := claim.Spec
	claim.Spec = resourcev1.ResourceClaimSpec{} // of which earlier versions read only whether it names cores
	devices := m.mustPrepare(r, claim)
	before := r.agent.Tenancies()
	r.stop()
	r = m.start()
	claim.Spec = spec
	if again := m.mustPrepare(r, claim); !reflect.DeepEqual(again, devices) {
		t.Errorf("%+v became %+v", devices, again)
	}
	if after := r.agent.Tenancies(); !reflect.DeepEqual(after, before) {
		t.Errorf("%+v became %+v", before, after)
	}
	if err := m.unprepare(r, claim); err != nil {
		t.Error(err)
	}
	m.mustBeEmpty(r)
}

// What is saved of a whole GPU by class is what an agent of an earlier version asks for, so that it takes it over: a
// share with all memory, with whatever defaults its node has.
func TestWholeByClassAfterARollback(t *testing.T) {
	for _, d := range []v1alpha1.NodeDefaults{{}, {Cores: 5}, {Policy: "fixed", Cores: 5}, {Policy: "burst", Cores: 30}, {Policy: "weighted"}} {
		for _, fields := range []string{"", `,"weight":3`, `,"class":"offline"`} {
			claim, _ := byClass()
			claim.Status.Allocation.Devices.Results[0].ConsumedCapacity[v1alpha1.CapacityCores] = *resource.NewQuantity(int64(d.Cores), resource.DecimalSI)
			withConfig(claim, configured(fromClaim, fields))
			saved := shareOf(t, claim, d)
			if !saved.Exclusive {
				t.Errorf("%+v%s: %+v", d, fields, saved)
			}
			saved.Exclusive = false // is not saved
			claim.Spec = resourcev1.ResourceClaimSpec{}
			// Of a share that is prepared, an agent knows the policy.
			if asked := shareOf(t, claim, v1alpha1.NodeDefaults{Policy: saved.Config.Policy}); asked != saved {
				t.Errorf("%+v%s: saved is %+v, and an earlier version asks for %+v", d, fields, saved, asked)
			}
		}
	}
}

// shareOf is the share that the agent is asked for.
func shareOf(t *testing.T, claim *resourcev1.ResourceClaim, d v1alpha1.NodeDefaults) agent.TenancyShare {
	t.Helper()
	allocations, err := allocationsOf(claim, nodeName, func([]string, *allocation) (v1alpha1.NodeDefaults, error) { return d, nil })
	if err != nil {
		t.Fatal(err)
	}
	p, err := planOf(claim, nodeName, allocations, []view{{"r"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return p.tenancies[0].Shares[0]
}

// A whole GPU that an earlier version's agent did not come to prepare is kept for its claim, until that is prepared or
// its pod is gone.
func TestWholeDeviceIsKeptUntilItIsPrepared(t *testing.T) {
	for _, prepared := range []bool{false, true} {
		pod := podOf("p", map[string][]ref{"main": {{"a", ""}}})
		pod.Spec.NodeName = nodeName
		claim := ofClass(claimWith(wholeResult("r", firstID)), v1alpha1.ClassWhole)
		reserve(claim, pod)
		share, second := another("1Gi")
		pod.Spec.ResourceClaims, second.Spec.ResourceClaims = pod.Spec.ResourceClaims[:1], second.Spec.ResourceClaims[1:]
		m := newMachine(t, claim, pod, share, second)
		r := m.start()
		watch := m.watched(r)
		r.expectAtStart(t.Context(), 0)
		if held, _ := r.agent.Wholes(); len(held) != 1 || held[firstID] != 0 {
			t.Errorf("the slices are told of %v", held)
		}
		if err := m.prepare(r, share).Err; err == nil || !strings.Contains(err.Error(), "it is kept for claim team/a") {
			t.Errorf("%v", err)
		}
		if prepared {
			m.mustPrepare(r, claim)
			if held, _ := r.agent.Wholes(); len(held) != 1 {
				t.Errorf("the slices are told of %v", held)
			}
			if err := m.unprepare(r, claim); err != nil {
				t.Error(err)
			}
		}
		m.removePod(watch, pod)
		r.expectAgain(t.Context())
		if held, _ := r.agent.Wholes(); len(held) != 0 {
			t.Errorf("the slices are told of %v", held)
		}
		m.mustPrepare(r, share)
		m.client.ClearActions()
		r.expectAgain(t.Context())
		if asked := m.client.Actions(); len(asked) > 0 {
			t.Errorf("nothing is expected, and %v are asked", asked)
		}
	}
}

// An API server that does not answer is asked again, and nothing is published before.
func TestExpectingIsTriedAgain(t *testing.T) {
	claim, pod := simple()
	pod.Spec.NodeName, pod.Spec.ResourceClaims = nodeName, pod.Spec.ResourceClaims[:1]
	m := newMachine(t, claim, pod)
	asked := 0
	m.client.PrependReactor("get", "resourceclaims", func(clienttesting.Action) (bool, runtime.Object, error) {
		asked++
		return asked < 3, nil, errors.New("away")
	})
	r := m.start()
	m.watched(r)
	r.expectAtStart(t.Context(), 0)
	if held, _ := r.agent.Wholes(); asked != 3 || len(held) != 0 {
		t.Errorf("asked %d times, and %v are kept", asked, held)
	}
}
