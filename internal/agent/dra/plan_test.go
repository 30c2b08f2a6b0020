package dra

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent"
)

func TestConfigsOfGrants(t *testing.T) {
	for name, c := range map[string]struct {
		request string
		configs []resourcev1.DeviceAllocationConfiguration
		want    v1alpha1.ShareConfig
		fault   string
	}{
		"none":                 {"r", nil, v1alpha1.ShareConfig{}, ""},
		"the class's":          {"r", []resourcev1.DeviceAllocationConfiguration{configured(fromClass, `,"weight":2`)}, v1alpha1.ShareConfig{Weight: 2}, ""},
		"the claim's stands":   {"r", []resourcev1.DeviceAllocationConfiguration{configured(fromClass, `,"weight":2`), configured(fromClaim, `,"class":"offline"`)}, v1alpha1.ShareConfig{Class: "offline"}, ""},
		"another request's":    {"r", []resourcev1.DeviceAllocationConfiguration{configured(fromClaim, `,"weight":2`, "q")}, v1alpha1.ShareConfig{}, ""},
		"for all alternatives": {"r/big", []resourcev1.DeviceAllocationConfiguration{configured(fromClaim, `,"weight":2`, "r")}, v1alpha1.ShareConfig{Weight: 2}, ""},
		"for one alternative":  {"r/big", []resourcev1.DeviceAllocationConfiguration{configured(fromClaim, `,"weight":2`, "r/small"), configured(fromClaim, `,"weight":3`, "r/big")}, v1alpha1.ShareConfig{Weight: 3}, ""},
		"two that agree":       {"r", []resourcev1.DeviceAllocationConfiguration{configured(fromClaim, `,"weight":2`), configured(fromClaim, `,"weight":2`, "r")}, v1alpha1.ShareConfig{Weight: 2}, ""},
		"two policies": {"r", []resourcev1.DeviceAllocationConfiguration{configured(fromClaim, `,"policy":"fixed"`), configured(fromClaim, `,"policy":"burst"`, "r")}, v1alpha1.ShareConfig{},
			"two configurations contradict each other (policy fixed and policy burst)"},
		"an unknown field": {"r", []resourcev1.DeviceAllocationConfiguration{configured(fromClaim, `,"wieght":2`)}, v1alpha1.ShareConfig{}, `unknown field "wieght"`},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := configOf(c.configs, c.request)
			if c.fault != "" {
				if !errors.Is(err, ErrClaim) || !strings.Contains(err.Error(), c.fault) {
					t.Errorf("%v, want %q", err, c.fault)
				}
				return
			}
			if err != nil || got != c.want {
				t.Errorf("%+v, %v", got, err)
			}
		})
	}
}

func TestAllocationsRefuse(t *testing.T) {
	changed := func(change func(*resourcev1.DeviceRequestAllocationResult)) *resourcev1.ResourceClaim {
		r := result("r", firstID, "4Gi", "30")
		change(&r)
		return claimWith(r)
	}
	for name, c := range map[string]struct {
		claim *resourcev1.ResourceClaim
		fault string
	}{
		"not allocated":    {&resourcev1.ResourceClaim{}, "nothing is allocated"},
		"another node":     {changed(func(r *resourcev1.DeviceRequestAllocationResult) { r.Pool = "n2" }), "its device is on node n2, but this is node n1"},
		"another's device": {changed(func(r *resourcev1.DeviceRequestAllocationResult) { r.Device = "card-0" }), "device card-0 does not belong to this driver"},
		"no slots": {changed(func(r *resourcev1.DeviceRequestAllocationResult) {
			r.ConsumedCapacity[v1alpha1.CapacitySlots] = resource.MustParse("0")
		}), "slots 0: a share takes 1"},
		"no amounts":              {changed(func(r *resourcev1.DeviceRequestAllocationResult) { r.ConsumedCapacity = nil }), "DRAConsumableCapacity"},
		"no memory":               {claimWith(result("r", firstID, "0", "30")), "memory must be greater than zero"},
		"negative memory":         {claimWith(result("r", firstID, "-4Gi", "30")), "memory -4Gi: the amount must be a whole number"},
		"parts of a byte":         {claimWith(result("r", firstID, "1500m", "30")), "memory 1500m: the amount must be a whole number"},
		"too many cores":          {claimWith(result("r", firstID, "4Gi", "101")), "cores 101"},
		"parts of a core":         {claimWith(result("r", firstID, "4Gi", "500m")), "cores 500m: the amount must be a whole number"},
		"fixed without cores":     {withConfig(claimWith(result("r", firstID, "4Gi", "0")), configured(fromClaim, `,"policy":"fixed"`)), "policy fixed needs cores"},
		"whole with a policy":     {withConfig(claimWith(wholeResult("r", firstID)), configured(fromClass, `,"policy":"burst"`)), "policy burst needs the cores"},
		"swap without the host's": {withConfig(claimWith(result("r", firstID, "1Gi", "0")), configured(fromClaim, `,"swap":true`)), "a swap share takes its limit of swapMemory"},
		"the host's without swap": {claimWith(swapResult("r", firstID, "1Gi", "4Gi")), "it takes swapMemory, which is for swap shares"},
		"kept twice":              {withConfig(claimWith(swapResult("r", firstID, "1Gi", "4Gi")), configured(fromClaim, `,"swap":true,"kept":"1Gi"`)), "leave out kept"},
		"all is kept":             {withConfig(claimWith(swapResult("r", firstID, "4Gi", "4Gi")), configured(fromClaim, `,"swap":true`)), "would keep 4Gi of it on the GPU"},
		"a whole one that swaps":  {withConfig(claimWith(wholeResult("r", firstID)), configured(fromClaim, `,"swap":true`)), "a whole GPU has nobody to take turns with"},
		"part of the host's":      {withConfig(claimWith(swapResult("r", firstID, "1Gi", "1500m")), configured(fromClaim, `,"swap":true`)), "swapMemory 1500m: the amount must be a whole number"},
		"a document of others":    {withConfig(claimWith(result("r", firstID, "4Gi", "0")), configured(fromClaim, `,"backend":"remote"`)), `asks for backend remote and was given gpu-`},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := allocationsOf(c.claim, nodeName, noDefaults); !errors.Is(err, ErrClaim) || !strings.Contains(err.Error(), c.fault) {
				t.Errorf("%v, want %q", err, c.fault)
			}
		})
	}
}

// What a swap share takes of the host is its limit, and what it takes of the GPU is what it keeps there. Requests of one GPU add up.
func TestAllocationsOfSwapShares(t *testing.T) {
	claim := withConfig(claimWith(swapResult("r", firstID, "1Gi", "4Gi"), swapResult("q", firstID, "2Gi", "8Gi")), configured(fromClaim, `,"swap":true`))
	allocations, err := allocationsOf(claim, nodeName, noDefaults)
	if err != nil || len(allocations) != 2 || allocations[0].memory != 4*gib || allocations[0].config.Kept != v1alpha1.Bytes(gib) || !allocations[0].config.Swap {
		t.Fatalf("%+v, %v", allocations, err)
	}
	p, err := planOf(claim, nodeName, allocations, []view{{"q", "r"}}, nil)
	if err != nil || len(p.tenancies) != 1 || len(p.tenancies[0].Shares) != 1 {
		t.Fatalf("%+v, %v", p, err)
	}
	if s := p.tenancies[0].Shares[0]; s.Memory != 12*gib || s.Config.Kept != v1alpha1.Bytes(3*gib) || !s.Config.Swap {
		t.Errorf("the tenancy has %+v", s)
	}
	claim = withConfig(claimWith(result("r", firstID, "4Gi", "0")), configured(fromClaim, `,"suspendAfter":"10m"`))
	if allocations, err = allocationsOf(claim, nodeName, noDefaults); err != nil || allocations[0].config.SuspendAfter != v1alpha1.Duration(10*time.Minute) || allocations[0].memory != 4*gib {
		t.Errorf("one that is suspended: %+v, %v", allocations, err)
	}
}

func TestAllocationsOfOtherDrivers(t *testing.T) {
	theirs := result("nic", firstID, "1", "1")
	theirs.Driver, theirs.Pool = "nic.example.com", "elsewhere"
	allocations, err := allocationsOf(claimWith(theirs, result("r", firstID, "4Gi", "30")), nodeName, noDefaults)
	if err != nil || len(allocations) != 1 || allocations[0].memory != 4*gib || allocations[0].cores != 30 || allocations[0].uuid != firstID || allocations[0].config.Policy != v1alpha1.PolicyFixed {
		t.Errorf("%+v, %v", allocations, err)
	}
}

func TestViews(t *testing.T) {
	uses := func(requests ...[]string) []use {
		var all []use
		for i, r := range requests {
			all = append(all, use{pod: "p", container: string(rune('x' + i)), requests: r})
		}
		return all
	}
	three := []string{"q", "r", "s"}
	for name, c := range map[string]struct {
		requests []string
		uses     []use
		made     []view
		want     []view
		fault    string
	}{
		"nobody uses it":                     {three, nil, nil, []view{{"q", "r", "s"}}, ""},
		"one whole":                          {three, uses(nil), nil, []view{{"q", "r", "s"}}, ""},
		"two whole":                          {three, uses(nil, nil), nil, []view{{"q", "r", "s"}}, ""},
		"all by name":                        {three, uses([]string{"s", "q", "r"}, nil), nil, []view{{"q", "r", "s"}}, ""},
		"a request each":                     {three, uses([]string{"r"}, []string{"q"}, []string{"s"}), nil, []view{{"r"}, {"q"}, {"s"}}, ""},
		"one for two, one for one":           {three, uses([]string{"s", "q"}, []string{"r"}), nil, []view{{"q", "s"}, {"r"}}, ""},
		"the rest is kept apart":             {three, uses([]string{"r"}), nil, []view{{"r"}, {"q"}, {"s"}}, ""},
		"another driver's request":           {three, uses([]string{"nic"}, []string{"q"}), nil, []view{{"q"}, {"r"}, {"s"}}, ""},
		"whole beside a request":             {three, uses(nil, []string{"q"}), nil, nil, "container x of pod p and container y of pod p use different parts"},
		"two that overlap":                   {three, uses([]string{"q", "r"}, []string{"r", "s"}), nil, nil, "overlap"},
		"made, and used as made":             {three, uses([]string{"q"}), []view{{"q"}, {"r"}, {"s"}}, []view{{"q"}, {"r"}, {"s"}}, ""},
		"made whole, a later one wants less": {three, uses([]string{"q"}), []view{{"q", "r", "s"}}, []view{{"q", "r", "s"}}, ""},
		"made apart, a later one wants all":  {three, uses(nil), []view{{"q"}, {"r"}, {"s"}}, nil, "names q and r and s, which is prepared otherwise"},
		"privileged":                         {three, []use{{pod: "p", container: "x", privileged: true}}, nil, nil, `pod p: GPU request refused: container "x" is privileged`},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := viewsOf(c.requests, c.uses, c.made)
			if c.fault != "" {
				if !errors.Is(err, ErrClaim) || !strings.Contains(err.Error(), c.fault) {
					t.Errorf("%v, want %q", err, c.fault)
				}
				return
			}
			if err != nil || !reflect.DeepEqual(got, c.want) {
				t.Errorf("%v, %v; want %v", got, err, c.want)
			}
		})
	}
}

func TestUses(t *testing.T) {
	pod := podOf("p", map[string][]ref{"main": {{"a", "r"}, {"a", "q"}, {"b", ""}}})
	pod.Spec.InitContainers = []corev1.Container{{Name: "init", Resources: corev1.ResourceRequirements{Claims: []corev1.ResourceClaim{{Name: "the-a", Request: "r"}, {Name: "the-a"}}}}}
	pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: "side"}, corev1.Container{
		Name: "extended", SecurityContext: &corev1.SecurityContext{Privileged: ptr.To(true)},
	})
	pod.Status.ExtendedResourceClaimStatus = &corev1.PodExtendedResourceClaimStatus{
		ResourceClaimName: "a", RequestMappings: []corev1.ContainerExtendedResourceRequest{{ContainerName: "extended", ResourceName: "x", RequestName: "s"}},
	}
	got, err := usesOf(pod, claimWith())
	want := []use{
		{pod: "p", container: "init", order: []string{"a"}},
		{pod: "p", container: "main", requests: []string{"r", "q"}, others: []string{"b"}, order: []string{"a", "b"}},
		{pod: "p", container: "extended", requests: []string{"s"}, privileged: true, order: []string{"a"}},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestPlan(t *testing.T) {
	claim := claimWith(result("q", firstID, "4Gi", "30"), result("r/big", firstID, "2Gi", "10"), wholeResult("s", otherID))
	allocations, err := allocationsOf(claim, nodeName, noDefaults)
	if err != nil {
		t.Fatal(err)
	}
	fixed, weighted := allocations[0].config, allocations[2].config
	whole := agent.TenancyShare{UUID: otherID, Whole: true, Config: weighted}

	p, err := planOf(claim, nodeName, allocations, []view{{"q", "r", "s"}}, []string{"p"})
	want := []agent.Tenancy{{
		Key: string(uidA), Name: "team/a", Namespace: "team", Claim: "a", Pods: []string{"p"},
		Shares: []agent.TenancyShare{{UUID: firstID, Memory: 6 * gib, Cores: 40, Config: fixed}, whole},
	}}
	if err != nil || !reflect.DeepEqual(p.tenancies, want) {
		t.Errorf("together: %+v, %v", p.tenancies, err)
	}
	for i, device := range p.devices {
		r := claim.Status.Allocation.Devices.Results[i]
		if !reflect.DeepEqual(device.CDIDeviceIDs, []string{"divvy.dev/share=" + string(uidA)}) || device.Requests[0] != r.Request ||
			device.PoolName != nodeName || device.DeviceName != r.Device || device.ShareID != r.ShareID {
			t.Errorf("device %+v", device)
		}
	}

	p, err = planOf(claim, nodeName, allocations, []view{{"q"}, {"r", "s"}}, nil)
	if err != nil || len(p.tenancies) != 2 || p.tenancies[0].Key != string(uidA)+"/q" || p.tenancies[1].Key != string(uidA)+"/r+s" || p.tenancies[1].Name != "team/a/r+s" {
		t.Fatalf("apart: %+v, %v", p.tenancies, err)
	}
	if ids := p.devices[2].CDIDeviceIDs; ids[0] != "divvy.dev/share="+string(uidA)+":r..s" {
		t.Errorf("device %v", ids)
	}
}

func TestPlanRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		claim *resourcev1.ResourceClaim
		fault string
	}{
		"one GPU, two configurations": {withConfig(claimWith(result("q", firstID, "4Gi", "0"), result("r", firstID, "2Gi", "0")), configured(fromClaim, `,"weight":3`, "q")), "different configurations"},
		"one GPU whole twice":         {claimWith(wholeResult("q", firstID), wholeResult("r", firstID)), "allocated to it twice"},
		"one GPU whole and shared":    {claimWith(result("q", firstID, "4Gi", "0"), wholeResult("r", firstID)), "allocated to it twice"},
	} {
		t.Run(name, func(t *testing.T) {
			allocations, err := allocationsOf(c.claim, nodeName, noDefaults)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := planOf(c.claim, nodeName, allocations, []view{{"q", "r"}}, nil); !errors.Is(err, ErrClaim) || !strings.Contains(err.Error(), c.fault) {
				t.Errorf("%v, want %q", err, c.fault)
			}
			if _, err := planOf(c.claim, nodeName, allocations, []view{{"q"}, {"r"}}, nil); err != nil {
				t.Errorf("in two containers: %v", err)
			}
		})
	}
}

func TestKeysAreToldApart(t *testing.T) {
	for _, key := range []string{keyOf(uidA, view{"a"}, true), keyOf(uidA, view{"a"}, false), keyOf(uidA, view{"a-1", "b"}, false)} {
		if uid, _ := claimOf(key); uid != uidA || keyOfDevice(deviceName(key)) != key {
			t.Errorf("%s is of claim %s and comes back as %s", key, uid, keyOfDevice(deviceName(key)))
		}
	}
	if got := viewIn(keyOf(uidA, view{"a-1", "b"}, false), []string{"x"}); !reflect.DeepEqual(got, view{"a-1", "b"}) {
		t.Errorf("view %v", got)
	}
	if got := viewIn(string(uidA), []string{"x"}); !reflect.DeepEqual(got, view{"x"}) {
		t.Errorf("view %v", got)
	}
}

func TestRuntimes(t *testing.T) {
	for version, fault := range map[string]string{
		"containerd://2.0.0":              "",
		"containerd://2.3.7":              "",
		"containerd://v2.1.0-rc.1":        "",
		"cri-o://1.28.4":                  "",
		"cri-o://1.36.0":                  "",
		"containerd://1.6.20":             "use containerd 2.0 or newer",
		"containerd://1.7.28":             "silently start",
		"cri-o://1.27.9":                  "use cri-o 1.28 or newer",
		"docker://27.0.1":                 "is not known to apply the CDI devices",
		"containerd://1.6.20~ds1-1+deb12": "use containerd 2.0",
		"containerd://devel":              "cannot be read",
		"containerd":                      "is not known",
		"":                                "is not known",
	} {
		err := checkRuntime(version)
		if (err == nil) != (fault == "") || err != nil && (!errors.Is(err, ErrClaim) || !strings.Contains(err.Error(), fault)) {
			t.Errorf("%q: %v, want %q", version, err, fault)
		}
	}
}

func TestKeyedLocks(t *testing.T) {
	var locks keyedLocks
	first := locks.lock("a")
	locks.lock("b")() // another key is free
	order := make(chan string, 2)
	entered := make(chan struct{})
	go func() {
		close(entered)
		unlock := locks.lock("a")
		order <- "second"
		unlock()
	}()
	<-entered
	order <- "first"
	first()
	if got := <-order + <-order; got != "firstsecond" {
		t.Errorf("order %s", got)
	}
	unlock := locks.lock(types.UID("a"))
	unlock()
	if len(locks.locks) != 0 {
		t.Errorf("%d locks are left", len(locks.locks))
	}
}
