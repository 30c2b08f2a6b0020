package webhook

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/dialect"
)

// manager is the name under which the server's writes are recorded.
const manager = v1alpha1.ManagedBy

// RenewAfter is how old the note of a template's last use may be before a further use renews it. The controller must
// keep templates that were used within a multiple of it, because a pod appears only some time after its review.
const RenewAfter = 15 * time.Minute

// templates creates templates at the API server. It reads them there and not from a cache: the cache may still show a
// template that the controller has deleted, and the pod would wait for it.
type templates struct {
	client kubernetes.Interface
	now    func() time.Time
}

// ensure makes sure that the template exists with its content and counts as used from now on. A dry run asks the API
// server to do the same without effect.
func (t templates) ensure(ctx context.Context, template *resourcev1.ResourceClaimTemplate, dryRun bool) error {
	const attempts = 4
	var err error
	for range attempts {
		var existing *resourcev1.ResourceClaimTemplate
		existing, err = t.client.ResourceV1().ResourceClaimTemplates(template.Namespace).Get(ctx, template.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			err = t.create(ctx, template, dryRun)
			if !apierrors.IsAlreadyExists(err) {
				return err
			}
		case err != nil:
			return fmt.Errorf("read the claim template %s: %w", template.Name, err)
		case !dialect.Genuine(existing):
			return fmt.Errorf("%w: the claim template %s of this namespace has another content than this request needs: delete it", dialect.ErrRefused, template.Name)
		case existing.DeletionTimestamp != nil:
			return fmt.Errorf("%w: the claim template %s is being deleted: try again when it is gone", dialect.ErrRefused, template.Name)
		case dryRun || t.fresh(existing):
			return nil
		default:
			err = t.renew(ctx, existing)
			if !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
				return err
			}
		}
	}
	return fmt.Errorf("create the claim template %s, which was gone again after each of %d tries: %w", template.Name, attempts, err)
}

func (t templates) create(ctx context.Context, template *resourcev1.ResourceClaimTemplate, dryRun bool) error {
	made := template.DeepCopy()
	made.Annotations = map[string]string{v1alpha1.UsedAnnotation: t.stamp()}
	options := metav1.CreateOptions{FieldManager: manager}
	if dryRun {
		options.DryRun = []string{metav1.DryRunAll}
	}
	if _, err := t.client.ResourceV1().ResourceClaimTemplates(template.Namespace).Create(ctx, made, options); err != nil {
		return fmt.Errorf("create the claim template %s: %w", template.Name, err)
	}
	return nil
}

func (t templates) stamp() string {
	return t.now().UTC().Format(time.RFC3339)
}

// fresh reports whether the template's last use is known to be recent.
func (t templates) fresh(template *resourcev1.ResourceClaimTemplate) bool {
	used, err := time.Parse(time.RFC3339, template.Annotations[v1alpha1.UsedAnnotation])
	if err != nil {
		return false
	}
	age := t.now().Sub(used)
	return age >= 0 && age < RenewAfter
}

// renew notes that the template is used. The write also gives it another version, so that whoever is about to delete
// the one that was unused does not.
func (t templates) renew(ctx context.Context, template *resourcev1.ResourceClaimTemplate) error {
	note, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid":         template.UID,
		"annotations": map[string]string{v1alpha1.UsedAnnotation: t.stamp()},
	}})
	if err != nil {
		return fmt.Errorf("write the note of use: %w", err)
	}
	_, err = t.client.ResourceV1().ResourceClaimTemplates(template.Namespace).
		Patch(ctx, template.Name, types.MergePatchType, note, metav1.PatchOptions{FieldManager: manager})
	if err != nil {
		return fmt.Errorf("note the use of the claim template %s: %w", template.Name, err)
	}
	return nil
}
