package webhook

import (
	"slices"
	"sync"
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
	held     *limits
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

// checkClaim checks a claim, and counts it from now on unless it is a dry run.
func (q *quotas) checkClaim(claim *resourcev1.ResourceClaim, sizes *dialect.Sizes, dryRun bool) error {
	held := q.held.of(claim.Namespace)
	if len(held) == 0 {
		return nil
	}
	use := dialect.UseOf(&claim.Spec, nil, sizes)
	return q.accounts.checkClaim(claim.Namespace, claim.UID, held, use, !dryRun && claim.UID != "")
}

// limits holds what quotas say of GPUs, by namespace. A review of a namespace that has none takes no lock.
type limits struct {
	translator *dialect.Translator

	mu      sync.Mutex // guards changes
	byQuota map[string]map[string][]dialect.Limit
	// byNamespace has the limits of all quotas of a namespace, sorted, where there are any.
	byNamespace sync.Map
}

func newLimits(translator *dialect.Translator) *limits {
	return &limits{translator: translator, byQuota: make(map[string]map[string][]dialect.Limit)}
}

func (l *limits) of(namespace string) []dialect.Limit {
	held, _ := l.byNamespace.Load(namespace)
	found, _ := held.([]dialect.Limit)
	return found
}

// store returns where quotas are put.
func (l *limits) store() *store[[]dialect.Limit] {
	return &store[[]dialect.Limit]{
		read: func(object metav1.Object) ([]dialect.Limit, error) {
			quota, err := as[*corev1.ResourceQuota](object)
			if err != nil {
				return nil, err
			}
			return l.translator.Limits(quota), nil
		},
		put:  func(quota brief[[]dialect.Limit]) { l.set(quota.namespace, quota.name, quota.of) },
		drop: func(quota brief[[]dialect.Limit]) { l.set(quota.namespace, quota.name, nil) },
		replace: func(all []brief[[]dialect.Limit]) {
			for _, gone := range l.except(all) {
				l.set(gone[0], gone[1], nil)
			}
			for _, quota := range all {
				l.set(quota.namespace, quota.name, quota.of)
			}
		},
	}
}

// except returns namespace and name of the quotas that are not among these.
func (l *limits) except(all []brief[[]dialect.Limit]) [][2]string {
	present := make(map[[2]string]bool, len(all))
	for _, quota := range all {
		present[[2]string{quota.namespace, quota.name}] = true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	var gone [][2]string
	for namespace, quotas := range l.byQuota {
		for name := range quotas {
			if key := [2]string{namespace, name}; !present[key] {
				gone = append(gone, key)
			}
		}
	}
	return gone
}

// set notes what a quota says; nothing means that it says nothing of GPUs any more.
func (l *limits) set(namespace, name string, says []dialect.Limit) {
	l.mu.Lock()
	defer l.mu.Unlock()
	quotas := l.byQuota[namespace]
	switch {
	case len(says) > 0 && quotas == nil:
		quotas = make(map[string][]dialect.Limit)
		l.byQuota[namespace] = quotas
		fallthrough
	case len(says) > 0:
		quotas[name] = says
	default:
		delete(quotas, name)
	}
	if len(quotas) == 0 {
		delete(l.byQuota, namespace)
		l.byNamespace.Delete(namespace)
		return
	}
	var all []dialect.Limit
	for _, says := range quotas {
		all = append(all, says...)
	}
	slices.SortStableFunc(all, dialect.CompareLimits)
	l.byNamespace.Store(namespace, all)
}
