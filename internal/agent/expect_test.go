package agent

import (
	"maps"
	"os"
	"strings"
	"testing"
)

// A GPU that the cluster has given to somebody who has not asked yet is kept from everybody
// else, and no longer than that.
func TestExpect(t *testing.T) {
	n := newNode(t)
	r := n.start()
	_, changed := r.Wholes()
	expected := map[string]Expected{otherID: {Claim: "a", Name: "team/a"}}
	r.Expect(expected)
	<-changed
	counted, changed := r.Wholes()
	if !maps.Equal(counted, map[string]uint64{otherID: 0}) {
		t.Errorf("told %v", counted)
	}
	r.Expect(expected)
	select {
	case <-changed:
		t.Error("the same is told as a change")
	default:
	}
	for _, other := range []string{"b", "ab"} {
		if _, err := r.Prepare(t.Context(), wholeGPU(other, otherID)); err == nil || !strings.Contains(err.Error(), "it is kept for claim team/a") {
			t.Errorf("%v", err)
		}
	}
	request := ask(20 * gib)
	request.Request.Among = []string{otherID}
	if _, err := r.create(t.Context(), n.asker(os.Getuid()).peer, request); err == nil || !strings.Contains(err.Error(), "team/a") {
		t.Errorf("%v", err)
	}
	n.prepared(r, wholeGPU("a/left", otherID))
	if err := r.Release(t.Context(), "a/left"); err != nil {
		t.Fatal(err)
	}
	n.prepared(r, wholeGPU("b", otherID))
}
