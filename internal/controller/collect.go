package controller

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/dialect"
)

// KeepUnused is how long a template is kept after its last known use. The webhook notes a use when it reviews a pod, if
// the previous note is older than a quarter of this time. So a pod has three quarters of this time from its review
// until it appears here. Clocks must differ by less than that.
const KeepUnused = time.Hour

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

// unused returns the templates that the webhook made, that no pod uses, and that are old enough.
func unused(templates []*resourcev1.ResourceClaimTemplate, uses map[use]bool, now time.Time) []*resourcev1.ResourceClaimTemplate {
	var old []*resourcev1.ResourceClaimTemplate
	for _, template := range templates {
		if template.DeletionTimestamp != nil || template.Labels[v1alpha1.ManagedLabel] != v1alpha1.ManagedBy || !dialect.Genuine(template) {
			continue
		}
		last, err := time.Parse(time.RFC3339, template.Annotations[v1alpha1.UsedAnnotation])
		if err != nil {
			last = template.CreationTimestamp.Time
		}
		if !uses[use{template.Namespace, template.Name}] && now.Sub(last) >= KeepUnused {
			old = append(old, template)
		}
	}
	return old
}

// collect deletes unused templates. A template that was used since it was seen has another version, and stays; one
// that is used after it is gone is made again by the webhook.
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
