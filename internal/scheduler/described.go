package scheduler

import (
	"bytes"
	"encoding/json"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/dialect"
)

// described keeps what pods describe of claims, because it is asked for at every turn. Anybody may call its methods.
type described struct {
	all sync.Map // types.UID: *description
}

type description struct {
	text  string
	specs map[string]resourcev1.ResourceClaimSpec
	err   error
}

// of is what a pod describes.
func (d *described) of(pod *corev1.Pod) (map[string]resourcev1.ResourceClaimSpec, error) {
	text, ok := pod.Annotations[v1alpha1.ClaimsAnnotation]
	if !ok {
		return nil, nil
	}
	if known, ok := d.all.Load(pod.UID); ok {
		if known, ok := known.(*description); ok && known.text == text {
			return known.specs, known.err
		}
	}
	made := &description{text: text}
	made.specs, made.err = dialect.Described(pod)
	d.all.Store(pod.UID, made)
	return made.specs, made.err
}

func (d *described) forget(uid types.UID) { d.all.Delete(uid) }

// asDescribed says why a claim that is there is not the one that its pod describes: whoever may make claims can make one of
// that name, with the pod as its owner, before the scheduler does.
func asDescribed(claim *resourcev1.ResourceClaim, described *resourcev1.ResourceClaimSpec) error {
	if equality.Semantic.DeepEqual(compact(&claim.Spec), compact(described)) {
		return nil
	}
	return fmt.Errorf("%w: claim %s is there and asks for something else than its pod describes: delete the claim, and the scheduler makes it", ErrWait, claim.Name)
}

// compact is what a claim asks, with its configuration as it is written without white space.
func compact(spec *resourcev1.ResourceClaimSpec) *resourcev1.ResourceClaimSpec {
	made := spec.DeepCopy()
	for i := range made.Devices.Config {
		if opaque := made.Devices.Config[i].Opaque; opaque != nil {
			var text bytes.Buffer
			if json.Compact(&text, opaque.Parameters.Raw) == nil {
				opaque.Parameters.Raw = text.Bytes()
			}
		}
	}
	return made
}
