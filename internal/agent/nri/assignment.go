package nri

import (
	"fmt"

	"github.com/containerd/nri/pkg/api"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent"
)

// asks reports whether the pod has an annotation that Divvy's webhook writes.
func asks(pod *api.PodSandbox) bool {
	_, requested := pod.GetAnnotations()[v1alpha1.RequestAnnotation]
	_, assigned := pod.GetAnnotations()[v1alpha1.AssignmentAnnotation]
	return requested || assigned
}

// decision is what a pod asked for and what it was assigned.
type decision struct {
	request    v1alpha1.PodRequest
	assignment v1alpha1.PodAssignment
}

// decide reads a pod's annotations. It is pure. An error means that none of the
// pod's containers may be made.
func decide(pod *api.PodSandbox) (decision, error) {
	var d decision
	notes := pod.GetAnnotations()
	text, ok := notes[v1alpha1.RequestAnnotation]
	if !ok {
		return d, fmt.Errorf("the pod has the annotation %s but not %s: create it again without both", v1alpha1.AssignmentAnnotation, v1alpha1.RequestAnnotation)
	}
	var err error
	if d.request, err = v1alpha1.ParsePodRequest(text); err != nil {
		return d, err
	}
	if text, ok = notes[v1alpha1.AssignmentAnnotation]; !ok {
		return d, fmt.Errorf("the pod has no annotation %s: the scheduler that bound it does not assign GPUs; name one that does in schedulerName", v1alpha1.AssignmentAnnotation)
	}
	if d.assignment, err = v1alpha1.ParsePodAssignment(text); err != nil {
		return d, err
	}
	if err := d.assignment.Answers(pod.GetUid(), &d.request); err != nil {
		return d, fmt.Errorf("annotation %s: %w", v1alpha1.AssignmentAnnotation, err)
	}
	return d, nil
}

// tenancies returns those of a pod, in the order of its shares.
func (d *decision) tenancies(pod *api.PodSandbox) []agent.Tenancy {
	var all []agent.Tenancy
	for i := range d.assignment.Shares {
		all = append(all, d.tenancy(pod, &d.assignment.Shares[i]))
	}
	return all
}

func (d *decision) tenancy(pod *api.PodSandbox, share *v1alpha1.ShareAssigned) agent.Tenancy {
	t := agent.Tenancy{
		Key:       agent.PodKey(pod.GetUid(), share.Name),
		Name:      pod.GetNamespace() + "/" + pod.GetName(),
		Namespace: pod.GetNamespace(),
		Pods:      []string{pod.GetName()},
	}
	if len(d.assignment.Shares) > 1 {
		t.Name += "/" + share.Name
	}
	if len(share.Containers) == 1 {
		t.Container = share.Containers[0]
	}
	for _, g := range share.GPUs {
		granted := agent.TenancyShare{UUID: g.UUID, Memory: g.Memory, Cores: g.Cores, Whole: share.Whole}
		if share.Config != nil {
			granted.Config = *share.Config
		}
		t.Shares = append(t.Shares, granted)
	}
	return t
}
