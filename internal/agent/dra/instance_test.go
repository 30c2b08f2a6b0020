package dra

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent"
	"github.com/divvy-gpu/divvy/internal/agent/dra/pool"
)

// instanceResult is a MIG instance that the scheduler gave.
func instanceResult(request, uuid, profile string, start int) resourcev1.DeviceRequestAllocationResult {
	return resourcev1.DeviceRequestAllocationResult{Request: request, Driver: v1alpha1.Driver, Pool: nodeName, Device: pool.InstanceName(uuid, profile, start)}
}

// forMIG is an opaque configuration of MIG devices that is addressed to NVIDIA's driver.
func forMIG(fields string, requests ...string) resourcev1.DeviceAllocationConfiguration {
	c := forNVIDIA(fromClaim, fields, requests...)
	text := strings.Replace(string(c.Opaque.Parameters.Raw), "GpuConfig", "MigDeviceConfig", 1)
	c.Opaque.Parameters = runtime.RawExtension{Raw: []byte(text)}
	return c
}

// Each container of NVIDIA's example (kubernetes-sigs/dra-driver-nvidia-gpu, demo/specs/quickstart/v1/gpu-test4.yaml) gets
// the instance that its request names, in a tenancy of its own, also where all are of one GPU.
func TestInstancesOfContainers(t *testing.T) {
	claim := claimWith(instanceResult("one", firstID, "1g.10gb", 0), instanceResult("two", firstID, "1g.10gb", 1), instanceResult("three", firstID, "3g.40gb", 4))
	// A node's defaults are for slices.
	allocations, err := allocationsOf(claim, nodeName, func([]string, *allocation) (v1alpha1.NodeDefaults, error) {
		return v1alpha1.NodeDefaults{Policy: v1alpha1.PolicyFixed, Cores: 5}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	p, err := planOf(claim, nodeName, allocations, []view{{"one"}, {"two"}, {"three"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := []agent.TenancyInstance{{Profile: "1g.10gb", Start: 0}, {Profile: "1g.10gb", Start: 1}, {Profile: "3g.40gb", Start: 4}}
	seen := map[string]bool{}
	for i, tenancy := range p.tenancies {
		share := agent.TenancyShare{UUID: firstID, Instance: &want[i], Config: v1alpha1.ShareConfig{Backend: v1alpha1.BackendMIG}}
		share.Config.Default(0)
		if !reflect.DeepEqual(tenancy.Shares, []agent.TenancyShare{share}) {
			t.Errorf("tenancy %d has %+v, want %+v", i, tenancy.Shares, share)
		}
		cdi := p.devices[i].CDIDeviceIDs
		if len(cdi) != 1 || seen[cdi[0]] || !strings.HasSuffix(cdi[0], deviceName(tenancy.Key)) {
			t.Errorf("device %d is %v", i, cdi)
		}
		seen[cdi[0]] = true
	}
	if len(p.tenancies) != len(want) {
		t.Errorf("%d tenancies", len(p.tenancies))
	}
	for name, views := range map[string][]view{"all of it": {{"one", "two", "three"}}, "two of it": {{"one", "three"}, {"two"}}} {
		if _, err := planOf(claim, nodeName, allocations, views, nil); !errors.Is(err, ErrClaim) || !strings.Contains(err.Error(), "a process can use one instance only") {
			t.Errorf("a container with %s: %v", name, err)
		}
	}
	beside := slices.Concat(allocations, []allocation{{request: "four", base: "four", uuid: otherID, memory: gib}})
	if _, err := planOf(claim, nodeName, beside, []view{{"one", "four"}, {"two"}, {"three"}}, nil); !errors.Is(err, ErrClaim) {
		t.Errorf("a container with an instance and a share: %v", err)
	}
}

func TestConfigurationsOfInstances(t *testing.T) {
	for name, c := range map[string]struct {
		configs []resourcev1.DeviceAllocationConfiguration
		fault   string
	}{
		"none":                     {nil, ""},
		"the backend that it has":  {[]resourcev1.DeviceAllocationConfiguration{configured(fromClaim, `,"backend":"mig"`)}, ""},
		"another backend":          {[]resourcev1.DeviceAllocationConfiguration{configured(fromClaim, `,"backend":"slice"`)}, "was given MIG instance"},
		"a policy":                 {[]resourcev1.DeviceAllocationConfiguration{configured(fromClaim, `,"policy":"burst"`)}, "an instance of its own"},
		"NVIDIA's by time":         {[]resourcev1.DeviceAllocationConfiguration{forMIG(byTime, "r")}, ""},
		"NVIDIA's by MPS":          {[]resourcev1.DeviceAllocationConfiguration{forMIG(byMPS)}, "sharing.strategy MPS"},
		"NVIDIA's for GPUs":        {[]resourcev1.DeviceAllocationConfiguration{forNVIDIA(fromClaim, byTime, "r")}, "not of the kind of its device"},
		"NVIDIA's for others":      {[]resourcev1.DeviceAllocationConfiguration{forNVIDIA(fromClaim, byMPS, "q")}, ""},
		"NVIDIA's for any GPU":     {[]resourcev1.DeviceAllocationConfiguration{forNVIDIA(fromClaim, byMPS)}, ""},
		"NVIDIA's before the last": {[]resourcev1.DeviceAllocationConfiguration{forMIG(byMPS), forMIG(byTime)}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			claim := withConfig(ofClass(claimWith(instanceResult("r", firstID, "1g.10gb", 3)), v1alpha1.ClassNVIDIAMIG), c.configs...)
			_, err := allocationsOf(claim, nodeName, noDefaults)
			if c.fault == "" && err != nil || c.fault != "" && (!errors.Is(err, ErrClaim) || !strings.Contains(err.Error(), c.fault)) {
				t.Errorf("%v, want %q", err, c.fault)
			}
		})
	}
	if _, err := allocationsOf(theirs(forMIG(byTime, "r")), nodeName, noDefaults); !errors.Is(err, ErrClaim) || !strings.Contains(err.Error(), "not of the kind of its device") {
		t.Errorf("a GPU with a configuration of MIG devices: %v", err)
	}
	if _, err := allocationsOf(theirs(forMIG(byTime)), nodeName, noDefaults); err != nil {
		t.Errorf("a GPU beside any MIG devices: %v", err)
	}
	admin := claimWith(instanceResult("r", firstID, "1g.10gb", 3))
	admin.Status.Allocation.Devices.Results[0].AdminAccess = new(true)
	if _, err := openingsOf(admin, nodeName); !errors.Is(err, ErrClaim) || !strings.Contains(err.Error(), v1alpha1.ClassWhole) {
		t.Errorf("admin access to an instance: %v", err)
	}
}
