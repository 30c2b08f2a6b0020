package webhook

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/divvy-gpu/divvy/internal/dialect"
)

const (
	// mostRead is how many claims and templates are read for one pod.
	mostRead = 32
	// readRate is how many are read in a second for all pods, and readBurst how many at once. The rest of what the server
	// may ask is for what it follows and for its certificates.
	readRate, readBurst = 100, 200
)

// specs reads what pods' claims ask. Whoever makes pods decides how much there is to read, so what is beyond the bounds
// is not read: it is left to the agents, which refuse the same.
type specs struct {
	client kubernetes.Interface
	rate   flowcontrol.PassiveRateLimiter
}

func newSpecs(client kubernetes.Interface) *specs {
	return &specs{client: client, rate: flowcontrol.NewTokenBucketPassiveRateLimiter(readRate, readBurst)}
}

// of returns what those claims of a pod ask that are named, by their names in the pod. One that does not exist yet, or
// is beyond the bounds, is left out.
func (s *specs) of(ctx context.Context, namespace string, pod *corev1.Pod, names []string) (map[string]*resourcev1.ResourceClaimSpec, error) {
	// What a translated pod carries may not have been made yet. A forged annotation is the controller's to refuse.
	carried, _ := dialect.Carried(pod)
	known := make(map[source]*resourcev1.ResourceClaimSpec)
	for i := range carried {
		known[source{template: carried[i].Name}] = &carried[i].Spec.Spec
	}
	described, _ := dialect.Described(pod)
	for name, spec := range described {
		known[source{claim: name}] = &spec
	}
	sources := sourcesOf(pod)
	found := make(map[string]*resourcev1.ResourceClaimSpec)
	read := 0
	for _, name := range names {
		from, ok := sources[name]
		if !ok {
			continue
		}
		spec, seen := known[from]
		if !seen && read < mostRead && s.rate.TryAccept() {
			read++
			var err error
			if spec, err = s.read(ctx, namespace, from); err != nil {
				return nil, err
			}
			known[from] = spec
		}
		if spec != nil {
			found[name] = spec
		}
	}
	return found, nil
}

// source is where it stands what a pod's claim asks: in a claim or in a template, whose name is not empty.
type source struct{ claim, template string }

// sourcesOf are those of a pod's claims, by their names in the pod.
func sourcesOf(pod *corev1.Pod) map[string]source {
	all := make(map[string]source)
	for i := range pod.Spec.ResourceClaims {
		switch use := &pod.Spec.ResourceClaims[i]; {
		case use.ResourceClaimTemplateName != nil:
			all[use.Name] = source{template: *use.ResourceClaimTemplateName}
		case use.ResourceClaimName != nil:
			all[use.Name] = source{claim: *use.ResourceClaimName}
		}
	}
	return all
}

// read asks the API server. What does not exist is nil.
func (s *specs) read(ctx context.Context, namespace string, from source) (*resourcev1.ResourceClaimSpec, error) {
	if from.template != "" {
		template, err := s.client.ResourceV1().ResourceClaimTemplates(namespace).Get(ctx, from.template, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return nil, nil
		case err != nil:
			return nil, fmt.Errorf("read the claim template %s: %w", from.template, err)
		}
		return &template.Spec.Spec, nil
	}
	claim, err := s.client.ResourceV1().ResourceClaims(namespace).Get(ctx, from.claim, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read the claim %s: %w", from.claim, err)
	}
	return &claim.Spec, nil
}
