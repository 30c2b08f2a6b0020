package webhook

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"time"

	admissionv1 "k8s.io/api/admission/v1"

	"github.com/divvy-gpu/divvy/internal/dialect"
)

// The paths that reviews are sent to.
const (
	PathMutatePods        = "/mutate-pods"
	PathValidatePods      = "/validate-pods"
	PathValidateClaims    = "/validate-claims"
	PathValidateTemplates = "/validate-templates"
)

const (
	// longestReview bounds a request. The API server takes objects of 3 MiB, and a review may hold two.
	longestReview = 8 << 20
	// longestWait is how long a review may take if the API server names no time.
	longestWait = 10 * time.Second
	// reserve is the part of the API server's time that is left for sending the answer.
	reserve = 500 * time.Millisecond
)

// verdict answers one request.
type verdict func(context.Context, *admissionv1.AdmissionRequest) (dialect.Patch, error)

// handler serves the reviews.
func (j *judge) handler(counts *counts, log *slog.Logger) http.Handler {
	mux := http.NewServeMux()
	for path, verdict := range map[string]verdict{
		PathMutatePods:        j.mutatePod,
		PathValidatePods:      j.validatePod,
		PathValidateClaims:    j.validateClaim,
		PathValidateTemplates: j.validateTemplate,
	} {
		mux.Handle("POST "+path, &endpoint{path: path, judge: verdict, counts: counts, log: log})
	}
	return mux
}

type endpoint struct {
	path   string
	judge  verdict
	counts *counts
	log    *slog.Logger
}

// ServeHTTP implements [http.Handler].
func (e *endpoint) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	began := time.Now()
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, longestReview))
	if err != nil {
		e.counts.done(e.path, "unreadable", began)
		code := http.StatusBadRequest
		if tooLong := (*http.MaxBytesError)(nil); errors.As(err, &tooLong) {
			code = http.StatusRequestEntityTooLarge
		}
		http.Error(w, err.Error(), code)
		return
	}
	request, err := readReview(body)
	if err != nil {
		e.counts.done(e.path, "unreadable", began)
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), timeLimit(r))
	defer cancel()
	patch, refusal := e.judge(ctx, request)
	text, err := writeReview(request, patch, refusal)
	if err != nil {
		e.counts.done(e.path, "failed", began)
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	e.counts.done(e.path, result(patch, refusal), began)
	if refusal != nil {
		e.log.Info("refused", "path", e.path, "namespace", request.Namespace, "name", request.Name, "user", request.UserInfo.Username, "reason", refusal)
	}
	w.Header().Set("Content-Type", "application/json")
	if _, err := w.Write(text); err != nil {
		e.log.Info("the API server did not wait for the answer", "path", e.path, "error", err)
	}
}

// result names an outcome for the metrics.
func result(patch dialect.Patch, refusal error) string {
	switch {
	case errors.Is(refusal, dialect.ErrRefused), errors.Is(refusal, dialect.ErrClaim), errors.Is(refusal, errReview):
		return "refused"
	case refusal != nil:
		return "failed"
	case len(patch) > 0:
		return "patched"
	}
	return "allowed"
}

// timeLimit returns how long the API server waits for this answer. The request's query names it.
func timeLimit(r *http.Request) time.Duration {
	given, err := time.ParseDuration(r.URL.Query().Get("timeout"))
	if err != nil || given <= 0 || given > longestWait {
		given = longestWait
	}
	return max(given-reserve, given/2)
}
