package dra

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/dra/pool"
)

// forNVIDIA is an opaque configuration that is addressed to NVIDIA's driver, given as fields of a GpuConfig.
func forNVIDIA(source resourcev1.AllocationConfigSource, fields string, requests ...string) resourcev1.DeviceAllocationConfiguration {
	text := `{"apiVersion":"resource.nvidia.com/v1beta1","kind":"GpuConfig"` + fields + `}`
	return resourcev1.DeviceAllocationConfiguration{
		Source: source, Requests: requests,
		DeviceConfiguration: resourcev1.DeviceConfiguration{
			Opaque: &resourcev1.OpaqueDeviceConfiguration{Driver: v1alpha1.NVIDIADriver, Parameters: runtime.RawExtension{Raw: []byte(text)}},
		},
	}
}

const (
	byTime = `,"sharing":{"strategy":"TimeSlicing"}`
	byMPS  = `,"sharing":{"strategy":"MPS","mpsConfig":{"defaultActiveThreadPercentage":50,"defaultPinnedDeviceMemoryLimit":"10Gi"}}`
)

// inForm is a share of a GPU that the scheduler gave, of another form.
func inForm(form pool.Form, cores string) resourcev1.DeviceRequestAllocationResult {
	r := result("r", firstID, "4Gi", cores)
	r.Device = pool.Name(firstID, form)
	return r
}

// theirs is claim a for the whole first GPU by NVIDIA's class.
func theirs(configs ...resourcev1.DeviceAllocationConfiguration) *resourcev1.ResourceClaim {
	return withConfig(ofClass(claimWith(result("r", firstID, "16Gi", "5")), v1alpha1.ClassNVIDIA), configs...)
}

func TestSharingOfClaims(t *testing.T) {
	type got struct {
		Backend   v1alpha1.Backend
		Policy    v1alpha1.Policy
		Cores     int
		Exclusive bool
		Process   uint64
		Interval  string
	}
	of := func(class string, r resourcev1.DeviceRequestAllocationResult, configs ...resourcev1.DeviceAllocationConfiguration) *resourcev1.ResourceClaim {
		return withConfig(ofClass(claimWith(r), class), configs...)
	}
	withCores := func(claim *resourcev1.ResourceClaim) *resourcev1.ResourceClaim {
		return ofClass(claim, claim.Spec.Devices.Requests[0].Exactly.DeviceClassName, "cores", "30")
	}
	const slice, timeslice, mps = v1alpha1.BackendSlice, v1alpha1.BackendTimeslice, v1alpha1.BackendMPS
	const fixed, weighted = v1alpha1.PolicyFixed, v1alpha1.PolicyWeighted
	// What a node gives to shares that name nothing is about slices.
	defaults := func([]string, *allocation) (v1alpha1.NodeDefaults, error) {
		return v1alpha1.NodeDefaults{Policy: v1alpha1.PolicyBurst, Cores: 5}, nil
	}
	for name, c := range map[string]struct {
		claim *resourcev1.ResourceClaim
		want  got
	}{
		"a slice":                      {of(v1alpha1.ClassShare, inForm(pool.Shared, "5")), got{slice, v1alpha1.PolicyBurst, 5, false, 0, ""}},
		"time slices":                  {of(v1alpha1.ClassTimeslice, inForm(pool.Timeslice, "0")), got{timeslice, weighted, 0, false, 0, ""}},
		"MPS without a ceiling":        {of(v1alpha1.ClassMPS, inForm(pool.MPS, "0")), got{mps, weighted, 0, false, 0, ""}},
		"MPS with a ceiling":           {withCores(of(v1alpha1.ClassMPS, inForm(pool.MPS, "30"), configured(fromClaim, `,"backend":"mps"`))), got{mps, fixed, 30, false, 0, ""}},
		"another's class":              {of("theirs.example.com", inForm(pool.MPS, "0")), got{mps, weighted, 0, false, 0, ""}},
		"whole by NVIDIA's class":      {theirs(), got{slice, weighted, 5, true, 0, ""}},
		"whole, nothing said":          {theirs(forNVIDIA(fromClaim, ``)), got{slice, weighted, 5, true, 0, ""}},
		"whole by time":                {theirs(forNVIDIA(fromClaim, byTime, "r")), got{timeslice, weighted, 0, true, 0, ""}},
		"whole by MPS":                 {theirs(forNVIDIA(fromClaim, byMPS)), got{mps, fixed, 50, true, 10 * gib, ""}},
		"the last counts":              {theirs(forNVIDIA(fromClaim, byTime), forNVIDIA(fromClaim, byMPS)), got{mps, fixed, 50, true, 10 * gib, ""}},
		"the claim's before a class's": {theirs(forNVIDIA(fromClaim, byTime), forNVIDIA(fromClass, byMPS)), got{timeslice, weighted, 0, true, 0, ""}},
		"for another request":          {theirs(forNVIDIA(fromClaim, byTime, "other")), got{slice, weighted, 5, true, 0, ""}},
		"of long slices":               {theirs(forNVIDIA(fromClaim, `,"sharing":{"strategy":"TimeSlicing","timeSlicingConfig":{"interval":"Long"}}`)), got{timeslice, weighted, 0, true, 0, "long"}},
		"for this GPU":                 {theirs(forNVIDIA(fromClaim, `,"sharing":{"strategy":"MPS","mpsConfig":{"defaultPerDevicePinnedMemoryLimit":{"`+firstID+`":"2Gi"}}}`)), got{mps, weighted, 0, true, 2 * gib, ""}},
		"a share, said to NVIDIA":      {of(v1alpha1.ClassShare, inForm(pool.Shared, "5"), forNVIDIA(fromClaim, byMPS)), got{slice, v1alpha1.PolicyBurst, 5, false, 0, ""}},
	} {
		t.Run(name, func(t *testing.T) {
			all, err := allocationsOf(c.claim, nodeName, defaults)
			if err != nil || len(all) != 1 {
				t.Fatalf("%d allocations, %v", len(all), err)
			}
			g := all[0]
			if have := (got{g.config.Backend, g.config.Policy, g.cores, g.exclusive, g.processMemory, g.sharing.Interval}); have != c.want {
				t.Errorf("%+v, want %+v", have, c.want)
			}
			p, err := planOf(c.claim, nodeName, all, []view{{"r"}}, nil)
			if s := p.tenancies[0].Shares[0]; err != nil || s.ProcessMemory != c.want.Process || s.Interval != c.want.Interval {
				t.Errorf("planned %+v, %v", s, err)
			}
		})
	}
}

func TestSharingRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		claim *resourcev1.ResourceClaim
		fault string
	}{
		"another form": {withConfig(claimWith(inForm(pool.Shared, "0")), configured(fromClaim, `,"backend":"mps"`)),
			`asks for backend mps and was given ` + pool.Name(firstID, pool.Shared) + `, whose shares have backend slice: ask for it by class mps.divvy.dev, or add a selector for form "mps"`},
		"slices of MPS":   {withConfig(claimWith(inForm(pool.MPS, "0")), configured(fromClaim, `,"backend":"slice"`)), "ask for it by class share.divvy.dev"},
		"weights of MPS":  {withConfig(claimWith(inForm(pool.MPS, "0")), configured(fromClaim, `,"weight":3`)), "not by weights"},
		"cores of slices": {claimWith(inForm(pool.Timeslice, "30")), "leave out cores"},
		"too much": {theirs(forNVIDIA(fromClaim, `,"sharing":{"strategy":"MPS","mpsConfig":{"defaultPinnedDeviceMemoryLimit":"17Gi"}}`)),
			"a memory limit of 17Gi is more than " + firstID + " has: 16Gi"},
		"a GPU that is not there": {theirs(forNVIDIA(fromClaim, `,"sharing":{"strategy":"MPS","mpsConfig":{"defaultPerDevicePinnedMemoryLimit":{"`+otherID+`":"2Gi"}}}`)), "names GPU " + otherID},
		"a second GPU":            {theirs(forNVIDIA(fromClaim, `,"sharing":{"strategy":"MPS","mpsConfig":{"defaultPerDevicePinnedMemoryLimit":{"1":"2Gi"}}}`)), "names GPU 1"},
		"an unknown field":        {theirs(forNVIDIA(fromClaim, `,"sharing":{"strategy":"MPS","mpsConfig":{"threads":50}}`)), `unknown field "sharing.mpsConfig.threads"`},
		"amounts":                 {ofClass(theirs(), v1alpha1.ClassNVIDIA, "memory", "4Gi"), "class gpu.nvidia.com gives whole GPUs"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := allocationsOf(c.claim, nodeName, noDefaults); !errors.Is(err, ErrClaim) || !strings.Contains(err.Error(), c.fault) {
				t.Errorf("%v, want %q", err, c.fault)
			}
		})
	}
}

// TestLimitsByPlace gives GPUs of two requests limits by their place among the GPUs that a configuration is for.
func TestLimitsByPlace(t *testing.T) {
	claim := theirs(forNVIDIA(fromClaim, `,"sharing":{"strategy":"MPS","mpsConfig":{"defaultPinnedDeviceMemoryLimit":"3Gi","defaultPerDevicePinnedMemoryLimit":{"1":"2Gi"}}}`, "r", "s"))
	second := result("s", otherID, "16Gi", "0")
	claim.Status.Allocation.Devices.Results = append(claim.Status.Allocation.Devices.Results, second)
	claim.Spec.Devices.Requests = append(claim.Spec.Devices.Requests, resourcev1.DeviceRequest{Name: "s", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: v1alpha1.ClassNVIDIA}})
	all, err := allocationsOf(claim, nodeName, noDefaults)
	if err != nil {
		t.Fatal(err)
	}
	if got := []uint64{all[0].processMemory, all[1].processMemory}; !reflect.DeepEqual(got, []uint64{3 * gib, 2 * gib}) {
		t.Errorf("limits %v", got)
	}
}

// TestPodsShareAGPUByTime prepares a claim by NVIDIA's class for two pods, whose programs share the GPU by time.
func TestPodsShareAGPUByTime(t *testing.T) {
	one, two := podOf("one", map[string][]ref{"main": {{"a", ""}}}), podOf("two", map[string][]ref{"main": {{"a", "r"}}, "side": {{"a", ""}}})
	claim := theirs(forNVIDIA(fromClaim, byTime))
	claim.Status.Allocation.Devices.Results[0].ShareID = ptr.To(types.UID("share"))
	reserve(claim, one, two)
	m := newMachine(t, claim, one, two)
	r := m.start()
	m.mustPrepare(r, claim)
	l, err := r.agent.Listing(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(l.Tenants) != 1 || len(l.Tenants[0].Shares) != 1 {
		t.Fatalf("tenants %+v", l.Tenants)
	}
	s := l.Tenants[0].Shares[0]
	if !s.Whole || s.Limit != l.GPUs[0].Capacity || s.Backend != v1alpha1.BackendTimeslice {
		t.Errorf("granted is %+v of %d bytes", s, l.GPUs[0].Capacity)
	}
	m.mustPrepare(r, claim)
	if err := m.unprepare(r, claim); err != nil {
		t.Error(err)
	}
	m.mustBeEmpty(r)
}
