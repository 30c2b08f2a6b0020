package webhook

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/dialect"
)

// read returns how many claims and templates were read since the last call.
func (w *world) read() (n int) {
	for _, action := range w.client.Actions() {
		if action.GetVerb() == "get" {
			n++
		}
	}
	w.client.ClearActions()
	return n
}

// TestValidatePodReadsLittle has pods name claims without end: few are read, each once, and none for containers in which
// nothing can be wrong.
func TestValidatePodReadsLittle(t *testing.T) {
	two := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "space", Name: "two"}}
	two.Spec.Devices.Requests = []resourcev1.DeviceRequest{{Name: "gpu", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: v1alpha1.ClassShare}}}
	w := newWorld(t, "{plain: {}}", two)
	validate := func(container, claims string) error {
		t.Helper()
		_, err := w.judge.validatePod(t.Context(), podRequest(t, "{spec: {containers: ["+container+"], resourceClaims: ["+claims+"]}}"))
		return err
	}
	var uses, claims []string
	for i := range 1000 {
		uses = append(uses, fmt.Sprintf("{name: c%d}", i))
		claims = append(claims, fmt.Sprintf("{name: c%d, resourceClaimName: claim-%d}", i, i))
	}
	if err := validate("{name: a, resources: {claims: ["+strings.Join(uses, ",")+"]}}", strings.Join(claims, ",")); err != nil || w.read() != mostRead {
		t.Errorf("1000 claims: %v, or other than %d were read", err, mostRead)
	}
	same := strings.NewReplacer("claim-1}", "claim-0}", "claim-2}", "claim-0}").Replace(strings.Join(claims[:3], ","))
	if err := validate("{name: a, resources: {claims: ["+strings.Join(uses[:3], ",")+"]}}", same); err != nil || w.read() != 1 {
		t.Errorf("one claim by three names: %v, or it was read again", err)
	}
	const both = "{name: a, resources: {claims: [{name: c0}]}}, {name: b, securityContext: {privileged: true}, resources: {claims: [{name: c1}]}}"
	if err := validate(both, strings.Replace(strings.Join(claims[:2], ","), "claim-1", "two", 1)); !errors.Is(err, dialect.ErrRefused) || w.read() != 1 {
		t.Errorf("a privileged container: %v, or the other's claim was read", err)
	}
	w.judge.specs.rate = flowcontrol.NewFakeNeverRateLimiter()
	if err := validate(both, strings.Replace(strings.Join(claims[:2], ","), "claim-1", "two", 1)); err != nil || w.read() != 0 {
		t.Errorf("too much was read in this second: %v, or more was read", err)
	}
}
