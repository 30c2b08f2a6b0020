package webhook

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	admissionv1 "k8s.io/api/admission/v1"

	"github.com/divvy-gpu/divvy/internal/dialect"
	"github.com/divvy-gpu/divvy/internal/listener"
)

// The paths that reviews are sent to.
const (
	PathMutatePods        = "/mutate-pods"
	PathMutateClaims      = "/mutate-claims"
	PathMutateTemplates   = "/mutate-templates"
	PathValidatePods      = "/validate-pods"
	PathValidateClaims    = "/validate-claims"
	PathValidateTemplates = "/validate-templates"
	PathValidateNotes     = "/validate-annotations"
	PathValidateQueues    = "/validate-queues"
	PathValidateSlotted   = "/validate-slots"
	PathValidateBindings  = "/validate-bindings"
)

const (
	// longestReview bounds a request. The API server takes objects of 3 MiB, and a review may hold two.
	longestReview = 8 << 20
	// longestWait is how long a review may take if the API server names no time.
	longestWait = 10 * time.Second
	// longestRead is how long the body may take from when it is its turn. The API server has it ready and sends it at once.
	longestRead = time.Second
	// reserve is the part of the API server's time that is left for sending the answer.
	reserve = 500 * time.Millisecond
)

// verdict answers one request.
type verdict func(context.Context, *admissionv1.AdmissionRequest) (admission, error)

// admission is what an admitted object gets.
type admission struct {
	patch dialect.Patch
	// warnings are shown to whoever creates the object, one line each.
	warnings []string
}

// handler serves the reviews.
func (j *judge) handler(counts *counts, log *slog.Logger) http.Handler {
	mux := http.NewServeMux()
	small, large := newLane(smallBytes), newLane(largeBytes)
	for path, verdict := range map[string]verdict{
		PathMutatePods:        j.mutatePod,
		PathMutateClaims:      j.mutateClaim,
		PathMutateTemplates:   j.mutateTemplate,
		PathValidatePods:      j.validatePod,
		PathValidateClaims:    j.validateClaim,
		PathValidateTemplates: j.validateTemplate,
		PathValidateNotes:     j.validateNotes,
		PathValidateQueues:    j.validateQueue,
		PathValidateSlotted:   j.validateSlotted,
		PathValidateBindings:  j.validateBinding,
	} {
		mux.Handle("POST "+path, &endpoint{path: path, judge: verdict, small: small, large: large, counts: counts, log: log})
	}
	return mux
}

type endpoint struct {
	path         string
	judge        verdict
	small, large *lane
	counts       *counts
	log          *slog.Logger
}

// ServeHTTP implements [http.Handler].
func (e *endpoint) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	began := time.Now()
	ctx, cancel := context.WithTimeout(r.Context(), timeLimit(r))
	defer cancel()
	text, outcome, err := e.review(ctx, w, r)
	e.counts.done(e.path, outcome, began)
	if err != nil {
		code := codeOf(err)
		if code == http.StatusTooManyRequests {
			w.Header().Set("Retry-After", "1")
		}
		http.Error(w, err.Error(), code)
		return
	}
	listener.Answered(r.Context())
	w.Header().Set("Content-Type", "application/json")
	if _, err := w.Write(text); err != nil {
		e.log.Info("the API server did not wait for the answer", "path", e.path, "error", err)
	}
}

// errSlow says that a body took too long.
var errSlow = errors.New("the body did not come in time")

// codeOf is the status that goes with an error.
func codeOf(err error) int {
	tooLong := (*http.MaxBytesError)(nil)
	switch {
	case errors.Is(err, errBusy):
		return http.StatusTooManyRequests
	case errors.As(err, &tooLong):
		return http.StatusRequestEntityTooLarge
	case errors.Is(err, errSlow):
		return http.StatusRequestTimeout
	case errors.Is(err, errReview):
		return http.StatusBadRequest
	}
	return http.StatusInternalServerError
}

// review reads and judges a request when its lane has room. It returns the answer, and the outcome for the metrics.
func (e *endpoint) review(ctx context.Context, w http.ResponseWriter, r *http.Request) (text []byte, outcome string, err error) {
	if r.ContentLength > longestReview {
		return nil, "unreadable", &http.MaxBytesError{Limit: longestReview}
	}
	leave, err := e.enter(ctx, r)
	if err != nil {
		return nil, "busy", err
	}
	defer leave()
	body, err := readBody(w, r)
	if err != nil {
		return nil, "unreadable", err
	}
	request, err := readReview(body)
	if err != nil {
		return nil, "unreadable", err
	}
	given, refusal := e.judge(ctx, request)
	text, err = writeReview(request, given, refusal)
	if err != nil {
		return nil, "failed", err
	}
	if refusal != nil {
		e.log.Info("refused", "path", e.path, "namespace", request.Namespace, "name", request.Name, "user", request.UserInfo.Username, "reason", refusal)
	}
	return text, result(given.patch, refusal), nil
}

// enter waits until there is room for the request's body. A body of unknown length counts as the longest.
func (e *endpoint) enter(ctx context.Context, r *http.Request) (leave func(), err error) {
	length := r.ContentLength
	if length < 0 {
		length = longestReview
	}
	lane := e.large
	if length <= smallBody {
		lane = e.small
	}
	leave, err = lane.enter(ctx, addressOf(r.RemoteAddr), max(length, leastBytes))
	if errors.Is(err, context.DeadlineExceeded) {
		err = errBusy
	}
	return leave, err
}

// readBody reads a request's body, which must come soon, into as much memory as it takes.
func readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	// Where there is no connection to set a deadline for, nobody is slow.
	connection := http.NewResponseController(w)
	_ = connection.SetReadDeadline(time.Now().Add(longestRead))
	reader := http.MaxBytesReader(w, r.Body, longestReview)
	var body []byte
	var err error
	if r.ContentLength >= 0 {
		body = make([]byte, r.ContentLength)
		_, err = io.ReadFull(reader, body)
	} else {
		body, err = io.ReadAll(reader)
	}
	tooLong := (*http.MaxBytesError)(nil)
	switch {
	case err == nil:
		_ = connection.SetReadDeadline(time.Time{})
		return body, nil
	case errors.As(err, &tooLong):
		return nil, err
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, fmt.Errorf("%w: %w", errSlow, err)
	}
	return nil, fmt.Errorf("%w: %w", errReview, err)
}

// result names an outcome for the metrics.
func result(patch dialect.Patch, refusal error) string {
	switch {
	case refused(refusal), errors.Is(refusal, errReview):
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

// addressOf is the host of an address with a port.
func addressOf(address string) string {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return address
	}
	return host
}
