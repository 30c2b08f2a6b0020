package controller

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/dialect"
)

const (
	// KeepUnused is how long a template is kept after its last known use, for the next pod that asks the same.
	KeepUnused = time.Hour
	// mostUnused is how many templates of one namespace are kept that no pod uses, those used last.
	mostUnused = 100
)

// collectEvery is how often unused templates are looked for.
const collectEvery = time.Minute

// use is a template that a pod names.
type use struct{ namespace, template string }

// usesOf returns the templates that unfinished pods name. A finished pod creates no more claims.
func usesOf(pods []*corev1.Pod) map[use]bool {
	uses := make(map[use]bool)
	for _, pod := range pods {
		if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
			continue
		}
		for _, claim := range pod.Spec.ResourceClaims {
			if claim.ResourceClaimTemplateName != nil {
				uses[use{pod.Namespace, *claim.ResourceClaimTemplateName}] = true
			}
		}
	}
	return uses
}

// unused returns the templates of translated pods that no pod uses, and that are old enough or too many in their
// namespace.
func unused(templates []*resourcev1.ResourceClaimTemplate, uses map[use]bool, now time.Time) []*resourcev1.ResourceClaimTemplate {
	idle := make(map[string][]*resourcev1.ResourceClaimTemplate)
	for _, template := range templates {
		if managed(template) && template.DeletionTimestamp == nil && !uses[use{template.Namespace, template.Name}] {
			idle[template.Namespace] = append(idle[template.Namespace], template)
		}
	}
	var old []*resourcev1.ResourceClaimTemplate
	for _, namespace := range slices.Sorted(maps.Keys(idle)) {
		all := idle[namespace]
		slices.SortFunc(all, func(a, b *resourcev1.ResourceClaimTemplate) int {
			return cmp.Or(lastUse(b).Compare(lastUse(a)), cmp.Compare(a.Name, b.Name))
		})
		for i, template := range all {
			if i >= mostUnused || now.Sub(lastUse(template)) >= KeepUnused {
				old = append(old, template)
			}
		}
	}
	return old
}

// managed reports whether a template was made for a translated pod.
func managed(template *resourcev1.ResourceClaimTemplate) bool {
	return template.Labels[v1alpha1.ManagedLabel] == v1alpha1.ManagedBy && dialect.Genuine(template)
}

// lastUse is when a pod last asked for a template, as far as that is noted.
func lastUse(template *resourcev1.ResourceClaimTemplate) time.Time {
	if used, err := time.Parse(time.RFC3339, template.Annotations[v1alpha1.UsedAnnotation]); err == nil {
		return used
	}
	return template.CreationTimestamp.Time
}

// collect deletes unused templates. A template that was used since it was seen has another version, and stays; one
// that a pod needs after it is gone is made again.
func (c *controller) collect(ctx context.Context) {
	templates, pods, err := c.known.templatesAndPods()
	if err != nil {
		c.log.Error("the claim templates cannot be listed", "error", err)
		return
	}
	for _, template := range unused(templates, usesOf(pods), c.now()) {
		switch err := c.remove(ctx, template); {
		case apierrors.IsNotFound(err), apierrors.IsConflict(err), ctx.Err() != nil:
		case err != nil:
			c.log.Error("a claim template cannot be collected; trying again", "error", err)
		default:
			c.collected.Inc()
			c.log.Info("collected a claim template that no pod uses", "namespace", template.Namespace, "name", template.Name)
		}
	}
}

func (c *controller) remove(ctx context.Context, template *resourcev1.ResourceClaimTemplate) error {
	err := c.client.ResourceV1().ResourceClaimTemplates(template.Namespace).Delete(ctx, template.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &template.UID, ResourceVersion: &template.ResourceVersion},
	})
	if err != nil {
		return fmt.Errorf("delete the claim template %s/%s: %w", template.Namespace, template.Name, err)
	}
	return nil
}
