package helper

import (
	"encoding/gob"
	"errors"
	"fmt"
	"slices"
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

// ask waits for the turn and asks. It keeps the turn if there is no answer, or one that was cut in a call.
func (h *helper) ask(items []item, limits Limits) (answer, error) {
	select {
	case <-h.turn:
	case <-h.stuck:
		return answer{}, errStuck
	case <-h.process.Ended():
		return answer{}, errEnded
	}
	a, err := h.exchange(question{Items: items}, h.longest(items, limits))
	if errors.Is(err, errSilent) {
		a, err = h.exchange(question{Cut: true}, limits.Answer)
	}
	if err != nil {
		return answer{}, err
	}
	a.Results = a.Results[:min(len(a.Results), len(items))]
	for i := range a.Results {
		h.met[items[i].Index] = true
	}
	if a.Busy = a.Busy && len(a.Results) < len(items); !a.Busy {
		h.turn <- struct{}{}
	}
	return a, nil
}

// longest is how long all of a question may take: longer where a GPU may have to be woken.
func (h *helper) longest(items []item, limits Limits) time.Duration {
	if slices.ContainsFunc(items, func(one item) bool { return !h.met[one.Index] }) {
		return limits.First
	}
	return limits.Others
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

// outcome waits for the answer to a question that was cut or given up. The cut itself may be answered before.
func (h *helper) outcome(limit time.Duration, over <-chan struct{}) (answer, error) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for {
		select {
		case a, ok := <-h.answers:
			if !ok {
				return answer{}, errEnded
			}
			if !a.Busy {
				return a, nil
			}
		case <-h.process.Ended():
			return answer{}, errEnded
		case <-timer.C:
			return answer{}, errSilent
		case <-over:
			return answer{}, errSilent
		}
	}
}

// taken is the helper for those who know that it is in a call that has not returned: nobody has a turn. Whoever waited
// for one looks for another helper.
func (h *helper) taken() *helper {
	close(h.stuck)
	return &helper{process: h.process, out: h.out, turn: make(chan struct{}, 1), answers: h.answers, stuck: make(chan struct{}), met: h.met, opened: h.opened}
}

// recovered is a stuck helper whose answer came after all, for further use.
func (h *helper) recovered() *helper {
	again := &helper{process: h.process, out: h.out, turn: make(chan struct{}, 1), answers: h.answers, stuck: make(chan struct{}), met: h.met, opened: true}
	again.turn <- struct{}{}
	return again
}
