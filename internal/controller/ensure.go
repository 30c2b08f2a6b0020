package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/dialect"
)

const (
	// manager is the name under which writes to templates are recorded.
	manager = v1alpha1.ManagedBy
	// renewAfter is how old the note of a template's last use may be before a further use renews it.
	renewAfter = KeepUnused / 4
	// unseenFor is longer than the cache is behind.
	unseenFor = time.Minute
	// mostTemplates is how many templates of translated pods one namespace has at most.
	mostTemplates = 1000
)

// errTaken says that somebody has made a template of that name and of another content.
var errTaken = errors.New("taken")

// templates creates templates at the API server. Those that the cache does not show as they should be are read there,
// because the cache may be behind.
type templates struct {
	client kubernetes.Interface
	known  *known
	now    func() time.Time

	mu     sync.Mutex        // guards unseen; nothing else is locked within
	unseen map[use]time.Time // made and not yet in the cache, and until when that counts
}

// ensure makes sure that the template exists with its content and counts as used from now on. It reports whether it
// made it.
func (t *templates) ensure(ctx context.Context, template *resourcev1.ResourceClaimTemplate) (made bool, err error) {
	if known, err := t.known.template(template.Namespace, template.Name); err == nil && managed(known) && known.DeletionTimestamp == nil && t.fresh(known) {
		return false, nil
	}
	const attempts = 4
	for range attempts {
		var existing *resourcev1.ResourceClaimTemplate
		existing, err = t.client.ResourceV1().ResourceClaimTemplates(template.Namespace).Get(ctx, template.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			if err = t.create(ctx, template); !apierrors.IsAlreadyExists(err) {
				return err == nil, err
			}
		case err != nil:
			return false, fmt.Errorf("read the claim template %s: %w", template.Name, err)
		case !dialect.Genuine(existing):
			return false, fmt.Errorf("%w: the claim template %s of this namespace has another content than this pod needs: delete both", errTaken, template.Name)
		case existing.DeletionTimestamp != nil:
			return false, fmt.Errorf("the claim template %s is being deleted: waiting until it is gone", template.Name)
		case t.fresh(existing):
			return false, nil
		default:
			if err = t.renew(ctx, existing); !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
				return false, err
			}
		}
	}
	return false, fmt.Errorf("create the claim template %s, which was gone again after each of %d tries: %w", template.Name, attempts, err)
}

func (t *templates) create(ctx context.Context, template *resourcev1.ResourceClaimTemplate) error {
	if err := t.reserve(template.Namespace, template.Name); err != nil {
		return err
	}
	made := template.DeepCopy()
	made.Annotations = map[string]string{v1alpha1.UsedAnnotation: t.stamp()}
	if _, err := t.client.ResourceV1().ResourceClaimTemplates(template.Namespace).Create(ctx, made, metav1.CreateOptions{FieldManager: manager}); err != nil {
		t.forget(template.Namespace, template.Name)
		return fmt.Errorf("create the claim template %s: %w", template.Name, err)
	}
	return nil
}

// reserve counts a template that is about to be made, or says why there may be no more: its namespace has too many in
// the cache, and made since.
func (t *templates) reserve(namespace, name string) error {
	all, err := t.known.templatesIn(namespace)
	if err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, template := range all {
		delete(t.unseen, use{namespace, template.Name})
	}
	count := len(all)
	for u, until := range t.unseen {
		switch {
		case t.now().After(until):
			delete(t.unseen, u)
		case u.namespace == namespace && u.template != name:
			count++
		}
	}
	if count >= mostTemplates {
		return fmt.Errorf("this namespace has %d claim templates of pods already, each for another way to ask for GPUs, and may have no more: waiting until pods end", count)
	}
	t.unseen[use{namespace, name}] = t.now().Add(unseenFor)
	return nil
}

// forget ends a reservation.
func (t *templates) forget(namespace, name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.unseen, use{namespace, name})
}

func (t *templates) stamp() string {
	return t.now().UTC().Format(time.RFC3339)
}

// fresh reports whether the template's last use is known to be recent.
func (t *templates) fresh(template *resourcev1.ResourceClaimTemplate) bool {
	used, err := time.Parse(time.RFC3339, template.Annotations[v1alpha1.UsedAnnotation])
	if err != nil {
		return false
	}
	age := t.now().Sub(used)
	return age >= 0 && age < renewAfter
}

// renew notes that the template is used. The write also gives it another version, so that whoever is about to delete
// the one that was unused does not.
func (t *templates) renew(ctx context.Context, template *resourcev1.ResourceClaimTemplate) error {
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
