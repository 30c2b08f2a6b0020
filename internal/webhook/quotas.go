package webhook

import (
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	resourcelisters "k8s.io/client-go/listers/resource/v1"

	"github.com/divvy-gpu/divvy/internal/dialect"
)

// admittedFor is how long an admitted claim counts before a cache shows it. It is longer than caches are behind, and
// short enough that a claim that was never created is soon forgotten.
const admittedFor = 10 * time.Second

// quotas enforces the quotas of namespaces. A pod is checked when it is created, against the claims that exist then, so
// that its creator gets the error. The claims that are created for it are checked again one by one. Two replicas do not
// know what the other has just admitted, so together they can exceed a quota by what arrives while their caches are
// behind.
type quotas struct {
	held   corelisters.ResourceQuotaLister
	claims resourcelisters.ResourceClaimLister
	now    func() time.Time

	mu       sync.Mutex // guards admitted; nothing else is locked within
	admitted map[types.UID]admittedClaim
}

type admittedClaim struct {
	namespace string
	use       dialect.Use
	until     time.Time
}

// checkPod checks the claims that a pod's translation adds.
func (q *quotas) checkPod(namespace string, made *dialect.Translation, sizes dialect.Sizes) error {
	held, err := q.of(namespace)
	if err != nil || len(held) == 0 {
		return err
	}
	uses := make(map[string]dialect.Use)
	for i := range made.Templates {
		template := &made.Templates[i]
		uses[template.Name] = dialect.UseOf(&template.Spec.Spec, nil, sizes)
	}
	var more dialect.Use
	for _, name := range made.Claims {
		more = more.Plus(uses[name])
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	used, err := q.used(namespace, "", sizes)
	if err != nil {
		return err
	}
	return dialect.CheckQuota(held, used, more)
}

// checkClaim checks a claim, and counts it from now on unless it is a dry run.
func (q *quotas) checkClaim(claim *resourcev1.ResourceClaim, sizes dialect.Sizes, dryRun bool) error {
	held, err := q.of(claim.Namespace)
	if err != nil || len(held) == 0 {
		return err
	}
	more := dialect.UseOf(&claim.Spec, nil, sizes)
	q.mu.Lock()
	defer q.mu.Unlock()
	used, err := q.used(claim.Namespace, claim.UID, sizes)
	if err != nil {
		return err
	}
	if err := dialect.CheckQuota(held, used, more); err != nil {
		return err
	}
	if !dryRun && claim.UID != "" {
		q.admitted[claim.UID] = admittedClaim{claim.Namespace, more, q.now().Add(admittedFor)}
	}
	return nil
}

func (q *quotas) of(namespace string) ([]*corev1.ResourceQuota, error) {
	held, err := q.held.ResourceQuotas(namespace).List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("list the quotas of namespace %s: %w", namespace, err)
	}
	return held, nil
}

// used returns what the namespace's claims take, except for one: the claims in the cache and those just admitted.
func (q *quotas) used(namespace string, but types.UID, sizes dialect.Sizes) (dialect.Use, error) {
	var sum dialect.Use
	existing, err := q.claims.ResourceClaims(namespace).List(labels.Everything())
	if err != nil {
		return sum, fmt.Errorf("list the claims of namespace %s: %w", namespace, err)
	}
	for _, claim := range existing {
		delete(q.admitted, claim.UID)
		if claim.UID != but || but == "" {
			sum = sum.Plus(dialect.UseOf(&claim.Spec, claim.Status.Allocation, sizes))
		}
	}
	for uid, claim := range q.admitted {
		switch {
		case q.now().After(claim.until):
			delete(q.admitted, uid)
		case claim.namespace == namespace && uid != but:
			sum = sum.Plus(claim.use)
		}
	}
	return sum, nil
}
