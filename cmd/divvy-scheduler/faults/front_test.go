package faults

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/divvy-gpu/divvy/test/bench/plane"
)

// front stands before the API server. The schedulers ask it, the test asks the API server itself.
type front struct {
	*plane.Front
	// lists counts the requests which claims there are.
	lists atomic.Int64
}

func newFront(t *testing.T, server string) *front {
	t.Helper()
	f := &front{}
	var err error
	f.Front, err = plane.NewFront(server, func(r *http.Request) bool {
		if onlyNames(r) {
			f.lists.Add(1)
		}
		return follows(r)
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Close)
	return f
}

// onlyNames reports whether a request asks which claims there are, and not what they are.
func onlyNames(r *http.Request) bool {
	return ofClaims(r) && strings.Contains(r.Header.Get("Accept"), "as=PartialObjectMetadataList")
}

func ofClaims(r *http.Request) bool {
	return r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/resourceclaims")
}

// follows reports whether a request would have somebody follow claims: it watches them or lists them as they are.
func follows(r *http.Request) bool {
	return ofClaims(r) && !onlyNames(r)
}
