package webhook

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/dialect"
)

// accounts hold what the claims of each namespace take. Sums change with the claims, so that a review reads a sum and
// looks at no claim.
type accounts struct {
	sizes func() *dialect.Sizes
	now   func() time.Time
	// followed is since when the API server tells of claims without a pause, zero while it does not.
	followed func() time.Time

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
	settled map[key]settledClaim
	open    map[key]openClaim
	// admitted are claims that were let through and are not known yet. Expected are those of pods that were let through,
	// in the order in which they are forgotten; nobody has asked about them yet, and they have no UIDs.
	admitted map[key]admittedClaim
	expected []admittedClaim
	// promised are the claims that pods describe which wait for Divvy's scheduler, by the claims' keys, and pods the keys
	// that each of them describes. What is promised counts until there is a claim of that name that takes as much: somebody
	// may have made a smaller one, and delete it again.
	promised map[key][]promise
	pods     map[key][]key
	// sum is of the weights of settled, open and promised claims; all but settled ones are counted with these sizes.
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

func newAccounts(sizes func() *dialect.Sizes, now, followed func() time.Time) *accounts {
	return &accounts{sizes: sizes, now: now, followed: followed, of: make(map[string]*account)}
}

// late returns what says whether something that was let through until a time has not been made: that can be known only
// once the API server has told of claims for a while.
func (a *accounts) late() func(until time.Time) bool {
	now, since := a.now(), a.followed()
	telling := !since.IsZero() && now.Sub(since) >= admittedFor
	return func(until time.Time) bool { return telling && now.After(until) }
}

// store returns where claims are put.
func (a *accounts) store() *store[dialect.Counted] {
	return &store[dialect.Counted]{
		named: true,
		read: func(object metav1.Object) (dialect.Counted, error) {
			claim, err := as[*resourcev1.ResourceClaim](object)
			if err != nil {
				return dialect.Counted{}, err
			}
			return dialect.CountedOf(&claim.Spec, claim.Status.Allocation), nil
		},
		put: a.put, drop: a.drop, keep: a.keep,
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
				settled: make(map[key]settledClaim), open: make(map[key]openClaim), admitted: make(map[key]admittedClaim),
				promised: make(map[key][]promise), pods: make(map[key][]key), sizes: a.sizes(),
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
		before, had := one.settled[claim.id]
		if had && before.allocation == claim.of.Allocation() {
			return // it was counted when the GPUs that it has were published
		}
		_, open := one.open[claim.id]
		_, admitted := one.admitted[claim.id]
		delete(one.admitted, claim.id)
		one.remove(claim.id)
		one.enter(claim.id, claim.of)
		if !had && !open && !admitted && !v1alpha1.IsClaimName(claim.name) {
			one.fulfil(one.known(claim.id)) // another server let it through
		}
	})
}

// enter counts a claim that is not in the sum.
func (one *account) enter(id key, counted dialect.Counted) {
	use, settled := counted.Use(one.sizes)
	one.change(id, func() {
		if settled {
			one.settled[id] = settledClaim{use, counted.Allocation()}
		} else {
			one.open[id] = openClaim{counted, use}
		}
	})
}

// change changes what is known of a claim's name, and the sum with it.
func (one *account) change(id key, do func()) {
	before := one.weight(id)
	do()
	one.sum = one.sum.Minus(before).Plus(one.weight(id))
}

// remove takes a claim out of the sum. What is promised of it counts again.
func (one *account) remove(id key) {
	one.change(id, func() {
		delete(one.settled, id)
		delete(one.open, id)
	})
}

// known returns what a claim in the sum takes.
func (one *account) known(id key) dialect.Use {
	if claim, ok := one.settled[id]; ok {
		return claim.use
	}
	return one.open[id].use
}

// refresh counts open claims again where other sizes are known than last time.
func (a *accounts) refresh(one *account) {
	sizes := a.sizes()
	if one.sizes == sizes {
		return
	}
	one.sizes = sizes
	a.looked.Add(int64(len(one.open)))
	for id, claim := range one.open {
		one.change(id, func() {
			use, settled := claim.counted.Use(sizes)
			if claim.use = use; !settled {
				one.open[id] = claim
				return
			}
			delete(one.open, id)
			one.settled[id] = settledClaim{use, claim.counted.Allocation()}
		})
	}
	a.looked.Add(int64(len(one.promised)))
	one.renewPromises()
}

func (a *accounts) drop(claim brief[dialect.Counted]) {
	empty := false
	a.existing(claim.namespace, func(one *account) {
		one.remove(claim.id)
		delete(one.admitted, claim.id)
		empty = one.empty(a.late())
	})
	if empty {
		a.close(claim.namespace)
	}
}

// close drops an account that is still empty.
func (a *accounts) close(namespace string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if one := a.of[namespace]; one != nil && one.empty(a.late()) {
		delete(a.of, namespace)
	}
}

// fulfil forgets one expected claim that takes this: it has come. It reports whether there was one.
func (one *account) fulfil(use dialect.Use) bool {
	i := slices.IndexFunc(one.expected, func(c admittedClaim) bool { return c.use == use })
	if i >= 0 {
		one.expected = slices.Delete(one.expected, i, i+1)
	}
	return i >= 0
}

// empty forgets admitted and expected claims that were not made in time, and reports whether nothing is left.
func (one *account) empty(late func(until time.Time) bool) bool {
	n := 0
	for n < len(one.expected) && late(one.expected[n].until) {
		n++
	}
	one.expected = slices.Delete(one.expected, 0, n)
	for id, claim := range one.admitted {
		if late(claim.until) {
			delete(one.admitted, id)
		}
	}
	return len(one.settled)+len(one.open)+len(one.admitted)+len(one.expected)+len(one.pods) == 0
}

// namespaces are those with an account.
func (a *accounts) namespaces() []string {
	a.mu.RLock()
	defer a.mu.RUnlock()
	return slices.Collect(maps.Keys(a.of))
}

// keep drops the claims that are not in a list of all.
func (a *accounts) keep(present map[key]bool) {
	for _, namespace := range a.namespaces() {
		var gone []key
		a.existing(namespace, func(one *account) {
			for id := range one.settled {
				if !present[id] {
					gone = append(gone, id)
				}
			}
			for id := range one.open {
				if !present[id] {
					gone = append(gone, id)
				}
			}
			for _, id := range gone {
				one.remove(id)
			}
		})
		a.close(namespace)
	}
}

// checkPod asks whether a namespace that has these limits may take some more claims. If it may, and they are to be
// admitted, they are expected from now on.
func (a *accounts) checkPod(namespace string, limits []dialect.Limit, claims []dialect.Use, admit bool) error {
	var more dialect.Use
	for _, use := range claims {
		more = more.Plus(use)
	}
	return a.check(namespace, admit, func(one *account) error {
		if err := dialect.CheckQuota(limits, one.used(), more); err != nil || !admit {
			return err
		}
		for _, use := range claims {
			one.expected = append(one.expected, admittedClaim{use, a.now().Add(expectedFor)})
		}
		return nil
	})
}

// checkClaim asks whether a namespace that has these limits may have a claim. If it may, and the claim is to be
// admitted, it counts from now on.
func (a *accounts) checkClaim(namespace, name string, limits []dialect.Limit, use dialect.Use, admit bool) error {
	claim := keyOfName(namespace, name)
	return a.check(namespace, admit, func(one *account) error {
		counted := one.counts(claim)
		used := one.used().Minus(counted)
		expected := counted == (dialect.Use{}) && slices.ContainsFunc(one.expected, func(c admittedClaim) bool { return c.use == use })
		if expected {
			used = used.Minus(use)
		}
		if err := dialect.CheckQuota(limits, used, use); err != nil || !admit {
			return err
		}
		if expected {
			one.fulfil(use)
		}
		one.admitted[claim] = admittedClaim{use.Larger(one.admitted[claim].use), a.now().Add(admittedFor)}
		return nil
	})
}

// used returns what the namespace's claims take: those that are known, and those that were let through.
func (one *account) used() dialect.Use {
	used := one.sum
	for id, claim := range one.admitted {
		if one.has(id) {
			used = used.Plus(claim.use)
		} else {
			used = used.Minus(one.promise(id)).Plus(claim.use.Larger(one.promise(id)))
		}
	}
	for _, claim := range one.expected {
		used = used.Plus(claim.use)
	}
	return used
}

// check calls a function with the namespace's account as it is now, which stays if something is admitted.
func (a *accounts) check(namespace string, admit bool, f func(*account) error) error {
	var refusal error
	now := func(one *account) {
		one.empty(a.late())
		a.refresh(one)
		refusal = f(one)
	}
	if admit {
		a.use(namespace, now)
	} else if !a.existing(namespace, now) {
		refusal = f(&account{})
	}
	if refusal != nil && a.followed().IsZero() {
		return fmt.Errorf("%w; claims may have gone since, of which the API server does not tell at the moment", refusal)
	}
	return refusal
}
