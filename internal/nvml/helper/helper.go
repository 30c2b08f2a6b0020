package helper

import (
	"encoding/gob"
	"errors"
	"fmt"
	"time"

	"github.com/divvy-gpu/divvy/internal/nvml"
)

// The outcomes of a question that brought no answer.
var (
	// errSilent: the call has not returned in time.
	errSilent = errors.New("no answer in time")
	// errStuck: the helper is in a call for somebody else that has not returned in time.
	errStuck = errors.New("the helper is stuck")
	// errEnded: the helper has ended.
	errEnded = fmt.Errorf("%w: the helper process that asks it has ended", nvml.ErrDriver)
)

// helper is one helper process. One question at a time is with it.
type helper struct {
	process Process
	out     *gob.Encoder
	// turn has one entry while nobody asks. A question without an answer keeps it.
	turn    chan struct{}
	answers chan answer
	// stuck is closed when a question was not answered in time and somebody was blamed for it.
	stuck chan struct{}
	// retired is closed when the helper was replaced on purpose; nil while nobody means to. Driver.mu guards it.
	retired chan struct{}
	// met are the GPUs that were asked about: the first question may have to wake the GPU.
	met map[int]bool
	// opened tells that the library is open. Whoever has the turn, or waits for a stuck helper, sets it.
	opened bool
}

// newHelper adopts a process that was started. The caller has the turn.
func newHelper(p Process) *helper {
	h := &helper{
		process: p, out: gob.NewEncoder(p), turn: make(chan struct{}, 1), answers: make(chan answer, 1),
		stuck: make(chan struct{}), met: map[int]bool{},
	}
	go h.read()
	return h
}

// read passes answers on until the connection ends. There is room for each, because each question awaits its own.
func (h *helper) read() {
	in := gob.NewDecoder(h.process)
	for {
		var a answer
		if err := in.Decode(&a); err != nil {
			close(h.answers)
			return
		}
		h.answers <- a
	}
}

// ask waits for the turn and asks. It keeps the turn if there is no answer.
func (h *helper) ask(q question, limits Limits) (answer, error) {
	select {
	case <-h.turn:
	case <-h.stuck:
		return answer{}, errStuck
	case <-h.process.Ended():
		return answer{}, errEnded
	}
	limit := limits.Answer
	if !h.met[q.Index] {
		limit = limits.First
	}
	a, err := h.exchange(q, limit)
	if err == nil {
		h.met[q.Index] = true
		h.turn <- struct{}{}
	}
	return a, err
}

// exchange asks; the caller has the turn.
func (h *helper) exchange(q question, limit time.Duration) (answer, error) {
	if err := h.out.Encode(q); err != nil {
		return answer{}, errEnded
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case a, ok := <-h.answers:
		if !ok {
			return answer{}, errEnded
		}
		return a, nil
	case <-timer.C:
		return answer{}, errSilent
	}
}

// recovered is a stuck helper whose answer came after all, for further use.
func (h *helper) recovered() *helper {
	again := &helper{process: h.process, out: h.out, turn: make(chan struct{}, 1), answers: h.answers, stuck: make(chan struct{}), met: h.met, opened: true}
	again.turn <- struct{}{}
	return again
}
