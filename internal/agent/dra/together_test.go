package dra

import (
	"encoding/json"
	"fmt"
	"math/rand"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/divvy-gpu/divvy/internal/dialect"
	"github.com/divvy-gpu/divvy/internal/page"
	"github.com/divvy-gpu/divvy/internal/tenantdir"
)

// applied is what a container has after a runtime has applied the CDI devices of these claims in turn.
type applied struct {
	nodes []string
	hca   string
	// limits are the last that a hook writes of each adapter.
	limits map[string]string
}

func (m *machine) apply(uids ...types.UID) applied {
	m.t.Helper()
	a := applied{limits: map[string]string{}}
	for _, uid := range uids {
		var spec specs.Spec
		if err := json.Unmarshal([]byte(m.cardSpec(uid)), &spec); err != nil || len(spec.Devices) != 1 {
			m.t.Fatalf("%d devices, %v", len(spec.Devices), err)
		}
		e := spec.Devices[0].ContainerEdits
		for _, n := range e.DeviceNodes {
			if !slices.Contains(a.nodes, n.Path) {
				a.nodes = append(a.nodes, n.Path)
			}
		}
		for _, v := range e.Env {
			if value, is := strings.CutPrefix(v, "NCCL_IB_HCA="); is {
				a.hca = value
			}
		}
		for _, h := range e.Hooks {
			for _, limit := range h.Args[2:] {
				adapter, most, _ := strings.Cut(limit, " ")
				a.limits[adapter] = most
			}
		}
	}
	return a
}

func (a applied) is(t *testing.T, want string) {
	t.Helper()
	slices.Sort(a.nodes)
	if got := fmt.Sprint(a.hca, a.nodes, a.limits); got != strings.ReplaceAll(want, "/dev/", "/dev/infiniband/") {
		t.Errorf("a container has\n%s, want\n%s", got, want)
	}
}

// A container with cards by two requests of a claim has both in the order of the requests, whatever order the results have.
func TestCardsByTwoRequests(t *testing.T) {
	pod := podOf("p", map[string][]ref{"main": {{"a", "second"}, {"a", "first"}}})
	claim := claimWith(cardResult("second", "nic-c0-shared", "1"), cardResult("first", "nic-c1-shared", "3"))
	claim.Spec.Devices.Requests = []resourcev1.DeviceRequest{{Name: "first"}, {Name: "second"}}
	reserve(claim, pod)
	m, _ := newCardMachine(t, claim, pod)
	m.mustPrepare(m.start(), claim)
	m.apply(uidA).is(t, "=c1,c0[/dev/rdma_cm /dev/uverbs0 /dev/uverbs1] map[c0:hca_handle=8 hca_object=100 c1:hca_handle=24 hca_object=300]")
}

// twoClaims are claims a and b with cards, for one container that names b first.
func twoClaims() (a, b *resourcev1.ResourceClaim, pod *corev1.Pod) {
	pod = podOf("p", map[string][]ref{"main": {{"b", ""}, {"a", ""}}})
	a = claimWith(cardResult("nic", "nic-c0-shared", "1"), cardResult("more", "nic-c1-shared", "1"))
	b = claimWith(cardResult("vf", "nic-v0-vf", ""), cardResult("nic", "nic-c1-shared", "2"))
	b.Name, b.UID = "b", uidB
	for _, claim := range []*resourcev1.ResourceClaim{a, b} {
		claim.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(pod, corev1.SchemeGroupVersion.WithKind("Pod"))}
		for _, r := range claim.Status.Allocation.Devices.Results {
			claim.Spec.Devices.Requests = append(claim.Spec.Devices.Requests, resourcev1.DeviceRequest{Name: r.Request})
		}
		reserve(claim, pod)
	}
	return a, b, pod
}

// A container with cards by two claims has all of them, with the sum of the limits of a card that is in both, in whatever order the
// runtime applies the claims, and also after another agent wrote the specifications anew.
func TestCardsByTwoClaims(t *testing.T) {
	a, b, pod := twoClaims()
	m, s := newCardMachine(t, a, b, pod)
	r := m.start()
	const want = "=v0,c1,c0[/dev/rdma_cm /dev/uverbs0 /dev/uverbs1 /dev/uverbs2] map[c0:hca_handle=8 hca_object=100 c1:hca_handle=24 hca_object=300]"
	for range 2 {
		m.mustPrepare(r, a)
		m.mustPrepare(r, b)
		m.apply(uidA, uidB).is(t, want)
		m.apply(uidB, uidA).is(t, want)
	}
	r.stop()
	r = m.start()
	s.renumber(map[string]uint32{"nic-c0-shared": 193, "nic-c1-shared": 192, "nic-v0-vf": 194})
	newReconciler(r.driver).cardSpecifications(t.Context())
	m.apply(uidB, uidA).is(t, want)
	m.apply(uidA).is(t, strings.Replace(want, " /dev/uverbs2", "", 1))
	for _, claim := range []*resourcev1.ResourceClaim{a, b} {
		if err := m.unprepare(r, claim); err != nil {
			t.Error(err)
		}
	}
	m.mustBeEmpty(r)
}

// What a container has by two claims counts while its pod lives. A pod that comes later and names one of them has the limits of that one.
func TestCardsByTwoClaimsOfAPodThatEnded(t *testing.T) {
	a, b, pod := twoClaims()
	m, _ := newCardMachine(t, a, b, pod)
	r := m.start()
	m.mustPrepare(r, a)
	m.mustPrepare(r, b)
	const both = "=v0,c1,c0[/dev/rdma_cm /dev/uverbs0 /dev/uverbs1] map[c0:hca_handle=8 hca_object=100 c1:hca_handle=24 hca_object=300]"
	rec := newReconciler(r.driver)
	rec.cardSpecifications(t.Context())
	m.apply(uidA).is(t, both) // it is not known which pods live
	watch := m.watched(r)
	if err := m.unprepare(r, b); err != nil {
		t.Fatal(err)
	}
	rec.cardSpecifications(t.Context())
	m.apply(uidA).is(t, both)
	later := podOf("later", map[string][]ref{"main": {{"a", ""}}})
	later.Spec.ResourceClaims = later.Spec.ResourceClaims[:1]
	m.addPod(watch, later)
	m.removePod(watch, pod)
	rec.cardSpecifications(t.Context())
	m.apply(uidA).is(t, "=c0,c1[/dev/rdma_cm /dev/uverbs0 /dev/uverbs1] map[c0:hca_handle=8 hca_object=100 c1:hca_handle=8 hca_object=100]")
	if err := m.unprepare(r, a); err != nil {
		t.Fatal(err)
	}
	m.mustBeEmpty(r)
}

// Where the cards of two claims cannot be told together, no container starts with half of them.
func TestCardsByTwoClaimsRefuse(t *testing.T) {
	for name, test := range map[string]struct {
		change func(a, b *resourcev1.ResourceClaim, pod *corev1.Pod)
		fault  string
	}{
		"a claim of several pods": {func(a, _ *resourcev1.ResourceClaim, _ *corev1.Pod) { a.OwnerReferences = nil }, "has RDMA cards by two claims, a and b, that are not made for this pod alone"},
		"another of several pods": {func(_, b *resourcev1.ResourceClaim, _ *corev1.Pod) { b.OwnerReferences = nil }, "has RDMA cards by two claims, a and b"},
		"a container with one only": {func(_, _ *resourcev1.ResourceClaim, pod *corev1.Pod) {
			side := podOf("p", map[string][]ref{"side": {{"a", ""}}})
			pod.Spec.Containers = append(pod.Spec.Containers, side.Spec.Containers...)
		}, "container main and container side of pod p have the same RDMA cards by this claim and others by other claims"},
	} {
		a, b, pod := twoClaims()
		test.change(a, b, pod)
		m, _ := newCardMachine(t, a, b, pod)
		r := m.start()
		if err := m.prepare(r, a).Err; err == nil || !strings.Contains(err.Error(), test.fault) {
			t.Errorf("%s: %v", name, err)
		}
		m.mustBeEmpty(r)
	}
}

// The container's GPU i and adapter i are pair i, whichever devices the pairs have and in whatever order they were allocated.
func TestOrderFollowsPairs(t *testing.T) {
	const count = 8
	for seed := range int64(5) {
		random := rand.New(rand.NewSource(seed))
		gpus, cards := random.Perm(count), random.Perm(count)
		pod := podOf("p", map[string][]ref{"main": {{"a", ""}}})
		claim := claimWith()
		minors := map[string]uint32{}
		results := make([]resourcev1.DeviceRequestAllocationResult, 0, 2*count)
		var wantGPUs, wantCards []string
		for pair := range count {
			uuid, adapter := fmt.Sprintf("GPU-00000000-0000-4000-8000-%012d", gpus[pair]+1), fmt.Sprint("m", cards[pair])
			results = append(results, result(dialect.PairRequest(pair, false), uuid, "4Gi", "0"), cardResult(dialect.PairRequest(pair, true), "nic-"+adapter+"-shared", "1"))
			minors["nic-"+adapter+"-shared"] = uint32(192 + cards[pair])
			wantGPUs, wantCards = append(wantGPUs, uuid), append(wantCards, adapter)
			for _, nic := range []bool{false, true} {
				claim.Spec.Devices.Requests = append(claim.Spec.Devices.Requests, resourcev1.DeviceRequest{Name: dialect.PairRequest(pair, nic)})
			}
		}
		random.Shuffle(len(results), func(i, j int) { results[i], results[j] = results[j], results[i] })
		claim.Status.Allocation.Devices.Results = results
		reserve(claim, pod)
		m, s := newCardMachine(t, claim, pod)
		m.backend.count = count
		s.renumber(minors)
		r := m.start()
		m.mustPrepare(r, claim)
		if got, want := m.apply(uidA).hca, "="+strings.Join(wantCards, ","); got != want {
			t.Errorf("seed %d: the adapters are %s, want %s", seed, got, want)
		}
		if got := m.shown(r); !slices.Equal(got, wantGPUs) {
			t.Errorf("seed %d: the GPUs are %v, want %v", seed, got, wantGPUs)
		}
	}
}

// shown are the GPUs of the one tenant in the order of its page, in which CUDA shows them.
func (m *machine) shown(r *running) (uuids []string) {
	m.t.Helper()
	l, err := r.agent.Listing(m.t.Context())
	if err != nil || len(l.Tenants) != 1 {
		m.t.Fatalf("%d tenants, %v", len(l.Tenants), err)
	}
	c, err := page.ReadConfig(tenantdir.Dir(l.Tenants[0].Dir).Config())
	if err != nil {
		m.t.Fatal(err)
	}
	for _, d := range c.Device[:c.DeviceCount] {
		u := d.UUID
		uuids = append(uuids, fmt.Sprintf("GPU-%x-%x-%x-%x-%x", u[:4], u[4:6], u[6:8], u[8:10], u[10:]))
	}
	return uuids
}

// A pod that comes later to prepared claims of several pods is told where its containers have others' part of the cards, or cards of two
// claims, which do not know of each other.
func TestLaterPodsAreToldOfCards(t *testing.T) {
	a := claimWith(cardResult("r", "nic-c0-shared", "1"), cardResult("s", "nic-c1-shared", "1"))
	b := claimWith(cardResult("nic", "nic-v0-vf", ""))
	b.Name, b.UID = "b", uidB
	first, second := podOf("first", map[string][]ref{"main": {{"a", ""}}}), podOf("second", map[string][]ref{"main": {{"b", ""}}})
	reserve(a, first)
	reserve(b, second)
	m := newMachine(t, a, b, first, second)
	m.cards = newShelf()
	r := m.start()
	m.mustPrepare(r, a)
	m.mustPrepare(r, b)
	for range 4 {
		<-m.events.Events // what they have
	}
	rec := newReconciler(r.driver)
	for name, test := range map[string]struct {
		named []ref
		want  string
	}{
		"same":  {[]ref{{"a", ""}}, ""},
		"part":  {[]ref{{"a", "s"}}, "container main of pod part names s and is given r and s, as it is prepared for pods that use it already"},
		"both":  {[]ref{{"a", ""}, {"b", ""}}, "container main of pod both has RDMA cards by two claims, a and b"},
		"other": {[]ref{{"b", ""}}, ""},
	} {
		pod := podOf(name, map[string][]ref{"main": test.named})
		if err := m.client.Tracker().Add(pod); err != nil {
			t.Fatal(err)
		}
		later := a.DeepCopy()
		reserve(later, pod)
		rec.beside(t.Context(), later)
		told := ""
		if len(m.events.Events) > 0 {
			told = <-m.events.Events
		}
		if (told == "") != (test.want == "") || !strings.Contains(told, test.want) {
			t.Errorf("pod %s is told %q, want %q", name, told, test.want)
		}
	}
}
