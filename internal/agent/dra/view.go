package dra

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"k8s.io/utils/ptr"

	"github.com/divvy-gpu/divvy/internal/dialect"
)

// view is the part of a claim that a container gets: the names of its requests in
// order, without alternatives. A container has one tenant, so a view is one tenant;
// containers with the same view share it.
type view []string

// use is how a container names a claim.
type use struct {
	pod, container string
	// requests are those named; none means all.
	requests   []string
	privileged bool
	// class is the pod's runtime class, nil if it names none.
	class *string
	// others are the further claims that the container names; order are all of them, in its order.
	others, order []string
}

// usesOf finds the containers of a pod that use a claim.
func usesOf(pod *corev1.Pod, claim *resourcev1.ResourceClaim) ([]use, error) {
	claims := map[string]string{} // the claims' names by what the pod calls them
	for i := range pod.Spec.ResourceClaims {
		name, _, err := resourceclaim.Name(pod, &pod.Spec.ResourceClaims[i])
		if err != nil {
			return nil, fmt.Errorf("find the claims of pod %s: %w", pod.Name, err)
		}
		claims[pod.Spec.ResourceClaims[i].Name] = ptr.Deref(name, "")
	}
	var uses []use
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			if u, ok := useOf(pod, &containers[i], claims, claim.Name); ok {
				uses = append(uses, u)
			}
		}
	}
	return uses, nil
}

func useOf(pod *corev1.Pod, c *corev1.Container, claims map[string]string, claim string) (use, bool) {
	u := use{pod: pod.Name, container: c.Name, class: pod.Spec.RuntimeClassName, privileged: dialect.Privileged(c)}
	used, all := false, false
	name := func(name, request string) {
		if name != "" && !slices.Contains(u.order, name) {
			u.order = append(u.order, name)
		}
		switch {
		case name != claim && name != "" && !slices.Contains(u.others, name):
			u.others = append(u.others, name)
		case name == claim:
			used = true
			all = all || request == ""
			u.requests = append(u.requests, request)
		}
	}
	for _, r := range c.Resources.Claims {
		name(claims[r.Name], r.Request)
	}
	if extended := pod.Status.ExtendedResourceClaimStatus; extended != nil {
		for _, m := range extended.RequestMappings {
			if m.ContainerName == c.Name {
				name(extended.ResourceClaimName, m.RequestName)
			}
		}
	}
	if all {
		u.requests = nil
	}
	return u, used
}

// viewsOf divides a claim's requests into views by how containers use them. Requests
// that no container names get views too, so that the ledger has everything that the
// scheduler allocated. A division that exists already stays, if each container finds
// what it names within one view. It is pure.
func viewsOf(requests []string, uses []use, made []view) ([]view, error) {
	var views []view
	owners := map[string]use{} // by a view's first request
	for _, u := range uses {
		v := u.view(requests)
		switch {
		case len(v) == 0:
			continue // it names another driver's requests
		case u.privileged:
			return nil, fault("pod %s: %w", u.pod, dialect.RefusePrivileged(u.container))
		case len(made) > 0:
			if !slices.ContainsFunc(made, func(m view) bool { return m.contains(v) }) {
				return nil, fault("container %s of pod %s names %s, which is prepared otherwise for pods that use it already: give the pod a claim of its own",
					u.container, u.pod, strings.Join(v, " and "))
			}
			continue
		}
		known := false
		for _, other := range views {
			if slices.Equal(other, v) {
				known = true
			} else if other.overlaps(v) {
				first := owners[other[0]]
				return nil, fault("container %s of pod %s and container %s of pod %s use different parts of it that overlap: let both use the whole claim, or give each requests of its own",
					first.container, first.pod, u.container, u.pod)
			}
		}
		if !known {
			views = append(views, v)
			owners[v[0]] = u
		}
	}
	if len(made) > 0 {
		return made, nil
	}
	return append(views, unused(requests, views)...), nil
}

// containerOf is the name of the one container that uses a part of a claim; empty where several do, or none.
func containerOf(v view, requests []string, uses []use) string {
	name := ""
	for i := range uses {
		switch {
		case len(uses[i].view(requests)) == 0 || !v.contains(uses[i].view(requests)):
		case name != "" && name != uses[i].container:
			return ""
		default:
			name = uses[i].container
		}
	}
	return name
}

// unused returns the requests that are in no view, or all together if there is no
// view.
func unused(requests []string, views []view) []view {
	if len(views) == 0 {
		return []view{requests}
	}
	var rest []view
	for _, r := range requests {
		if !slices.ContainsFunc(views, func(v view) bool { return slices.Contains(v, r) }) {
			rest = append(rest, view{r})
		}
	}
	return rest
}

// view is what the container uses of these requests.
func (u *use) view(requests []string) view {
	if u.requests == nil {
		return requests
	}
	return slices.DeleteFunc(slices.Clone(requests), func(r string) bool { return !slices.Contains(u.requests, r) })
}

func (v view) contains(w view) bool {
	return !slices.ContainsFunc(w, func(r string) bool { return !slices.Contains(v, r) })
}

func (v view) overlaps(w view) bool {
	return slices.ContainsFunc(w, func(r string) bool { return slices.Contains(v, r) })
}

// placeOf says where a request stands in a claim. What a scheduler allocated is put into this order, in which a container's devices are
// numbered; an unknown request is before the others.
func placeOf(claim *resourcev1.ResourceClaim, base string) int {
	return slices.IndexFunc(claim.Spec.Devices.Requests, func(r resourcev1.DeviceRequest) bool { return r.Name == base })
}

// requestsOf are the requests of allocations, in order, each once.
func requestsOf(allocations []allocation) []string {
	names := map[string]bool{}
	for i := range allocations {
		names[allocations[i].base] = true
	}
	return slices.Sorted(maps.Keys(names))
}
