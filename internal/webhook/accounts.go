package webhook

import (
	"sync"
	"sync/atomic"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/divvy-gpu/divvy/internal/dialect"
)

// accounts hold what the claims of each namespace take. Sums change with the claims, so that a review reads a sum and
// looks at no claim.
type accounts struct {
	sizes func() *dialect.Sizes
	now   func() time.Time

	// mu guards of. It is held, for reading, while an account is used, so that none is dropped meanwhile; an account's own
	// lock is taken within.
	mu sync.RWMutex
	of map[string]*account
	// looked counts the claims that were looked at because sizes had changed.
	looked atomic.Int64
}

// account is one namespace's.
type account struct {
	mu sync.Mutex
	// settled claims take what they take, whatever GPUs are published from now on. Open ones wait, or have a device whose
	// size is not known.
	settled map[types.UID]settledClaim
	open    map[types.UID]openClaim
	// admitted are claims that were let through and are not known yet.
	admitted map[types.UID]admittedClaim
	// sum is of settled and open claims, the latter counted with these sizes.
	sum   dialect.Use
	sizes *dialect.Sizes
}

type settledClaim struct {
	use        dialect.Use
	allocation uint64
}

type openClaim struct {
	counted dialect.Counted
	use     dialect.Use
}

type admittedClaim struct {
	use   dialect.Use
	until time.Time
}

func newAccounts(sizes func() *dialect.Sizes, now func() time.Time) *accounts {
	return &accounts{sizes: sizes, now: now, of: make(map[string]*account)}
}

// store returns where claims are put.
func (a *accounts) store() *store[dialect.Counted] {
	return &store[dialect.Counted]{
		read: func(object metav1.Object) (dialect.Counted, error) {
			claim, err := as[*resourcev1.ResourceClaim](object)
			if err != nil {
				return dialect.Counted{}, err
			}
			return dialect.CountedOf(&claim.Spec, claim.Status.Allocation), nil
		},
		put: a.put, drop: a.drop, replace: a.replace,
	}
}

// use calls a function with the namespace's account, which it makes if there is none.
func (a *accounts) use(namespace string, f func(*account)) {
	for {
		if a.existing(namespace, f) {
			return
		}
		a.mu.Lock()
		if a.of[namespace] == nil {
			a.of[namespace] = &account{
				settled: make(map[types.UID]settledClaim), open: make(map[types.UID]openClaim),
				admitted: make(map[types.UID]admittedClaim), sizes: a.sizes(),
			}
		}
		a.mu.Unlock()
	}
}

// existing is use for a namespace that has an account; it reports whether it has.
func (a *accounts) existing(namespace string, f func(*account)) bool {
	a.mu.RLock()
	defer a.mu.RUnlock()
	one := a.of[namespace]
	if one == nil {
		return false
	}
	one.mu.Lock()
	defer one.mu.Unlock()
	f(one)
	return true
}

func (a *accounts) put(claim brief[dialect.Counted]) {
	if claim.of.None() {
		a.drop(claim)
		return
	}
	a.use(claim.namespace, func(one *account) {
		a.refresh(one)
		delete(one.admitted, claim.uid)
		before, had := one.settled[claim.uid]
		if had && before.allocation == claim.of.Allocation() {
			return // it was counted when the GPUs that it has were published
		}
		one.remove(claim.uid)
		one.enter(claim.uid, claim.of)
	})
}

// enter counts a claim that is not in the sum.
func (one *account) enter(uid types.UID, counted dialect.Counted) {
	use, settled := counted.Use(one.sizes)
	one.sum = one.sum.Plus(use)
	if settled {
		one.settled[uid] = settledClaim{use, counted.Allocation()}
		return
	}
	one.open[uid] = openClaim{counted, use}
}

// remove takes a claim out of the sum.
func (one *account) remove(uid types.UID) {
	one.sum = one.sum.Minus(one.known(uid))
	delete(one.settled, uid)
	delete(one.open, uid)
}

// known returns what a claim in the sum takes.
func (one *account) known(uid types.UID) dialect.Use {
	if claim, ok := one.settled[uid]; ok {
		return claim.use
	}
	return one.open[uid].use
}

// refresh counts open claims again where other sizes are known than last time.
func (a *accounts) refresh(one *account) {
	sizes := a.sizes()
	if one.sizes == sizes {
		return
	}
	one.sizes = sizes
	a.looked.Add(int64(len(one.open)))
	for uid, claim := range one.open {
		use, settled := claim.counted.Use(sizes)
		one.sum = one.sum.Minus(claim.use).Plus(use)
		if claim.use = use; !settled {
			one.open[uid] = claim
			continue
		}
		delete(one.open, uid)
		one.settled[uid] = settledClaim{use, claim.counted.Allocation()}
	}
}

func (a *accounts) drop(claim brief[dialect.Counted]) {
	empty := false
	a.existing(claim.namespace, func(one *account) {
		one.remove(claim.uid)
		delete(one.admitted, claim.uid)
		empty = one.empty(a.now())
	})
	if empty {
		a.close(claim.namespace)
	}
}

// close drops an account that is still empty.
func (a *accounts) close(namespace string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if one := a.of[namespace]; one != nil && one.empty(a.now()) {
		delete(a.of, namespace)
	}
}

// empty forgets admitted claims that were not made in time, and reports whether nothing is left.
func (one *account) empty(now time.Time) bool {
	for uid, claim := range one.admitted {
		if now.After(claim.until) {
			delete(one.admitted, uid)
		}
	}
	return len(one.settled)+len(one.open)+len(one.admitted) == 0
}

// replace puts all claims, and drops those that are not among them.
func (a *accounts) replace(claims []brief[dialect.Counted]) {
	present := make(map[types.UID]bool, len(claims))
	for _, claim := range claims {
		present[claim.uid] = true
		a.put(claim)
	}
	a.mu.RLock()
	namespaces := make([]string, 0, len(a.of))
	for namespace := range a.of {
		namespaces = append(namespaces, namespace)
	}
	a.mu.RUnlock()
	for _, namespace := range namespaces {
		var gone []types.UID
		a.existing(namespace, func(one *account) {
			for uid := range one.settled {
				if !present[uid] {
					gone = append(gone, uid)
				}
			}
			for uid := range one.open {
				if !present[uid] {
					gone = append(gone, uid)
				}
			}
			for _, uid := range gone {
				one.remove(uid)
			}
		})
		a.close(namespace)
	}
}

// check asks whether a namespace that has these limits may take more. The claim with this UID is left out of what is
// used. If it may, and the claim is to be admitted, it counts from now on.
func (a *accounts) check(namespace string, claim types.UID, limits []dialect.Limit, more dialect.Use, admit bool) error {
	var refusal error
	check := func(one *account) {
		now := a.now()
		one.empty(now)
		a.refresh(one)
		used := one.sum.Minus(one.known(claim))
		for uid, other := range one.admitted {
			if uid != claim {
				used = used.Plus(other.use)
			}
		}
		if refusal = dialect.CheckQuota(limits, used, more); refusal == nil && admit {
			one.admitted[claim] = admittedClaim{more, now.Add(admittedFor)}
		}
	}
	if admit {
		a.use(namespace, check)
	} else if !a.existing(namespace, check) {
		refusal = dialect.CheckQuota(limits, dialect.Use{}, more)
	}
	return refusal
}
