package dialect

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	kjson "sigs.k8s.io/json"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// describeClaims gives each claim of a pod that Divvy's scheduler is to place a name of its own, and says what it holds.
// The scheduler makes the claims when it binds the pod, so that the pod waits for nobody else.
func describeClaims(pod *corev1.Pod, claims []claim, inventory Inventory) (map[string]resourcev1.ResourceClaimSpec, error) {
	if inventory.Name == nil {
		return nil, errors.New("nothing gives names to claims")
	}
	described := make(map[string]resourcev1.ResourceClaimSpec, len(claims))
	for i := range claims {
		spec, err := claimSpec(claims[i].request, inventory, claims[i].request.Container.of(pod).Name)
		if err != nil {
			return nil, err
		}
		claims[i].made = inventory.Name()
		described[claims[i].made] = spec
	}
	return described, nil
}

// describe returns the annotation that describes the claims of this translation, beside those that the pod has already:
// something may have added a container since it was translated.
func (m *Translation) describe(pod *corev1.Pod) (string, error) {
	before, err := Described(pod)
	if err != nil {
		return "", err
	}
	all := make(map[string]resourcev1.ResourceClaimSpec, len(before)+len(m.Described))
	maps.Copy(all, before)
	maps.Copy(all, m.Described)
	if len(all) > MostContainers {
		return "", refuse("%d containers of the pod ask for GPUs, more than the %d that may in one pod: use several pods", len(all), MostContainers)
	}
	text, err := json.Marshal(all)
	if err != nil || len(text) > longestCarried {
		return "", refuse("what the pod asks of GPUs takes %d bytes to write, more than %d: ask for amounts of memory instead of parts, or for less by name", len(text), longestCarried)
	}
	return string(text), nil
}

// Described returns the claims that a pod describes for Divvy's scheduler, by their names; none where it has no such
// annotation. An error wraps [ErrRefused], says in one line what is wrong, and means that somebody else than a
// translation wrote the annotation, or changed it: nothing of it may then be made.
func Described(pod *corev1.Pod) (map[string]resourcev1.ResourceClaimSpec, error) {
	text, ok := pod.Annotations[v1alpha1.ClaimsAnnotation]
	if !ok {
		return nil, nil
	}
	forged := func(format string, args ...any) error {
		return refuse("annotation %s is written by Divvy, and %s: leave it out", v1alpha1.ClaimsAnnotation, fmt.Sprintf(format, args...))
	}
	if len(text) > longestCarried {
		return nil, forged("is never as long as here")
	}
	var specs map[string]resourcev1.ResourceClaimSpec
	faults, err := kjson.UnmarshalStrict([]byte(text), &specs)
	if err := errors.Join(append(faults, err)...); err != nil {
		return nil, forged("does not read: %v", err)
	}
	if len(specs) == 0 || len(specs) > MostContainers {
		return nil, forged("never describes %d claims", len(specs))
	}
	named := make(map[string]bool)
	for i := range pod.Spec.ResourceClaims {
		if name := pod.Spec.ResourceClaims[i].ResourceClaimName; name != nil {
			named[*name] = true
		}
	}
	for _, name := range sortedKeys(specs) {
		spec := specs[name]
		switch err := CheckTranslated(&spec); {
		case !v1alpha1.IsClaimName(name):
			return nil, forged("never calls a claim %q", name)
		case !named[name]:
			return nil, forged("describes claims that the pod names, but not %s", name)
		case err != nil:
			return nil, forged("never asks what %s asks (%v)", name, err)
		}
	}
	return specs, nil
}
