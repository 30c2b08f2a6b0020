package scheduler

import (
	"sync"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
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
