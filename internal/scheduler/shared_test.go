package scheduler

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/kubernetes/fake"
)

// Of pods that share a claim one has it given its devices, and the others wait: whoever fails first would otherwise end the
// note that the next one needs.
func TestOneGivesASharedClaim(t *testing.T) {
	claims := claimsByName{}
	e := engineOf(t, 1, claims)
	pods := alone(e, claims, 2, 50)
	pods[1].Spec.ResourceClaims[0].ResourceClaimName = pods[0].Spec.ResourceClaims[0].ResourceClaimName
	lets := func(string) bool { return true }
	var units []*Unit
	for _, pod := range pods {
		u, err := e.Read(pod)
		if err != nil {
			t.Fatal(err)
		}
		units = append(units, u)
	}
	if err := e.Choose(units[0], nil, lets); err != nil {
		t.Fatal(err)
	}
	if err := e.Reserve(units[0]); err != nil {
		t.Fatal(err)
	}
	if err := e.Choose(units[1], nil, lets); !errors.Is(err, ErrBusy) || !errors.Is(err, ErrRoom) || !Contested(err) {
		t.Errorf("the second pod gives the same claim devices: %v", err)
	}
	e.Unreserve(units[0])
	e.Drain()
	if err := e.Choose(units[1], nil, lets); err != nil {
		t.Errorf("the first pod has failed: %v", err)
	}
}

// Members of a gang that share a claim are planned at once, and the note of its place stays until the last of them has failed.
func TestNoteOfASharedClaim(t *testing.T) {
	claims := claimsByName{}
	e := engineOf(t, 1, claims)
	pods := alone(e, claims, 1, 50)
	read := func() *Unit {
		u, err := e.Read(pods[0])
		if err == nil {
			err = e.Choose(u, nil, func(string) bool { return true })
		}
		if err != nil {
			t.Fatal(err)
		}
		return u
	}
	one, other := read(), read()
	key := one.Allocations[0].Claim.Key()
	other.Place, other.Allocations = one.Place, one.Allocations
	for _, u := range []*Unit{one, other} {
		if err := e.Reserve(u); err != nil {
			t.Fatal(err)
		}
	}
	noted := func(when string, want bool) {
		t.Helper()
		e.Drain()
		if got := len(e.ledger.Held(key)) > 0; got != want {
			t.Errorf("%s: noted %v", when, got)
		}
	}
	e.Unreserve(one)
	noted("one has failed", true)
	e.Unreserve(one)
	noted("it has failed again", true)
	e.Unreserve(other)
	noted("both have failed", false)
}

// What was taken back is settled once events have told it, or the claim has gone.
func TestSettle(t *testing.T) {
	for name, test := range map[string]struct {
		tells func(e *Engine)
		want  time.Duration
	}{
		"told before": {func(e *Engine) { e.onClaim(nil, claimAt("claim", "7"), func() {}) }, 0},
		"told later": {func(e *Engine) {
			e.onClaim(nil, claimAt("claim", "5"), func() {})
			time.AfterFunc(5*time.Second, func() { e.onClaim(claimAt("claim", "5"), claimAt("claim", "8"), func() {}) })
		}, 5 * time.Second},
		"it has gone": {func(*Engine) {}, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			e, u, begun := &Engine{}, &Unit{}, time.Now()
			u.note(claimAt("claim", "1"), "7")
			test.tells(e)
			err := e.Settle(t.Context(), &Writer{Client: fake.NewClientset()}, u)
			if took := time.Since(begun); err != nil || took < test.want || test.want == 0 && took > 0 {
				t.Errorf("%s: %v after %v", name, err, took)
			}
		})
	}
}
