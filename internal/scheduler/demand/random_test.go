package demand_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/alloc"
	"github.com/divvy-gpu/divvy/internal/scheduler/demand"
)

func pick[T any](random *rand.Rand, all ...T) T { return all[random.IntN(len(all))] }

// randomRequest is of one of Divvy's classes.
func randomRequest(random *rand.Rand) resourcev1.ResourceClaimSpec {
	var spec resourcev1.ResourceClaimSpec
	amounts := func(names ...string) (all []string) {
		for _, name := range names {
			if random.IntN(3) > 0 {
				all = append(all, name, map[string]string{"memory": pick(random, "1", "10Gi", "1500k", "0.5Gi", "39Gi", "80Gi"), "cores": pick(random, "0", "1", "50", "99500m")}[name])
			}
		}
		return all
	}
	switch random.IntN(6) {
	case 0:
		spec = asks(pick(random, v1alpha1.ClassWhole, v1alpha1.ClassNVIDIA), int64(1+random.IntN(3)))
	case 1:
		spec = asks(v1alpha1.ClassTimeslice, int64(1+random.IntN(2)), amounts("memory")...)
	case 2:
		spec = asks(v1alpha1.ClassMPS, 1, amounts("memory", "cores")...)
	case 3:
		spec = asks("any.example.com", 1, amounts("memory")...)
	case 4:
		spec = mig("memory", pick(random, "1Gi", "11Gi", "30Gi"))
		if random.IntN(2) == 0 {
			spec = selected(mig(), profileIs+pick(random, `"1g.10gb"`, `"3g.40gb"`, `"9g.90gb"`))
		}
	default:
		spec = asks(v1alpha1.ClassShare, int64(1+random.IntN(3)), amounts("memory", "cores")...)
	}
	if random.IntN(4) == 0 {
		spec.Devices.Requests[0].Exactly.Selectors = append(spec.Devices.Requests[0].Exactly.Selectors, selecting(pick(random,
			`device.attributes["divvy.dev"].index < 2`, `device.attributes["divvy.dev"].model.contains("A100")`, `device.attributes["divvy.dev"].numaNode == 1`,
			`device.capacity["divvy.dev"].memory.compareTo(quantity("50Gi")) > 0`))...)
	}
	return spec
}

// randomClaim has one to three requests, some with alternatives, constraints and configurations.
func randomClaim(random *rand.Rand) resourcev1.ResourceClaimSpec {
	var all []resourcev1.ResourceClaimSpec
	for range 1 + random.IntN(3) {
		one := randomRequest(random)
		if random.IntN(4) == 0 {
			one = either(one, randomRequest(random))
		}
		all = append(all, one)
	}
	spec := joined(all...)
	if random.IntN(3) == 0 {
		spec = matching(spec, pick(random, "divvy.dev/numaNode", "divvy.dev/pcieSwitch", "divvy.dev/uuid", "resource.kubernetes.io/pcieRoot"))
	}
	if random.IntN(3) == 0 {
		spec = distinct(spec, "divvy.dev/uuid")
	}
	if random.IntN(3) == 0 {
		spec = configured(spec, "other.example.com", `{}`, pick(random, nil, []string{"gpu-0"}, []string{"gpu-1/way-0", "gpu-0"}, []string{"gpu-1/way-1"})...)
	}
	return spec
}

// Whatever a pod asks, what it gets is what Kubernetes would write for the same devices, and is read again as it was placed.
func TestRandomClaims(t *testing.T) {
	c := every(t)
	c.classes[v1alpha1.ClassWhole].Spec.Config = []resourcev1.DeviceClassConfiguration{{DeviceConfiguration: opaque("other.example.com", `{}`)}}
	placed, not := 0, 0
	for seed := range uint64(80) {
		random := rand.New(rand.NewPCG(seed, 5))
		var specs []resourcev1.ResourceClaimSpec
		for range 1 + random.IntN(2) {
			specs = append(specs, randomClaim(random))
		}
		_, err := demand.Of(&corev1.Pod{}, claimsOf(specs...), c)
		if err != nil {
			if !errors.Is(err, demand.ErrElsewhere) {
				t.Fatalf("seed %d: %v", seed, err)
			}
			continue
		}
		if c.check(t, &corev1.Pod{}, specs...) != nil {
			placed++
		} else {
			not++
		}
		if t.Failed() {
			t.Fatalf("seed %d: %s", seed, written(specs))
		}
	}
	t.Logf("%d placed, %d not", placed, not)
	if placed < 15 || not < 10 {
		t.Errorf("%d were placed and %d not", placed, not)
	}
}

// Places that the demand did not ask for are refused.
func TestOtherPlaces(t *testing.T) {
	c := every(t)
	d, err := demand.Of(&corev1.Pod{}, claimsOf(share("memory", "1Gi", "cores", "10"), asks(v1alpha1.ClassWhole, 2)), c)
	if err != nil {
		t.Fatal(err)
	}
	a, ok := c.place(t, &d)
	if !ok {
		t.Fatal("no place")
	}
	a.CPU, a.Memory = 1000, 1<<30
	parts := d.Parts(a)
	if len(parts) != 2 || len(parts[0].Assignment.Shares) != 1 || len(parts[1].Assignment.Shares) != 2 || parts[1].Claim.Name != "claim-1" || parts[0].Assignment.CPU != 0 || parts[0].Assignment.Memory != 0 {
		t.Errorf("parts are %+v", parts)
	}
	for text, change := range map[string]func(a *alloc.Assignment){
		"no share":                func(a *alloc.Assignment) { a.Shares = nil },
		"one share too few":       func(a *alloc.Assignment) { a.Shares = a.Shares[:2] },
		"another request":         func(a *alloc.Assignment) { a.Shares[0].Claim = 7 },
		"another alternative":     func(a *alloc.Assignment) { a.Shares[0].Alternative = 1 },
		"a GPU that is not there": func(a *alloc.Assignment) { a.Shares[0].UUID = "GPU-gone" },
		"other memory":            func(a *alloc.Assignment) { a.Shares[0].Limit++ },
		"other cores":             func(a *alloc.Assignment) { a.Shares[0].Cores++ },
		"another node":            func(a *alloc.Assignment) { a.Name = "gone" },
	} {
		changed := a
		changed.Shares = append([]alloc.Share{}, a.Shares...)
		change(&changed)
		if _, err := d.Allocations(changed, c); !errors.Is(err, demand.ErrPlace) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// A device that is not published any more is read by its name; what monitors have is not read.
func TestAdoptOfWhatIsGone(t *testing.T) {
	c := every(t)
	spec := asks(v1alpha1.ClassWhole, 1)
	claim := claimsOf(spec)[0]
	if _, ok := demand.Adopt(&claim, c); ok {
		t.Error("a claim without an allocation holds something")
	}
	yes := true
	claim.Allocation = &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{Results: []resourcev1.DeviceRequestAllocationResult{
		{Request: "gpu", Driver: v1alpha1.Driver, Pool: "gone", Device: "gpu-00000999-0000-0000-0000-000000000000-shared",
			ConsumedCapacity: map[resourcev1.QualifiedName]resource.Quantity{"memory": resource.MustParse("8Gi"), "cores": resource.MustParse("0")}},
		{Request: "gpu", Driver: v1alpha1.Driver, Pool: "gone", Device: "gpu-00000998-0000-0000-0000-000000000000-mig-2g20gb-2"},
		{Request: "gpu", Driver: v1alpha1.Driver, Pool: "gone", Device: "gpu-00000997-0000-0000-0000-000000000000-shared", AdminAccess: &yes},
		{Request: "gpu", Driver: "nic.example.com", Pool: "gone", Device: "nic-0"},
		{Request: "gpu", Driver: v1alpha1.Driver, Pool: "gone", Device: "strange"},
	}}}
	a, ok := demand.Adopt(&claim, c)
	want := fmt.Sprint([]alloc.Share{
		{UUID: "GPU-00000999-0000-0000-0000-000000000000", Limit: 8 << 30, Cores: 100, Whole: true},
		{UUID: "GPU-00000998-0000-0000-0000-000000000000", Profile: "2g.20gb", Start: 2},
	})
	if !ok || a.Name != "gone" || fmt.Sprint(a.Shares) != want {
		t.Errorf("adopted is %+v, want %s", a, want)
	}
}
