package demand_test

import (
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/scheduler/demand"
)

// Claims for GPUs that nodes reach through the network are for Kubernetes' own allocator, whether they have their devices or not,
// and those that nothing can satisfy are refused.
func TestReachedGPUs(t *testing.T) {
	c := every(t)
	remote := func(count int64, amounts ...string) resourcev1.ResourceClaimSpec {
		return asks(v1alpha1.ClassRemote, count, amounts...)
	}
	two := remote(2)
	host := resourcev1.FullyQualifiedName(v1alpha1.Driver + "/" + v1alpha1.AttributeHost)
	two.Devices.Constraints = []resourcev1.DeviceConstraint{{MatchAttribute: &host}}
	for name, spec := range map[string]resourcev1.ResourceClaimSpec{
		"one": remote(1, "memory", "1Gi", "cores", "30"), "two of one host": two,
		"configured": configured(remote(1), v1alpha1.Driver, ours(`,"weight":2`)),
	} {
		if _, err := demand.Of(&corev1.Pod{}, claimsOf(spec), c); !errors.Is(err, demand.ErrElsewhere) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for text, spec := range map[string]resourcev1.ResourceClaimSpec{
		"must be of one host": remote(2), "cores 101: ": remote(1, "cores", "101"),
		"write class mps.divvy.dev":    configured(remote(1), v1alpha1.Driver, ours(`,"backend":"mps"`)),
		"write class remote.divvy.dev": configured(share(), v1alpha1.Driver, ours(`,"backend":"remote"`)),
	} {
		if _, err := demand.Of(&corev1.Pod{}, claimsOf(spec), c); !errors.Is(err, demand.ErrDemand) || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v", text, err)
		}
	}
	given := claimsOf(remote(1))
	given[0].Allocation = &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{Results: []resourcev1.DeviceRequestAllocationResult{
		{Driver: v1alpha1.Driver, Pool: v1alpha1.RemotePool("g1"), Device: "gpu-1-remote"},
	}}}
	if d, err := demand.Of(&corev1.Pod{}, given, c); !errors.Is(err, demand.ErrElsewhere) || d.Node() != "" {
		t.Errorf("a claim that has its device: %q, %v", d.Node(), err)
	}
}
