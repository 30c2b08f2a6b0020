package faults

import (
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// told is a record that hears of changes, each at the next revision.
type told struct {
	*record
	at int
}

func (r *told) next() string {
	r.at++
	return strconv.Itoa(r.at)
}

func (r *told) tellPod(kind watch.EventType, p corev1.Pod) {
	p.ResourceVersion = r.next()
	r.changedPod(kind, &p)
}

func (r *told) tellClaim(kind watch.EventType, c resourcev1.ResourceClaim) {
	c.ResourceVersion = r.next()
	r.changedClaim(kind, &c)
}

// histories are what may happen to the pods and claims of the picture, and how many contradictions that is.
var histories = map[string]struct {
	happens func(r *told, p *picture)
	want    int
}{
	"nothing": {func(*told, *picture) {}, 0},
	"given twice, and taken back": {func(r *told, p *picture) {
		r.tellClaim(watch.Modified, testClaim("41Gi", &p.pods[1]))
		r.tellClaim(watch.Modified, testClaim("1Gi", &p.pods[1]))
	}, 1},
	"a device that was never there": {func(r *told, _ *picture) {
		other := testClaim("1Gi", &corev1.Pod{})
		other.Status.Allocation.Devices.Results[0].Device = "other"
		r.tellClaim(watch.Added, other)
	}, 1},
	"cleared while its pod runs, and given again": {func(r *told, p *picture) {
		cleared := testClaim("1Gi", &p.pods[0])
		cleared.Status = resourcev1.ResourceClaimStatus{}
		r.tellClaim(watch.Modified, cleared)
		r.tellClaim(watch.Modified, testClaim("40Gi", &p.pods[0]))
	}, 1},
	"deleted while its pod runs": {func(r *told, p *picture) { r.tellClaim(watch.Deleted, p.claims[0]) }, 1},
	"for another pod": {func(r *told, p *picture) {
		other := testClaim("40Gi", &p.pods[0])
		other.Status.ReservedFor[0].UID = "other"
		r.tellClaim(watch.Modified, other)
	}, 1},
	"cleared after its pod": {func(r *told, p *picture) {
		r.tellPod(watch.Deleted, p.pods[0])
		r.tellClaim(watch.Deleted, p.claims[0])
	}, 0},
	"cleared before its pod": {func(r *told, p *picture) {
		r.tellClaim(watch.Deleted, p.claims[0])
		r.tellPod(watch.Deleted, p.pods[0])
	}, 1},
	"bound before its claim": {func(r *told, p *picture) {
		late := p.pods[0]
		late.Name, late.UID = "late", "late"
		claim := "claim-late"
		late.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: &claim}}
		r.tellPod(watch.Added, late)
		r.tellClaim(watch.Added, testClaim("0", &late))
	}, 1},
	"gone with its claim while nobody looked": {func(r *told, p *picture) {
		later := metav1.ListMeta{ResourceVersion: "100"}
		r.listedClaims(&resourcev1.ResourceClaimList{ListMeta: later, Items: p.claims[1:]})
		r.listedPods(&corev1.PodList{ListMeta: later, Items: p.pods[1:]})
	}, 0},
	"judged twice": {func(r *told, p *picture) {
		r.judge()
		joined := testClaim("40Gi", &p.pods[0])
		joined.Status.ReservedFor = append(joined.Status.ReservedFor, resourcev1.ResourceClaimConsumerReference{Resource: "pods", Name: "c", UID: "c"})
		r.tellClaim(watch.Modified, joined)
		r.judge()
	}, 0},
}

// What was wrong for one revision is found, however short it was, and what was right is not.
func TestRecord(t *testing.T) {
	for name, test := range histories {
		p := testPicture()
		r := &told{record: newRecord(capacities{testDevice: {v1alpha1.CapacityMemory: resource.MustParse("80Gi")}})}
		for i := range p.claims {
			r.tellClaim(watch.Added, p.claims[i])
		}
		for i := range p.pods {
			r.tellPod(watch.Added, p.pods[i])
		}
		if bound, _ := r.progress(); bound != 2 {
			t.Errorf("%s: %d pods are bound", name, bound)
		}
		test.happens(r, p)
		r.judge()
		if found := r.found(); len(found) != test.want {
			t.Errorf("%s: found %q, want %d", name, found, test.want)
		}
	}
}
