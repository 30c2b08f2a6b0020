package dialect

import (
	"cmp"
	"slices"
	"strings"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// What a ResourceQuota can hold of GPUs in any case. Kubernetes gives extended resources no other prefix than
// "requests.".
const (
	quotaGPUs   = corev1.ResourceName(corev1.DefaultResourceRequestsPrefix + v1alpha1.ResourceGPU)
	quotaMemory = corev1.ResourceName(corev1.DefaultResourceRequestsPrefix + v1alpha1.ResourceMemory)
	quotaCores  = corev1.ResourceName(corev1.DefaultResourceRequestsPrefix + v1alpha1.ResourceCores)
	quotaPairs  = corev1.ResourceName(corev1.DefaultResourceRequestsPrefix + v1alpha1.ResourcePairs)
	quotaPart   = corev1.ResourceName(corev1.DefaultResourceRequestsPrefix + v1alpha1.ResourceMemoryPercent)
)

type ownQuota struct {
	name    corev1.ResourceName
	measure Measure
}

// own are the quotas that hold whatever is turned on, in the order in which they are checked.
var own = []ownQuota{
	{quotaGPUs, countGPUs},
	{quotaMemory, countMemory(1)},
	{quotaCores, countCores},
	{quotaPart, countPercent},
	{quotaPairs, countCards},
}

// Limit is what a quota says of one resource.
type Limit struct {
	quota   string
	name    corev1.ResourceName
	text    string // of the most, as the quota writes it
	most    uint64
	beside  uint64 // what Kubernetes itself counts: pods that were not translated
	measure Measure
}

// Limits returns what a quota says of GPUs: in Divvy's own names, and in those that an enabled dialect takes away from
// pods, where Kubernetes' own quota then finds nothing to count. A quota with scopes says nothing, because scopes select
// pods, not claims.
func (t *Translator) Limits(quota *corev1.ResourceQuota) []Limit {
	if len(quota.Spec.Scopes) > 0 || quota.Spec.ScopeSelector != nil {
		return nil
	}
	var all []Limit
	add := func(name corev1.ResourceName, measure Measure, beside resource.Quantity) {
		hard := quota.Spec.Hard[name]
		most, bounds := atMost(hard)
		if !bounds {
			return
		}
		limit := Limit{quota: quota.Name, name: name, text: hard.String(), most: most, measure: measure}
		if n, ok := WholeNumber(beside); ok && n > 0 {
			limit.beside = uint64(n)
		}
		all = append(all, limit)
	}
	for _, held := range own {
		if _, ok := quota.Spec.Hard[held.name]; ok {
			add(held.name, held.measure, resource.Quantity{})
		}
	}
	for _, name := range sortedKeys(quota.Spec.Hard) {
		if t.ofProfile(string(name)) {
			add(name, countInstances, resource.Quantity{})
			continue
		}
		if measure, ok := t.measure(string(name)); ok {
			add(name, measure, quota.Status.Used[name])
		}
	}
	return all
}

// measure returns what a quota's resource counts of an enabled dialect. Kubernetes counts extended resources with the
// prefix "requests.", HAMi its own with "limits.".
func (t *Translator) measure(name string) (Measure, bool) {
	name = unprefixed(name)
	for _, dialect := range t.dialects {
		if measure, ok := dialect.Counts()[name]; ok {
			return measure, true
		}
	}
	return Measure{}, false
}

// unprefixed is a quota's resource as pods name it.
func unprefixed(name string) string {
	for _, prefix := range []string{corev1.DefaultResourceRequestsPrefix, "limits."} {
		name = strings.TrimPrefix(name, prefix)
	}
	return name
}

// ofProfile reports whether a quota's resource counts MIG instances of one profile that an enabled dialect takes away.
func (t *Translator) ofProfile(name string) bool {
	name = unprefixed(name)
	return strings.HasPrefix(name, migPrefix) && slices.ContainsFunc(t.dialects, func(d Dialect) bool { return d.Owns().ownsResource(name) })
}

// CompareLimits orders limits by the names of their quotas and keeps the order within one.
func CompareLimits(a, b Limit) int { return cmp.Compare(a.quota, b.quota) }

// CheckQuota refuses a request that would exceed a limit of its namespace. Used is what the namespace's claims take
// already, more is what the request adds. An error wraps [ErrRefused].
func CheckQuota(limits []Limit, used, more Use) error {
	sorted := slices.Clone(limits)
	slices.SortStableFunc(sorted, CompareLimits)
	for i := range sorted {
		if err := sorted[i].check(used, more); err != nil {
			return err
		}
	}
	return nil
}

func (l *Limit) check(used, more Use) error {
	added, unknown := l.measure.amount(more)
	if added > 0 && l.measure.unkept {
		return refuse("quota %q limits %s, and nothing counts MIG instances by their profile: take it out of the quota, and limit %s.deviceclass.resource.k8s.io/devices in its place",
			l.quota, l.name, v1alpha1.ClassMIG)
	}
	if unknown {
		return refuse("quota %q limits %s: give the request an amount of memory or a number of GPUs", l.quota, l.name)
	}
	if added == 0 {
		return nil
	}
	if _, unknown := l.measure.amount(used); unknown {
		return refuse("quota %q limits %s, and a claim of the namespace takes an amount that is not known: all GPUs of a node, or all of a GPU that no node publishes at the moment",
			l.quota, l.name)
	}
	before, _ := l.measure.amount(used)
	after, _ := l.measure.amount(used.Plus(more))
	before, after = before+l.beside, after+l.beside
	if after <= l.most {
		return nil
	}
	write := l.measure.write
	return refuse("quota %q allows %s of %s: %s are used, and %s more would be %s", l.quota, l.text, l.name, write(before), write(added), write(after))
}
