package demand_test

import (
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/dra/pool"
	"github.com/divvy-gpu/divvy/internal/scheduler/demand"
)

// swapShare is a claim for swap shares.
func swapShare(count int64, kept, limit string) resourcev1.ResourceClaimSpec {
	return configured(asks(v1alpha1.ClassShare, count, "memory", kept, "swapMemory", limit), v1alpha1.Driver, ours(`,"swap":true`))
}

// swapCluster has a node whose two GPUs swap, with turns of 40 GiB, beside one that does not.
func swapCluster(t *testing.T) *cluster {
	t.Helper()
	gpus := gpusOf(0, 2, 80<<30)
	for i := range gpus {
		gpus[i].Capability = "9.0"
	}
	pool.Divide(gpus, 128<<30, v1alpha1.Percent(50))
	return newCluster(t, gpusOf(100, 2, 80<<30), gpus)
}

// Swap shares are placed as Kubernetes' own allocator would, and not where it would not.
func TestSwapShares(t *testing.T) {
	c := swapCluster(t)
	for name, test := range map[string]struct {
		claims []resourcev1.ResourceClaimSpec
		want   string
	}{
		"one":                      {specs(swapShare(1, "4Gi", "40Gi")), "shared"},
		"an odd amount":            {specs(swapShare(1, "1500k", "20000001")), "shared"},
		"of two GPUs":              {specs(swapShare(2, "4Gi", "40Gi")), "2 shared"},
		"three on two GPUs":        {specs(swapShare(1, "4Gi", "40Gi"), swapShare(1, "4Gi", "40Gi"), swapShare(1, "4Gi", "24Gi")), "3 shared"},
		"beside an ordinary share": {specs(swapShare(2, "4Gi", "40Gi"), share("memory", "36Gi")), "3 shared"},
		"more than a turn":         {specs(swapShare(1, "4Gi", "41Gi")), ""},
		"of three GPUs":            {specs(swapShare(3, "1Gi", "4Gi")), ""},
		"more than is kept for":    {specs(swapShare(1, "39Gi", "40Gi"), swapShare(1, "39Gi", "40Gi"), swapShare(1, "2Gi", "4Gi")), ""},
		"more than the host has":   {specs(swapShare(2, "1Gi", "40Gi"), swapShare(2, "1Gi", "25Gi")), ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := short(c.check(t, &corev1.Pod{}, test.claims...)); got != test.want {
				t.Errorf("devices are %q, want %q", got, test.want)
			}
		})
	}
}

func TestSwapSharesRefuse(t *testing.T) {
	c := swapCluster(t)
	for text, spec := range map[string]resourcev1.ResourceClaimSpec{
		"it takes swapMemory, which is for swap shares": share("memory", "1Gi", "swapMemory", "4Gi"),
		"name both":                          configured(share("memory", "1Gi"), v1alpha1.Driver, ours(`,"swap":true`)),
		"would keep all of the GPU's memory": configured(share("swapMemory", "4Gi"), v1alpha1.Driver, ours(`,"swap":true`)),
		"would keep 4Gi of it on the GPU":    swapShare(1, "4Gi", "4Gi"),
		"leave out kept":                     configured(share("memory", "1Gi", "swapMemory", "4Gi"), v1alpha1.Driver, ours(`,"swap":true,"kept":"1Gi"`)),
		"swapMemory 0: give an amount":       swapShare(1, "1Gi", "0"),
		"swapMemory 1e30: give an amount":    swapShare(1, "1Gi", "1e30"),
	} {
		_, err := demand.Of(&corev1.Pod{}, claimsOf(spec), c)
		if !errors.Is(err, demand.ErrDemand) || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v", text, err)
		}
	}
}
