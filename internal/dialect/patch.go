package dialect

import (
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Operation is one step of a JSON patch (RFC 6902).
type Operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

// Patch is a JSON patch; empty, it changes nothing.
type Patch []Operation

func (p *Patch) remove(path ...string) {
	*p = append(*p, Operation{Op: "remove", Path: pointer(path)})
}

func (p *Patch) add(value any, path ...string) {
	*p = append(*p, Operation{Op: "add", Path: pointer(path), Value: value})
}

// escaped writes a step of a JSON pointer (RFC 6901).
var escaped = strings.NewReplacer("~", "~0", "/", "~1")

func pointer(path []string) string {
	var b strings.Builder
	for _, step := range path {
		b.WriteByte('/')
		b.WriteString(escaped.Replace(step))
	}
	return b.String()
}

// patch writes the steps in one order: containers, then the pod's claims, scheduler and annotations.
func (t *Translator) patch(pod *corev1.Pod, by []spoken, claims []claim, inventory Inventory) Patch {
	var p Patch
	for _, ref := range containersOf(pod) {
		path := []string{"spec", "containers", strconv.Itoa(ref.Index), "resources"}
		if ref.Init {
			path[1] = "initContainers"
		}
		container := ref.of(pod)
		for _, s := range by {
			if slices.Contains(s.in, ref) {
				p.removeOwned(s.names, container.Resources.Limits, inventory, append(path, "limits"))
				p.removeOwned(s.names, container.Resources.Requests, inventory, append(path, "requests"))
			}
		}
		for _, c := range claims {
			if slices.Contains(c.users, ref) {
				use := corev1.ResourceClaim{Name: c.name}
				if len(container.Resources.Claims) == 0 {
					p.add([]corev1.ResourceClaim{use}, append(path, "claims")...)
				} else {
					p.add(use, append(path, "claims", "-")...)
				}
			}
		}
	}
	p.addClaims(pod, claims)
	switch scheduler := pod.Spec.SchedulerName; {
	case t.foreign(scheduler):
		p = append(p, Operation{Op: "replace", Path: "/spec/schedulerName", Value: t.scheduler})
	case t.makes() && t.replaces(scheduler):
		p.add(t.scheduler, "spec", "schedulerName")
	}
	for _, s := range by {
		for _, name := range s.names.Annotations {
			if _, ok := pod.Annotations[name]; ok {
				p.remove("metadata", "annotations", name)
			}
		}
	}
	return p
}

// label adds labels that the pod does not have.
func (p *Patch) label(pod *corev1.Pod, labels map[string]string) {
	if len(labels) > 0 && pod.Labels == nil {
		p.add(labels, "metadata", "labels")
		return
	}
	for _, name := range sortedKeys(labels) {
		p.add(labels[name], "metadata", "labels", name)
	}
}

// removeOwned takes what a dialect owns out of a list. Where a LimitRange names it, it stays as 0.
func (p *Patch) removeOwned(names Names, list corev1.ResourceList, inventory Inventory, path []string) {
	for _, name := range sortedKeys(list) {
		switch at := append(slices.Clone(path), string(name)); {
		case !names.ownsResource(string(name)):
		case inventory.names(string(name)):
			*p = append(*p, Operation{Op: "replace", Path: pointer(at), Value: "0"})
		default:
			p.remove(at...)
		}
	}
}

func (p *Patch) addClaims(pod *corev1.Pod, claims []claim) {
	if len(claims) == 0 {
		return
	}
	var added []corev1.PodResourceClaim
	for i := range claims {
		one := corev1.PodResourceClaim{Name: claims[i].name}
		if claims[i].made != "" {
			one.ResourceClaimName = &claims[i].made
		} else {
			one.ResourceClaimTemplateName = &claims[i].template
		}
		added = append(added, one)
	}
	if len(pod.Spec.ResourceClaims) == 0 {
		p.add(added, "spec", "resourceClaims")
		return
	}
	for _, c := range added {
		p.add(c, "spec", "resourceClaims", "-")
	}
}
