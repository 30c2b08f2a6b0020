package webhook

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/divvy-gpu/divvy/internal/dialect"
)

// admittedFor is how long an admitted claim counts before it is known. It is longer than what is known is behind, and
// short enough that a claim that was never created is soon forgotten.
const admittedFor = 10 * time.Second

// expectedFor is how long the claims of a pod that was let through count before one of them is asked about. Kubernetes
// makes them as soon as the pod exists; if somebody else refuses the pod, they count no longer than this.
const expectedFor = 5 * time.Second

// quotas enforces the quotas of namespaces. A pod is checked when it is created, against the claims that exist then and
// those of pods just let through, so that its creator gets the error. The claims that are created for it are checked
// again one by one. Two replicas do not
// know what the other has just admitted, so together they can exceed a quota by what arrives while what they know is
// behind.
type quotas struct {
	held     *bounds[dialect.Limit]
	accounts *accounts
}

// checkPod checks the claims that a pod's translation adds, and counts them from now on unless it is a dry run.
func (q *quotas) checkPod(namespace string, made *dialect.Translation, sizes *dialect.Sizes, dryRun bool) error {
	held := q.held.of(namespace)
	if len(held) == 0 {
		return nil
	}
	uses := make(map[string]dialect.Use)
	for i := range made.Templates {
		template := &made.Templates[i]
		uses[template.Name] = dialect.UseOf(&template.Spec.Spec, nil, sizes)
	}
	var claims []dialect.Use
	for _, name := range made.Claims {
		claims = append(claims, uses[name])
	}
	return q.accounts.checkPod(namespace, held, claims, !dryRun)
}

// checkDescribed checks the claims that a pod describes for Divvy's scheduler, and counts them from now on unless it is a
// dry run.
func (q *quotas) checkDescribed(namespace string, specs map[string]resourcev1.ResourceClaimSpec, sizes *dialect.Sizes, dryRun bool) error {
	held := q.held.of(namespace)
	if len(held) == 0 || len(specs) == 0 {
		return nil
	}
	uses := make(map[key]dialect.Use, len(specs))
	for name, spec := range specs {
		uses[keyOfName(namespace, name)] = dialect.UseOf(&spec, nil, sizes)
	}
	return q.accounts.checkDescribed(namespace, held, uses, !dryRun)
}

// checkClaim checks a claim, and counts it from now on unless it is a dry run.
func (q *quotas) checkClaim(claim *resourcev1.ResourceClaim, sizes *dialect.Sizes, dryRun bool) error {
	held := q.held.of(claim.Namespace)
	if len(held) == 0 {
		return nil
	}
	use := dialect.UseOf(&claim.Spec, nil, sizes)
	return q.accounts.checkClaim(claim.Namespace, claim.Name, held, use, !dryRun && claim.Name != "")
}

// limitsOf returns what quotas say of GPUs.
func limitsOf(translator *dialect.Translator) *bounds[dialect.Limit] {
	return newBounds(dialect.CompareLimits, func(object metav1.Object) ([]dialect.Limit, error) {
		quota, err := as[*corev1.ResourceQuota](object)
		if err != nil {
			return nil, err
		}
		return translator.Limits(quota), nil
	})
}

// rangesOf returns what LimitRanges say of GPUs.
func rangesOf(translator *dialect.Translator) *bounds[dialect.Range] {
	return newBounds(dialect.CompareRanges, func(object metav1.Object) ([]dialect.Range, error) {
		limitRange, err := as[*corev1.LimitRange](object)
		if err != nil {
			return nil, err
		}
		return translator.Ranges(limitRange), nil
	})
}
