package explanation

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/divvy-gpu/divvy/internal/scheduler/gang"
)

// groups finds the objects of the cluster that describe gangs, and asks for each once.
type groups struct {
	ctx     context.Context //nolint:containedctx // gang.PodGroups takes none: a scheduler answers from memory
	client  kubernetes.Interface
	objects dynamic.Interface

	known map[groupKey]*gang.PodGroup
	// err is the first failure other than that there is no such object, which is also what a cluster answers that does not
	// serve its kind.
	err error
}

type groupKey struct {
	form            gang.Form
	namespace, name string
}

// PodGroup implements gang.PodGroups.
func (g *groups) PodGroup(form gang.Form, namespace, name string) (gang.PodGroup, bool) {
	key := groupKey{form, namespace, name}
	found, asked := g.known[key]
	if !asked {
		var err error
		if found, err = g.ask(key); err != nil && !apierrors.IsNotFound(err) && g.err == nil {
			g.err = fmt.Errorf("read PodGroup %s of namespace %s: %w", name, namespace, err)
		}
		g.known[key] = found
	}
	if found == nil {
		return gang.PodGroup{}, false
	}
	return *found, true
}

// ask returns nil without an error for a form that has no objects.
func (g *groups) ask(key groupKey) (*gang.PodGroup, error) {
	if key.form == gang.FormKubernetes {
		object, err := g.client.SchedulingV1alpha2().PodGroups(key.namespace).Get(g.ctx, key.name, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		group := gang.FromKubernetes(object)
		return &group, nil
	}
	resource, ok := key.form.Resource()
	if !ok {
		return nil, nil
	}
	object, err := g.objects.Resource(resource).Namespace(key.namespace).Get(g.ctx, key.name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	group := gang.FromObject(key.form, object.Object)
	return &group, nil
}
