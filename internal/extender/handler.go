package extender

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"
)

// Verbs of the scheduler's configuration, each a path of its own.
const (
	VerbFilter     = "filter"
	VerbPrioritize = "prioritize"
	VerbBind       = "bind"
)

const (
	// mostAtOnce is how many questions are read and answered at once. A scheduler filters for one pod at a time and binds several.
	mostAtOnce = 64
	// longestWait is how long a question may wait for its turn.
	longestWait = 5 * time.Second
)

// errAway says that this replica answers nothing, and why.
var errAway = errors.New("no pod with a share is placed now")

// handler answers the scheduler.
type handler struct {
	core   *core
	binder *binder
	// away says why nothing is answered, nil if it is.
	away   func() error
	turns  chan struct{}
	counts *counts
	log    *slog.Logger
}

func (h *handler) mux() http.Handler {
	mux := http.NewServeMux()
	for verb, answer := range map[string]func(context.Context, []byte) ([]byte, error){
		VerbFilter: h.filter, VerbPrioritize: h.prioritise, VerbBind: h.bind,
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
	text, err := h.read(ctx, w, r)
	result := "answered"
	if err == nil {
		text, err = answer(ctx, text)
	}
	if err != nil {
		text, result = h.fault(verb, err)
	}
	h.counts.done(verb, result, began)
	if text == nil {
		h.log.WarnContext(ctx, "a question is not answered", "verb", verb, "error", err)
		http.Error(w, err.Error(), codeOf(err))
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if _, err := w.Write(text); err != nil {
		h.log.WarnContext(ctx, "the scheduler did not wait for the answer", "verb", verb, "error", err)
	}
}

// fault is what the scheduler is told of an error, nil where a status is all that it understands.
func (h *handler) fault(verb string, err error) (text []byte, result string) {
	result = "refused"
	switch {
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

// read reads a question when it is its turn.
func (h *handler) read(ctx context.Context, w http.ResponseWriter, r *http.Request) ([]byte, error) {
	if err := h.away(); err != nil {
		return nil, err
	}
	timer := time.NewTimer(longestWait)
	defer timer.Stop()
	select {
	case h.turns <- struct{}{}:
		defer func() { <-h.turns }()
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-timer.C:
		return nil, fmt.Errorf("%w: %d questions are being read already", errAway, mostAtOnce)
	}
	if r.ContentLength > longestMessage {
		return nil, fmt.Errorf("%w: %w", errMessage, &http.MaxBytesError{Limit: longestMessage})
	}
	// Room for all of it from the start: what grows leaves as much again behind, of the largest that is allocated here.
	text := bytes.NewBuffer(make([]byte, 0, max(r.ContentLength, 0)+bytes.MinRead))
	if _, err := text.ReadFrom(http.MaxBytesReader(w, r.Body, longestMessage)); err != nil {
		return nil, fmt.Errorf("%w: %w", errMessage, err)
	}
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
