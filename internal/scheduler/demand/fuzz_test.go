package demand_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/scheduler/demand"
)

// FuzzOf reads claims that others wrote, also such as no API server lets: what is asked of the allocator is valid, what is
// refused is refused in one line, and what is placed is written and read again.
func FuzzOf(f *testing.F) {
	for _, spec := range specs(
		share("memory", "1500k", "cores", "30"), asks(v1alpha1.ClassWhole, 2), matching(joined(mig("memory", "5Gi"), mig()), "divvy.dev/parentUUID"),
		either(share("memory", "90Gi"), asks(v1alpha1.ClassMPS, 1)), distinct(joined(share(), share()), "divvy.dev/uuid"),
		configured(share(), v1alpha1.Driver, ours(`,"gpuModels":"T4"`), "gpu"), asks("any.example.com", 1, "memory", "1Ei", "cores", "1n"),
	) {
		text, err := json.Marshal(spec)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text), "A100,T4", "least-capable")
	}
	f.Add(`{"devices":{"requests":[{"name":"a","firstAvailable":[]},{"name":"b"}],"constraints":[{}]}}`, ",", "\n")
	c := every(f)
	f.Fuzz(func(t *testing.T, text, models, prefer string) {
		var spec resourcev1.ResourceClaimSpec
		if len(text) > 4<<10 || json.Unmarshal([]byte(text), &spec) != nil {
			return
		}
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{v1alpha1.ModelsAnnotation: models, v1alpha1.PreferAnnotation: prefer}}}
		claims := claimsOf(spec)
		d, err := demand.Of(pod, claims, c)
		if invalid := d.Pod().Validate(); invalid != nil && !errors.Is(err, demand.ErrDemand) {
			t.Errorf("%v is asked of the allocator, with %v", invalid, err)
		}
		if err != nil {
			if !errors.Is(err, demand.ErrDemand) && !errors.Is(err, demand.ErrElsewhere) || errors.Is(err, demand.ErrDemand) && strings.ContainsAny(err.Error(), "\n\r") {
				t.Errorf("it is refused with %q", err)
			}
			return
		}
		a, ok := c.place(t, &d)
		if !ok {
			return
		}
		written, err := d.Allocations(a, c)
		if err != nil {
			t.Fatalf("%+v cannot be written: %v", a, err)
		}
		adoptsAgain(t, c, a, written)
	})
}
