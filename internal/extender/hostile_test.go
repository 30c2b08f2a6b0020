package extender

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// What no scheduler asks is refused by its status, and takes nothing. The forged pod is another one's by its UID.
func TestHostileQuestions(t *testing.T) {
	w := newWorld(t, nodeOf(t, "a", 1))
	w.add(podOf(t, "p", 10))
	h := &handler{core: w.core, binder: w.binder, away: func() error { return nil }, room: newRoom(roomBytes), counts: w.binder.counts, log: slog.New(slog.DiscardHandler)}
	mux := h.mux()
	ask := func(method, path string, body io.Reader) (int, string) {
		request := httptest.NewRequestWithContext(t.Context(), method, path, body)
		out := httptest.NewRecorder()
		mux.ServeHTTP(out, request)
		return out.Code, out.Body.String()
	}
	question := func(gibs uint64, node string) string {
		return fmt.Sprintf(`{"Pod":{"metadata":{"name":"p","namespace":"default","uid":"uid-p","annotations":{"divvy.dev/request":%q}}},"NodeNames":[%q]}`, requestText(t, gibs), node)
	}
	deep := `{"Pod":{"metadata":` + strings.Repeat(`{"a":`, mostDepth) + `1` + strings.Repeat(`}`, mostDepth) + `},"NodeNames":["a"]}`
	for name, test := range map[string]struct {
		method, path string
		body         io.Reader
		want         int
		text         string
	}{
		"another method":     {http.MethodGet, "/filter", http.NoBody, http.StatusMethodNotAllowed, ""},
		"another verb":       {http.MethodPost, "/evict", strings.NewReader("{}"), http.StatusNotFound, ""},
		"long victims":       {http.MethodPost, "/preempt", io.LimitReader(endless{}, longestMessage+1), http.StatusRequestEntityTooLarge, ""},
		"whole victims":      {http.MethodPost, "/preempt", strings.NewReader(`{"Pod":{},"NodeNameToVictims":{"a":{"Pods":[]}}}`), http.StatusBadRequest, "set nodeCacheCapable: true"},
		"half of victims":    {http.MethodPost, "/preempt", strings.NewReader(`{"NodeNameToMetaVictims":{"a":{"Pods":[}}}`), http.StatusBadRequest, ""},
		"victims on no node": {http.MethodPost, "/preempt", strings.NewReader(strings.Replace(question(10, "a"), `"NodeNames":["a"]`, `"NodeNameToMetaVictims":{"nowhere":{"Pods":[{"UID":"v"}]}}`, 1)), http.StatusOK, `{"NodeNameToMetaVictims":{}}`},
		"long, without size": {http.MethodPost, "/filter", io.LimitReader(endless{}, longestMessage+1), http.StatusRequestEntityTooLarge, ""},
		"deep":               {http.MethodPost, "/filter", strings.NewReader(deep), http.StatusBadRequest, "deeper"},
		"whole nodes":        {http.MethodPost, "/filter", strings.NewReader(`{"Pod":{},"Nodes":{"items":[]},"NodeNames":null}`), http.StatusOK, `"Error":"invalid message: the scheduler is set up wrongly: it asks with whole nodes: set nodeCacheCapable: true`},
		"no names":           {http.MethodPost, "/filter", strings.NewReader(`{"Pod":{},"Nodes":null,"NodeNames":null}`), http.StatusOK, "set nodeCacheCapable: true"},
		"scores whole nodes": {http.MethodPost, "/prioritize", strings.NewReader(`{"Pod":{},"Nodes":{"items":[]},"NodeNames":null}`), http.StatusBadRequest, "set nodeCacheCapable: true"},
		"no such node":       {http.MethodPost, "/filter", strings.NewReader(question(10, "nowhere")), http.StatusOK, `"nowhere":"the node is not known yet"`},
		"another pod's UID":  {http.MethodPost, "/bind", strings.NewReader(`{"PodName":"p","PodNamespace":"default","PodUID":"uid-q","Node":"a"}`), http.StatusOK, "is gone"},
		"bind nowhere":       {http.MethodPost, "/bind", strings.NewReader(`{"PodName":"p","PodNamespace":"default","PodUID":"uid-p","Node":"nowhere"}`), http.StatusOK, "not known"},
	} {
		if code, text := ask(test.method, test.path, test.body); code != test.want || !strings.Contains(text, test.text) {
			t.Errorf("%s: %d %s", name, code, text)
		}
	}
	if inside, waiting := h.room.counts(); inside+waiting != 0 || len(w.posts) != 0 || w.core.unseen() != 0 || !w.room("a", 16) {
		t.Errorf("%d are in the room, %d Bindings written, %d noted, and GPU a is free: %v", inside+waiting, len(w.posts), w.core.unseen(), w.room("a", 16))
	}
	// A scheduler that shows another document than the API server has: the pod is bound to what the API server has, once filtered.
	if _, text := ask(http.MethodPost, "/filter", strings.NewReader(question(1, "a"))); !strings.Contains(text, `"NodeNames":["a"]`) {
		t.Error(text)
	}
	const bind = `{"PodName":"p","PodNamespace":"default","PodUID":"uid-p","Node":"a"}`
	if _, text := ask(http.MethodPost, "/bind", strings.NewReader(bind)); !strings.Contains(text, "changed after it was filtered") || len(w.posts) != 0 {
		t.Errorf("%s, %d Bindings", text, len(w.posts))
	}
	if _, text := ask(http.MethodPost, "/bind", strings.NewReader(bind)); text != `{"Error":""}` || !w.room("a", 6) || w.room("a", 7) {
		t.Error(text)
	}
}

// endless is white space without an end.
type endless struct{}

func (endless) Read(to []byte) (int, error) {
	for i := range to {
		to[i] = ' '
	}
	return len(to), nil
}
