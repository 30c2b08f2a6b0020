package webhook

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"

	"github.com/divvy-gpu/divvy/internal/dialect"
)

const limited = `{metadata: {name: team, namespace: space}, spec: {hard: {requests.divvy.dev/gpu-memory: 16Gi}}}`

func TestQuotaOfPods(t *testing.T) {
	w := newWorld(t, "{plain: {}}")
	w.know(t, w.quotas, &corev1.ResourceQuota{}, limited)
	w.know(t, w.claims, &resourcev1.ResourceClaim{}, `{metadata: {name: old, namespace: space, uid: u0}, spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: share.divvy.dev, capacity: {requests: {memory: 10Gi}}}}]}}}`)
	w.know(t, w.claims, &resourcev1.ResourceClaim{}, `{metadata: {name: far, namespace: elsewhere, uid: u1}, spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu.divvy.dev}}]}}}`)
	if _, err := w.judge.mutatePod(context.Background(), podRequest(t, asking)); err != nil {
		t.Errorf("4Gi beside 10Gi: %v", err)
	}
	two := `{spec: {containers: [{name: a, resources: {limits: {divvy.dev/gpu-memory: 4Gi}}}, {name: b, resources: {limits: {divvy.dev/gpu-memory: 4Gi}}}]}}`
	w.writes()
	w.pass(expectedFor + time.Second) // that pod was not made after all
	_, err := w.judge.mutatePod(context.Background(), podRequest(t, two))
	if !errors.Is(err, dialect.ErrRefused) || !strings.Contains(err.Error(), `quota "team" allows 16Gi of requests.divvy.dev/gpu-memory: 10Gi are used, and 8Gi more would be 18Gi`) {
		t.Errorf("two of 4Gi from one template beside 10Gi: %v", err)
	}
	if got := w.writes(); got != "" {
		t.Errorf("a refused pod wrote %q", got)
	}
	request := podRequest(t, two)
	request.Namespace = "elsewhere"
	if _, err := w.judge.mutatePod(context.Background(), request); err != nil {
		t.Errorf("a namespace without a quota: %v", err)
	}
}

// TestQuotaOfPodsAtOnce has pods reviewed before any of their claims is made.
func TestQuotaOfPodsAtOnce(t *testing.T) {
	w := newWorld(t, "{plain: {}}")
	w.know(t, w.quotas, &corev1.ResourceQuota{}, limited)
	pods := func(n int) (passed int) {
		t.Helper()
		for range n {
			_, err := w.judge.mutatePod(context.Background(), podRequest(t, asking))
			switch {
			case err == nil:
				passed++
			case !errors.Is(err, dialect.ErrRefused):
				t.Fatal(err)
			}
		}
		return passed
	}
	if _, err := w.judge.mutatePod(context.Background(), dryRun(podRequest(t, asking))); err != nil {
		t.Fatal(err)
	}
	if n := pods(6); n != 4 {
		t.Errorf("%d pods of 4Gi passed a quota of 16Gi", n)
	}
	// Their claims come: one is asked about here, one was let through by another server, two never come.
	if _, err := w.judge.validateClaim(context.Background(), claimRequest(t, claimOf("1", "4Gi"))); err != nil {
		t.Errorf("a pod's claim stands in its own way: %v", err)
	}
	known := strings.Replace(claimOf("2", "4Gi"), "name: c2", "name: c2, namespace: space", 1)
	w.know(t, w.claims, &resourcev1.ResourceClaim{}, known)
	w.know(t, w.claims, &resourcev1.ResourceClaim{}, known)
	w.know(t, w.claims, &resourcev1.ResourceClaim{}, strings.Replace(claimOf("1", "4Gi"), "name: c1", "name: c1, namespace: space", 1))
	if n := pods(1); n != 0 {
		t.Error("a claim that came fulfils the expectation of two")
	}
	w.pass(expectedFor + time.Second)
	if n := pods(6); n != 2 {
		t.Errorf("%d pods passed beside two claims, and two pods that were not made after all", n)
	}
}

func claimOf(uid, memory string) string {
	return `{metadata: {name: c` + uid + `, uid: u` + uid + `}, spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: share.divvy.dev, capacity: {requests: {memory: ` + memory + `}}}}]}}}`
}

func TestQuotaOfClaimsBehindTheCache(t *testing.T) {
	w := newWorld(t, "{plain: {}}")
	w.know(t, w.quotas, &corev1.ResourceQuota{}, limited)
	check := func(uid, memory string) error {
		_, err := w.judge.validateClaim(context.Background(), claimRequest(t, claimOf(uid, memory)))
		return err
	}
	if err := check("1", "10Gi"); err != nil {
		t.Fatal(err)
	}
	if err := check("2", "8Gi"); !errors.Is(err, dialect.ErrRefused) {
		t.Errorf("what was just let through is forgotten: %v", err)
	}
	if err := check("1", "10Gi"); err != nil {
		t.Errorf("a claim stands in its own way: %v", err)
	}
	// The cache catches up: the claim counts once, and no more when it is gone.
	seen := &resourcev1.ResourceClaim{}
	w.know(t, w.claims, seen, strings.Replace(claimOf("1", "10Gi"), "name: c1", "name: c1, namespace: space", 1))
	if err := check("3", "6Gi"); err != nil {
		t.Errorf("6Gi beside 10Gi: %v", err)
	}
	if err := w.claims.Delete(seen); err != nil {
		t.Fatal(err)
	}
	w.pass(admittedFor + time.Second)
	if err := check("4", "16Gi"); err != nil {
		t.Errorf("a claim that was not made after all is remembered: %v", err)
	}
	// A dry run is checked and not counted.
	w.pass(admittedFor + time.Second)
	if _, err := w.judge.validateClaim(context.Background(), dryRun(claimRequest(t, claimOf("5", "16Gi")))); err != nil {
		t.Fatal(err)
	}
	if err := check("6", "16Gi"); err != nil {
		t.Errorf("a dry run counts: %v", err)
	}
}

// TestQuotaOfManyAtOnce lets claims through that come at once, and no more than the quota has room for.
func TestQuotaOfManyAtOnce(t *testing.T) {
	w := newWorld(t, "{plain: {}}")
	w.know(t, w.quotas, &corev1.ResourceQuota{}, limited)
	var admitted sync.Map
	var group sync.WaitGroup
	for i := range 24 {
		request := claimRequest(t, claimOf(fmt.Sprint(i), "4Gi"))
		group.Go(func() {
			if _, err := w.judge.validateClaim(context.Background(), request); err == nil {
				admitted.Store(i, true)
			}
		})
	}
	group.Wait()
	n := 0
	admitted.Range(func(any, any) bool { n++; return true })
	if n != 4 {
		t.Errorf("%d claims of 4Gi were let through a quota of 16Gi", n)
	}
}

// TestQuotaWhileClaimsAreNotTold has the API server tell of no claims for a while, as one that is busy does: what was let
// through counts on, because it may have been made, until it tells again.
func TestQuotaWhileClaimsAreNotTold(t *testing.T) {
	w := newWorld(t, "{plain: {}}")
	w.know(t, w.quotas, &corev1.ResourceQuota{}, limited)
	check := func(uid string) error {
		_, err := w.judge.validateClaim(context.Background(), claimRequest(t, claimOf(uid, "10Gi")))
		return err
	}
	w.followed = time.Time{}
	if err := check("1"); err != nil {
		t.Fatal(err)
	}
	w.pass(admittedFor + time.Second)
	err := check("2")
	if !errors.Is(err, dialect.ErrRefused) || !strings.Contains(err.Error(), "the API server does not tell at the moment") {
		t.Errorf("beside one that may have been made: %v", err)
	}
	// It tells again, and what happened meanwhile takes a moment to arrive.
	w.followed = w.now()
	w.pass(time.Second)
	if err := check("3"); !errors.Is(err, dialect.ErrRefused) || strings.Contains(err.Error(), "at the moment") {
		t.Errorf("a second after it tells again: %v", err)
	}
	w.pass(admittedFor)
	if err := check("4"); err != nil {
		t.Errorf("the first one was not made: %v", err)
	}
}
