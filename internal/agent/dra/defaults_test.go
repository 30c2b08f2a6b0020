package dra

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// asking adds requests to the claim's spec that name these cores; "" names none.
func asking(claim *resourcev1.ResourceClaim, cores map[string]string) *resourcev1.ResourceClaim {
	for name, n := range cores {
		capacity := &resourcev1.CapacityRequirements{Requests: map[resourcev1.QualifiedName]resource.Quantity{}}
		if n != "" {
			capacity.Requests[v1alpha1.CapacityCores] = resource.MustParse(n)
		}
		r := resourcev1.DeviceRequest{Name: name, Exactly: &resourcev1.ExactDeviceRequest{Capacity: capacity}}
		if parent, way, ok := strings.Cut(name, "/"); ok {
			r = resourcev1.DeviceRequest{Name: parent, FirstAvailable: []resourcev1.DeviceSubRequest{{Name: "none"}, {Name: way, Capacity: capacity}}}
		}
		claim.Spec.Devices.Requests = append(claim.Spec.Devices.Requests, r)
	}
	return claim
}

func TestAllocationsByDefaults(t *testing.T) {
	given := func(d v1alpha1.NodeDefaults) defaultsOf {
		return func([]string, *allocation) (v1alpha1.NodeDefaults, error) { return d, nil }
	}
	burst := given(v1alpha1.NodeDefaults{Policy: "burst", Cores: 5})
	offline := configured(fromClaim, `,"class":"offline"`)
	for name, c := range map[string]struct {
		claim    *resourcev1.ResourceClaim
		defaults defaultsOf
		policy   v1alpha1.Policy
		cores    int
	}{
		"nothing named":         {claimWith(result("r", firstID, "4Gi", "5")), burst, "burst", 5},
		"cores named":           {asking(claimWith(result("r", firstID, "4Gi", "30")), map[string]string{"r": "30"}), burst, "burst", 30},
		"the class's policy":    {withConfig(claimWith(result("r", firstID, "4Gi", "5")), configured(fromClass, `,"policy":"weighted"`)), burst, "weighted", 5},
		"the claim's policy":    {withConfig(claimWith(result("r", firstID, "4Gi", "5")), configured(fromClaim, `,"policy":"fixed"`)), burst, "fixed", 5},
		"offline":               {withConfig(asking(claimWith(result("r", firstID, "4Gi", "5")), map[string]string{"r": ""}), offline), burst, "weighted", 0},
		"offline, cores named":  {withConfig(asking(claimWith(result("r", firstID, "4Gi", "5")), map[string]string{"r": "5"}), offline), burst, "fixed", 5},
		"offline, in one way":   {withConfig(asking(claimWith(result("r/w", firstID, "4Gi", "5")), map[string]string{"r/w": "5"}), offline), burst, "fixed", 5},
		"offline, in a request": {withConfig(asking(claimWith(result("r", firstID, "4Gi", "5")), map[string]string{"q": "5", "r": ""}), offline), burst, "weighted", 0},
		"a whole GPU":           {claimWith(wholeResult("r", firstID)), burst, "weighted", 0},
		"allocated before":      {claimWith(result("r", firstID, "4Gi", "0")), burst, "weighted", 0},
	} {
		allocations, err := allocationsOf(c.claim, nodeName, c.defaults)
		if err != nil || len(allocations) != 1 || allocations[0].config.Policy != c.policy || allocations[0].cores != c.cores {
			t.Errorf("%s: %+v, %v", name, allocations, err)
		}
	}
}

// An agent that was given other defaults serves what is prepared as it was, and only what comes by the new ones.
func TestDefaultsChangeUnderTenants(t *testing.T) {
	claim, pod := simple()
	claim = asking(claim, map[string]string{"r": ""})
	second := claimWith(result("r", otherID, "4Gi", "30"))
	second.Name, second.UID = "b", uidB
	third := podOf("third", map[string][]ref{"main": {{"b", ""}}})
	reserve(second, third)
	m := newMachine(t, claim, pod, second, third)
	policyOf := func(r *running, claim *resourcev1.ResourceClaim) v1alpha1.Policy {
		for _, t := range r.agent.Tenancies() {
			if t.Claim == claim.Name {
				return t.Shares[0].Config.Policy
			}
		}
		return ""
	}
	start := func(d v1alpha1.NodeDefaults, err error) *running {
		r := m.start()
		r.defaults = func() (v1alpha1.NodeDefaults, error) { return d, err }
		return r
	}
	r := start(v1alpha1.NodeDefaults{Policy: "burst", Cores: 30}, nil)
	devices := m.mustPrepare(r, claim)
	if got := policyOf(r, claim); got != v1alpha1.PolicyBurst {
		t.Fatalf("policy %s", got)
	}
	r.stop()

	bad := errors.New("label divvy.dev/default-policy is empty")
	for _, after := range []struct {
		defaults v1alpha1.NodeDefaults
		err      error
	}{{v1alpha1.NodeDefaults{Policy: "fixed", Cores: 10}, nil}, {v1alpha1.NodeDefaults{}, nil}, {v1alpha1.NodeDefaults{}, bad}} {
		r = start(after.defaults, after.err)
		if again := m.mustPrepare(r, claim); !reflect.DeepEqual(again, devices) || policyOf(r, claim) != v1alpha1.PolicyBurst {
			t.Errorf("%+v: %+v, policy %s", after, again, policyOf(r, claim))
		}
		result := m.prepare(r, second)
		switch {
		case after.err != nil:
			if result.Err == nil || !strings.Contains(result.Err.Error(), bad.Error()) {
				t.Errorf("%v", result.Err)
			}
		case result.Err != nil || policyOf(r, second) != v1alpha1.PolicyFixed:
			t.Errorf("%+v: %v, policy %s", after, result.Err, policyOf(r, second))
		}
		if err := m.unprepare(r, second); err != nil {
			t.Error(err)
		}
		r.stop()
	}
}

// Two containers of one claim with shares of one GPU keep a policy each.
func TestDefaultsOfViews(t *testing.T) {
	claim, pod := apart()
	withConfig(claim, configured(fromClaim, `,"policy":"weighted"`, "q"))
	m := newMachine(t, claim, pod)
	r := m.start()
	r.defaults = func() (v1alpha1.NodeDefaults, error) { return v1alpha1.NodeDefaults{Policy: "burst", Cores: 5}, nil }
	claim.Status.Allocation.Devices.Results[1].ConsumedCapacity[v1alpha1.CapacityCores] = resource.MustParse("5")
	m.mustPrepare(r, claim)
	r.defaults = nil
	m.mustPrepare(r, claim)
	for i, want := range []v1alpha1.Policy{"weighted", "burst"} {
		if got := r.agent.Tenancies()[i].Shares[0].Config.Policy; got != want {
			t.Errorf("view %d: %s, want %s", i, got, want)
		}
	}
}
