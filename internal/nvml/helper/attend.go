package helper

import (
	"errors"
	"slices"
	"time"

	"github.com/divvy-gpu/divvy/internal/nvml"
)

// attend waits until a silent seat answers: its helper after all or, when that has ended, another one. h is nil where
// there is none yet.
func (d *Driver) attend(s *seat, h *helper) {
	pause := d.config.Limits.Pause
	for {
		if h != nil {
			a, err := h.outcome(d.config.Limits.Abandon, d.closed)
			if err == nil && (a.Fault == nil || h.opened) && !lost(a) {
				d.restore(s, h.recovered(), a)
				return
			}
			if !d.end(h) {
				return
			}
		}
		select {
		case <-time.After(pause):
		case <-d.closed:
			return
		}
		pause = min(2*pause, d.config.Limits.LongestPause)
		if h = d.beginAgain(s); h == nil {
			continue
		}
		a, err := d.try(s, h)
		if err == nil {
			d.restore(s, h, a)
			return
		}
		if !errors.Is(err, errSilent) {
			if !d.end(h) {
				return
			}
			h = nil
		}
	}
}

// end ends a helper and waits until it has. A process that sleeps in the kernel may take for ever; it is false when the
// driver was closed first.
func (d *Driver) end(h *helper) bool {
	h.process.Close()
	h.process.Kill()
	select {
	case <-h.process.Ended():
		return true
	case <-d.closed:
		return false
	}
}

// beginAgain starts the next helper of a silent seat, nil if that fails.
func (d *Driver) beginAgain(s *seat) *helper {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.isClosed() {
		return nil
	}
	h, err := d.begin(s)
	if err != nil {
		d.config.Log.Warn("cannot start a process to ask the driver", "gpu", s.whose(), "error", err)
		return nil
	}
	return h
}

// try asks the next helper of a silent seat what the last one was asked about. An error that the driver answers about
// the GPU is an answer.
func (d *Driver) try(s *seat, h *helper) (answer, error) {
	d.mu.Lock()
	q, then := d.opening(), item{Kind: askIdentify}
	if s.gpu != nil {
		then.Index = s.gpu.index
		if s.gpu.known {
			then.Kind = askUsed
		}
	}
	d.mu.Unlock()
	a, err := h.exchange(q, d.config.Limits.Open)
	if err == nil {
		err = a.Fault.err()
	}
	if h.opened = err == nil; err == nil && s.gpu != nil {
		a, err = h.exchange(question{Items: []item{then}}, d.config.Limits.First)
	}
	if err == nil {
		h.turn <- struct{}{}
	}
	return a, err
}

// restore lets a seat serve again.
func (d *Driver) restore(s *seat, h *helper, a answer) {
	d.mu.Lock()
	defer d.mu.Unlock()
	s.helper, s.since, s.good = h, time.Time{}, 0
	if s.gpu != nil {
		h.met[s.gpu.index] = true
	}
	if facts := factsOf(a); s.gpu != nil && !s.gpu.known && facts.UUID != "" {
		s.gpu.facts, s.gpu.known = facts, true
	}
	if a.Version != (nvml.Version{}) {
		d.version = a.Version
	}
	d.config.Log.Info("the driver answers again", "gpu", s.whose())
}

// lost reports whether the library says that it has lost the GPU. If that was reset meanwhile, who opens the library anew
// finds it; if that says the same, it is an answer too.
func lost(a answer) bool {
	return slices.ContainsFunc(a.Results, func(r result) bool {
		err := r.Fault.err()
		return errors.Is(err, nvml.ErrLost) || errors.Is(err, nvml.ErrReset) || errors.Is(err, nvml.ErrVanished)
	})
}

// factsOf are what an answer tells of the GPU about which one item was asked.
func factsOf(a answer) nvml.Facts {
	if len(a.Results) != 1 || a.Results[0].Facts == nil {
		return nvml.Facts{}
	}
	return *a.Results[0].Facts
}
