package scheduler

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// claimAt is a claim of a revision, with devices or without.
func claimAt(name, revision string) *resourcev1.ResourceClaim {
	return &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name, UID: types.UID(name), ResourceVersion: revision}}
}

// listAt is what the API server has at a revision: claims by name and revision.
func listAt(revision string, claims map[string]string) *metav1.PartialObjectMetadataList {
	list := &metav1.PartialObjectMetadataList{ListMeta: metav1.ListMeta{ResourceVersion: revision}}
	for name, at := range claims {
		list.Items = append(list.Items, metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name, UID: types.UID(name), ResourceVersion: at}})
	}
	return list
}

// Who heard of each claim at least what the API server has, and of each that is gone, is not behind.
func TestBehind(t *testing.T) {
	for name, test := range map[string]struct {
		heard, there map[string]string
		want         string
	}{
		"nothing is there":         {nil, nil, ""},
		"all is known":             {map[string]string{"one": "9"}, map[string]string{"one": "9"}, ""},
		"more is known":            {map[string]string{"one": "11"}, map[string]string{"one": "9"}, ""},
		"a change is not":          {map[string]string{"one": "9"}, map[string]string{"one": "10"}, "a/one"},
		"a new one is not":         {nil, map[string]string{"one": "9"}, "a/one"},
		"an end is not":            {map[string]string{"one": "9"}, nil, "a/one"},
		"one is newer than a list": {map[string]string{"one": "101"}, nil, ""},
	} {
		e := &Engine{}
		for claim, revision := range test.heard {
			e.onClaim(nil, claimAt(claim, revision), func() {})
		}
		e.onClaim(nil, claimAt("short", "5"), func() {})
		e.onClaim(claimAt("short", "5"), nil, func() {})
		if got := e.heard.behind(listAt("100", test.there), nil); got != test.want {
			t.Errorf("%s: waits for %q, want %q", name, got, test.want)
		}
	}
}

// Catching up ends with the event that is missing, and not before; what went meanwhile is not waited for, nor is an API server
// that did not answer at first.
func TestCatchUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, begun, asked := &Engine{}, time.Now(), 0
		e.onClaim(nil, claimAt("one", "9"), func() {})
		list := func(context.Context) (*metav1.PartialObjectMetadataList, error) {
			switch asked++; asked {
			case 1:
				return nil, errors.New("away")
			case 2:
				return listAt("20", map[string]string{"one": "12", "two": "13"}), nil
			default:
				return listAt("30", map[string]string{"one": "12"}), nil
			}
		}
		time.AfterFunc(2500*time.Millisecond, func() { e.onClaim(claimAt("one", "9"), claimAt("one", "12"), func() {}) })
		var told []string
		err := e.CatchUp(t.Context(), list, func(why string) { told = append(told, why) })
		if took := time.Since(begun); err != nil || took < 2500*time.Millisecond || took > 2600*time.Millisecond || asked != 3 || len(told) != 2 {
			t.Errorf("%v after %v and %d questions, told %q", err, took, asked, told)
		}
	})
}

// A claim that went after the list was made is not waited for, and one that was created anew by its name is.
func TestCatchUpWhileClaimsGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		e, asked := &Engine{}, 0
		e.onClaim(nil, claimAt("one", "8"), func() {})
		e.onClaim(nil, claimAt("three", "9"), func() {})
		list := func(context.Context) (*metav1.PartialObjectMetadataList, error) {
			asked++
			all := listAt("20", map[string]string{"two": "10", "three": "9"})
			e.onClaim(claimAt("one", "8"), nil, func() {})
			e.onClaim(claimAt("three", "9"), nil, func() {})
			all.Items = append(all.Items, metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "one", UID: "another", ResourceVersion: "11"}})
			return all, nil
		}
		begun := time.Now()
		time.AfterFunc(200*time.Millisecond, func() { e.onClaim(nil, claimAt("two", "10"), func() {}) })
		time.AfterFunc(400*time.Millisecond, func() { e.onClaim(nil, claimAt("one", "11"), func() {}) })
		err := e.CatchUp(ctx, list, func(string) {})
		if took := time.Since(begun); err != nil || took < 400*time.Millisecond || took > 500*time.Millisecond || asked != 1 {
			t.Errorf("%v after %v and %d questions", err, took, asked)
		}
	})
}

// Catching up ends with its context.
func TestCatchUpEnds(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(nil)
	err := (&Engine{}).CatchUp(ctx, func(context.Context) (*metav1.PartialObjectMetadataList, error) { return nil, errors.New("away") }, func(string) {})
	if !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
