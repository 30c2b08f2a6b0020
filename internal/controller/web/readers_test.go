package web

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestAnswersAreKeptForAWhile counts what the API server is asked.
func TestAnswersAreKeptForAWhile(t *testing.T) {
	w := newWorld(t, busy()...)
	w.user("t", "ada", "pods/red")
	sees := func() bool { return strings.Contains(w.get("/cluster.json", "t").Body.String(), "train") }
	for range 2 {
		if !sees() || w.reviewed() != 1 {
			t.Fatalf("%d reviews of one token", w.reviewed())
		}
	}
	w.user("t", "ada") // the right is taken away
	w.passes(allowedFor - time.Second)
	if !sees() {
		t.Error("an answer ends early")
	}
	w.passes(time.Second)
	if sees() || w.reviewed() != 2 {
		t.Error("a right that was taken away lasts")
	}
	// What is denied is asked again sooner.
	code := func() int { return w.get("/", "new").Code }
	if code() != http.StatusUnauthorized {
		t.Fatal("an unknown token")
	}
	w.user("new", "new", "nodes")
	if code() != http.StatusUnauthorized {
		t.Error("a denied answer is not kept")
	}
	w.passes(deniedFor)
	if code() != http.StatusOK {
		t.Error("a denied answer is kept for too long")
	}
}

func TestAnswersAreBounded(t *testing.T) {
	w := newWorld(t)
	w.user("t", "ada", "nodes")
	w.get("/", "t")
	for i := range 3 * mostReaders {
		w.get("/", fmt.Sprint("guess-", i))
	}
	if n := len(w.pages.readers.known); n > mostReaders {
		t.Errorf("%d answers are kept", n)
	}
	before := w.reviewed()
	if w.get("/", "t"); w.reviewed() != before {
		t.Error("guesses drove out a reader")
	}
	for digest := range w.pages.readers.known {
		if bytes.Contains(digest[:], []byte("guess")) {
			t.Error("a token is kept")
		}
	}
}

// TestOneRenderingForEqualRights has people look who may see the same. Each is called by their own name.
func TestOneRenderingForEqualRights(t *testing.T) {
	w := newWorld(t, busy()...)
	for i := range 20 {
		token := fmt.Sprint("t-", i)
		w.user(token, fmt.Sprint("user-", i, "!"), "nodes")
		page := w.get("/", token).Body.String()
		if !strings.Contains(page, fmt.Sprint("<b>user-", i, "!</b>")) || strings.Count(page, "user-") != 1 {
			t.Fatalf("%s", page)
		}
	}
	if n := w.pages.site.Rendered(); n > 2 {
		t.Errorf("%d renderings for 20 readers with the same rights", n)
	}
}

// TestOneReviewAtATime has many ask with one token at once.
func TestOneReviewAtATime(t *testing.T) {
	w := newWorld(t, busy()...)
	w.user("t", "ada", "nodes")
	var under sync.WaitGroup
	for range 50 {
		under.Go(func() { w.get("/cluster.json", "t") })
	}
	under.Wait()
	if w.reviewed() != 1 || w.pages.site.Rendered() != 1 {
		t.Errorf("%d reviews, %d renderings", w.reviewed(), w.pages.site.Rendered())
	}
}
