package extender

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/divvy-gpu/divvy/internal/listener"
)

// Verbs of the scheduler's configuration, each a path of its own.
const (
	VerbFilter     = "filter"
	VerbPrioritize = "prioritize"
	VerbPreempt    = "preempt"
	VerbBind       = "bind"
)

const (
	// longestBody is how long a question may take from when there is room for it, and longestSend its answer. The scheduler has the
	// whole of a question ready, and reads the answer at once.
	longestBody = 5 * time.Second
	longestSend = 5 * time.Second
	// longestBinding bounds a question that is nothing but four names, in bytes. There is always room for it.
	longestBinding = 8 << 10
)

// errAway says that this replica answers nothing, and why.
var errAway = errors.New("no pod with a share is placed now")

// handler answers the scheduler.
type handler struct {
	core   *core
	binder *binder
	// away says why nothing is answered, nil if it is.
	away   func() error
	room   *room
	counts *counts
	log    *slog.Logger
}

func (h *handler) mux() http.Handler {
	mux := http.NewServeMux()
	for verb, answer := range map[string]func(context.Context, []byte) ([]byte, error){
		VerbFilter: h.filter, VerbPrioritize: h.prioritise, VerbPreempt: h.preempt, VerbBind: h.bind,
	} {
		mux.HandleFunc("POST /"+verb, func(w http.ResponseWriter, r *http.Request) { h.serve(w, r, verb, answer) })
	}
	return mux
}

// serve answers one question. Of a fault the scheduler tells people nothing but the status, so whatever they are to know is in an
// answer with status 200, where the protocol has a field for it.
func (h *handler) serve(w http.ResponseWriter, r *http.Request, verb string, answer func(context.Context, []byte) ([]byte, error)) {
	began := time.Now()
	ctx := r.Context()
	var text []byte
	place, err := h.enter(ctx, r, verb)
	if err == nil {
		defer place.leave()
		text, err = read(w, r, longestOf(verb))
	}
	result := "answered"
	if err == nil {
		place.waits(false)
		text, err = answer(ctx, text)
	}
	if err != nil {
		text, result = h.fault(verb, err)
	}
	h.counts.done(verb, result, began)
	place.waits(true)
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(longestSend))
	if text == nil {
		h.log.WarnContext(ctx, "a question is not answered", "verb", verb, "error", err)
		http.Error(w, err.Error(), codeOf(err))
		return
	}
	listener.Answered(ctx)
	w.Header().Set("Content-Type", "application/json")
	if _, err := w.Write(text); err != nil {
		h.log.WarnContext(ctx, "the scheduler did not wait for the answer", "verb", verb, "error", err)
	}
}

// longestOf is the longest question of a verb, in bytes.
func longestOf(verb string) int64 {
	if verb == VerbBind {
		return longestBinding
	}
	return longestMessage
}

// enter waits until there is room for a question, nil for one that needs none. One that does not say how long it is counts as the
// longest.
func (h *handler) enter(ctx context.Context, r *http.Request, verb string) (*stay, error) {
	if err := h.away(); err != nil {
		return nil, err
	}
	longest, bytes := longestOf(verb), r.ContentLength
	switch {
	case bytes > longest:
		return nil, fmt.Errorf("%w: %w", errMessage, &http.MaxBytesError{Limit: longest})
	case verb == VerbBind: // which waits for the API server, and is to keep no room meanwhile
		return nil, nil
	case bytes < 0:
		bytes = longest
	}
	return h.room.enter(ctx, bytes, func() { listener.Hang(ctx) })
}

// fault is what the scheduler is told of an error, nil where a status is all that it understands.
func (h *handler) fault(verb string, err error) (text []byte, result string) {
	result = "refused"
	switch {
	case errors.Is(err, errSetUp):
		result = "unreadable"
	case errors.Is(err, errMessage):
		return nil, "unreadable"
	case errors.Is(err, errAway):
		result = "away"
	}
	switch verb {
	case VerbFilter:
		return (&filtered{fault: err.Error()}).text(), result
	case VerbBind:
		return boundText(err.Error()), result
	}
	return nil, result
}

// codeOf is the status that goes with an error.
func codeOf(err error) int {
	tooLong := (*http.MaxBytesError)(nil)
	switch {
	case errors.As(err, &tooLong):
		return http.StatusRequestEntityTooLarge
	case errors.Is(err, errMessage):
		return http.StatusBadRequest
	}
	return http.StatusServiceUnavailable
}

// read reads a question, which must come soon.
func read(w http.ResponseWriter, r *http.Request, longest int64) ([]byte, error) {
	// Where there is no connection to set a deadline for, nobody is slow.
	connection := http.NewResponseController(w)
	_ = connection.SetReadDeadline(time.Now().Add(longestBody))
	// Room for all of it from the start: what grows leaves as much again behind, of the largest that is allocated here.
	text := bytes.NewBuffer(make([]byte, 0, max(r.ContentLength, 0)+bytes.MinRead))
	if _, err := text.ReadFrom(http.MaxBytesReader(w, r.Body, longest)); err != nil {
		return nil, fmt.Errorf("%w: %w", errMessage, err)
	}
	_ = connection.SetReadDeadline(time.Time{}) // a binding may take longer
	return text.Bytes(), nil
}

func (h *handler) filter(_ context.Context, text []byte) ([]byte, error) {
	q, err := readQuestion(text)
	if err != nil {
		return nil, err
	}
	answer := h.core.filter(q)
	return answer.text(), nil
}

func (h *handler) prioritise(_ context.Context, text []byte) ([]byte, error) {
	q, err := readQuestion(text)
	if err != nil {
		return nil, err
	}
	scores, err := h.core.prioritise(q)
	if err != nil {
		return nil, err
	}
	return scoresText(scores), nil
}

func (h *handler) preempt(_ context.Context, text []byte) ([]byte, error) {
	q, err := readPreemption(text)
	if err != nil {
		return nil, err
	}
	return q.text(h.core.preempt(q.question)), nil
}

func (h *handler) bind(ctx context.Context, text []byte) ([]byte, error) {
	ask, err := readBinding(text)
	if err != nil {
		return nil, err
	}
	if err := h.binder.bind(ctx, ask); err != nil {
		return nil, err
	}
	return boundText(""), nil
}
