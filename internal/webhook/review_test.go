package webhook

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	admissionv1 "k8s.io/api/admission/v1"
	"sigs.k8s.io/yaml"
)

// ask sends bytes to a path of the judge's handler.
func ask(w *world, path string, body []byte) *httptest.ResponseRecorder {
	recorder := httptest.NewRecorder()
	handler := w.judge.handler(newCounts(prometheus.NewRegistry()), quiet())
	handler.ServeHTTP(recorder, httptest.NewRequest(http.MethodPost, path, bytes.NewReader(body)))
	return recorder
}

// TestGolden compares answers with recorded ones, byte for byte; UPDATE=1 records them anew. The name of each file
// begins with the path that it is sent to.
func TestGolden(t *testing.T) {
	paths, err := filepath.Glob("testdata/*.review.json")
	if err != nil || len(paths) < 6 {
		t.Fatalf("%d reviews, %v", len(paths), err)
	}
	for _, path := range paths {
		t.Run(filepath.Base(path), func(t *testing.T) {
			body, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			name, _, _ := strings.Cut(filepath.Base(path), "_")
			w := newWorld(t, "{plain: {}, kai: {}, hami: {}}")
			recorder := ask(w, "/"+name+"?timeout=10s", body)
			if recorder.Code != http.StatusOK {
				t.Fatalf("%d %s", recorder.Code, recorder.Body)
			}
			var answer admissionv1.AdmissionReview
			if err := json.Unmarshal(recorder.Body.Bytes(), &answer); err != nil {
				t.Fatal(err)
			}
			got := readable(t, w, &answer)
			golden := strings.Replace(path, ".review.json", ".answer.yaml", 1)
			if os.Getenv("UPDATE") != "" {
				if err := os.WriteFile(golden, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if want, err := os.ReadFile(golden); err != nil || !bytes.Equal(want, got) {
				t.Errorf("%v, got\n%s", err, got)
			}
		})
	}
}

// readable writes an answer with its patch decoded. Whatever is asked, nothing is written.
func readable(t *testing.T, w *world, answer *admissionv1.AdmissionReview) []byte {
	t.Helper()
	var patch any
	if len(answer.Response.Patch) > 0 {
		if err := json.Unmarshal(answer.Response.Patch, &patch); err != nil {
			t.Fatal(err)
		}
		answer.Response.Patch = nil
	}
	if wrote := w.writes(); wrote != "" {
		t.Errorf("wrote %s", wrote)
	}
	text, err := yaml.Marshal(map[string]any{"answer": answer, "patch": patch})
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestUnreadableReviews(t *testing.T) {
	w := newWorld(t, "{plain: {}}")
	good := `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"1","operation":"CREATE","resource":{"group":"","version":"v1","resource":"pods"},"object":`
	for body, want := range map[string]int{
		``:     http.StatusBadRequest,
		`null`: http.StatusBadRequest,
		`[]`:   http.StatusBadRequest,
		`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}`:                            http.StatusBadRequest,
		`{"apiVersion":"admission.k8s.io/v1beta1","kind":"AdmissionReview","request":{"uid":"1"}}`: http.StatusBadRequest,
		`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{}}`:               http.StatusBadRequest,
		strings.Repeat(" ", longestReview+1):                                                       http.StatusRequestEntityTooLarge,
		good + `{"spec":{"containers":{}}}}}`:                                                      http.StatusOK, // refused in the answer
		good + `null}}`:                                                                            http.StatusOK,
	} {
		recorder := ask(w, PathMutatePods, []byte(body))
		if recorder.Code != want {
			t.Errorf("%.80q: %d, want %d", body, recorder.Code, want)
		}
		if strings.Contains(body, `"containers":{}`) && !strings.Contains(recorder.Body.String(), `"allowed":false`) {
			t.Errorf("a pod that does not read: %s", recorder.Body)
		}
	}
	for _, method := range []string{http.MethodGet, http.MethodPut} {
		recorder := httptest.NewRecorder()
		w.judge.handler(newCounts(prometheus.NewRegistry()), quiet()).ServeHTTP(recorder, httptest.NewRequest(method, PathMutatePods, nil))
		if recorder.Code != http.StatusMethodNotAllowed {
			t.Errorf("%s: %d", method, recorder.Code)
		}
	}
}

func TestTimeLimit(t *testing.T) {
	for query, want := range map[string]string{"": "9.5s", "?timeout=3s": "2.5s", "?timeout=600ms": "300ms", "?timeout=1h": "9.5s", "?timeout=-3s": "9.5s", "?timeout=x": "9.5s"} {
		if got := timeLimit(httptest.NewRequest(http.MethodPost, "/"+query, nil)).String(); got != want {
			t.Errorf("%q: %s, want %s", query, got, want)
		}
	}
}

// FuzzReview sends foreign bytes to every path: whatever they are, there is an answer, it is one of HTTP's or a whole
// review, and nothing is written.
func FuzzReview(f *testing.F) {
	reviews, err := filepath.Glob("testdata/*.review.json")
	if err != nil {
		f.Fatal(err)
	}
	for i, path := range reviews {
		body, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(body, byte(i))
	}
	paths := []string{PathMutatePods, PathValidatePods, PathValidateClaims, PathValidateTemplates}
	f.Fuzz(func(t *testing.T, body []byte, choice byte) {
		w := newWorld(t, "{plain: {}, kai: {}, hami: {}}")
		recorder := ask(w, paths[int(choice)%len(paths)], body)
		if recorder.Code != http.StatusOK {
			if recorder.Code != http.StatusBadRequest {
				t.Errorf("%d", recorder.Code)
			}
			return
		}
		var answer admissionv1.AdmissionReview
		if err := json.Unmarshal(recorder.Body.Bytes(), &answer); err != nil || answer.Response == nil || answer.Response.UID == "" {
			t.Fatalf("%v: %s", err, recorder.Body)
		}
		if !answer.Response.Allowed && (answer.Response.Result == nil || answer.Response.Result.Message == "" || strings.Contains(answer.Response.Result.Message, "\n")) {
			t.Errorf("a refusal that is not one line: %s", recorder.Body)
		}
		if wrote := w.writes(); wrote != "" {
			t.Errorf("%s for %s", wrote, recorder.Body)
		}
	})
}
