package helper

import (
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/divvy-gpu/divvy/internal/nvml"
)

// steady is after how many answers in a row the common helper serves a GPU again that was silent.
const steady = 20

// leaving is how long a helper may take to end whose connection was closed.
const leaving = 2 * time.Second

// route finds the helper that serves a GPU, and begins one if there is none.
func (d *Driver) route(index int) (*seat, *helper, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	g := d.gpus[index]
	if g == nil {
		g = &gpu{index: index, seat: d.common}
		d.gpus[index] = g
	}
	s := g.seat
	switch {
	case d.isClosed():
		return nil, nil, errClosed
	case d.away:
		return nil, nil, nvml.ErrLetGo
	case !s.since.IsZero():
		if s.gpu == nil {
			index = everyGPU // whichever GPU is asked about
		}
		return nil, nil, silent{index, s.since}
	case !s.late.IsZero():
		return nil, nil, late{index, s.late}
	case s.helper != nil:
		return s, s.helper, nil
	case d.config.Now().Before(s.until):
		return nil, nil, s.fault
	}
	h, err := d.begin(s)
	if err != nil {
		return nil, nil, d.postpone(s, err)
	}
	d.running.Go(func() { _, _ = d.open(s, h) }) // whoever waits for the turn learns how it went
	return s, h, nil
}

func (d *Driver) isClosed() bool {
	select {
	case <-d.closed:
		return true
	default:
		return false
	}
}

// begin starts a helper, which has to be opened. mu is held.
func (d *Driver) begin(s *seat) (*helper, error) {
	p, err := d.config.Start()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", nvml.ErrDriver, err)
	}
	s.helper = newHelper(p)
	if s == d.common && d.awake != nil {
		s.helper.met, d.awake = d.awake, nil
	}
	return s.helper, nil
}

// postpone notes why a seat has no helper, for a while that grows. mu is held.
func (d *Driver) postpone(s *seat, err error) error {
	s.pause = min(max(2*s.pause, d.config.Limits.Pause), d.config.Limits.LongestPause)
	s.fault, s.until = err, d.config.Now().Add(s.pause)
	return err
}

// opening is the first question to a helper. mu is held.
func (d *Driver) opening() question {
	q := question{Open: true, Path: d.config.Library}
	for _, g := range d.gpus {
		if g.known {
			q.Known = append(q.Known, g.facts.GPU)
		}
	}
	return q
}

// open lets a helper open the library and gives its turn to those who wait.
func (d *Driver) open(s *seat, h *helper) (answer, error) {
	d.mu.Lock()
	q := d.opening()
	d.mu.Unlock()
	begun := d.config.Now()
	slow := time.AfterFunc(d.config.Limits.Answer, func() {
		d.config.Log.Warn("the driver has not let its library be opened yet", "since", begun.Format(time.DateTime), "after", d.config.Limits.Open)
	})
	a, err := h.exchange(q, d.config.Limits.Open)
	slow.Stop()
	if err == nil {
		err = a.Fault.err()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case err == nil:
		d.version, s.pause, h.opened = a.Version, 0, true
		h.turn <- struct{}{}
	case errors.Is(err, errSilent):
		d.silence(s, h, begun)
		return a, silent{s.index(), begun}
	case s.helper == h: // it cannot, or has ended
		h.process.Close()
		s.helper = nil
		_ = d.postpone(s, err)
	}
	return a, err
}

// everyGPU is no GPU's index: while the driver does not initialise it answers about none.
const everyGPU = -1

func (s *seat) index() int {
	if s.gpu == nil {
		return everyGPU
	}
	return s.gpu.index
}

// claim makes a helper that is in a call about a GPU the own one of that GPU, where its answer is waited for. The call
// began no earlier than begun.
func (d *Driver) claim(s *seat, h *helper, index int, begun time.Time) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	limit := d.config.Limits.Answer
	if !h.met[index] {
		limit = d.config.Limits.First
	}
	own := h.taken()
	if s.gpu == nil {
		if s.helper == h {
			// The GPUs that it has open are awake.
			s.helper, d.awake = nil, maps.Clone(h.met)
		}
		g := d.gpus[index]
		s = &seat{gpu: g}
		g.seat = s
	}
	s.helper, s.good = own, 0
	left := limit - d.config.Now().Sub(begun)
	if left <= 0 {
		d.silence(s, own, begun)
		return silent{index, begun}
	}
	s.late = begun
	d.running.Go(func() { d.await(s, own, left) })
	return late{index, begun}
}

// await waits for the answer of a late helper, which may become a silent one.
func (d *Driver) await(s *seat, h *helper, limit time.Duration) {
	_, err := h.outcome(limit, d.closed)
	if d.isClosed() {
		return
	}
	d.mu.Lock()
	begun := s.late
	s.late = time.Time{}
	switch {
	case err == nil:
		h.met[s.gpu.index] = true
		h.turn <- struct{}{}
	case errors.Is(err, errSilent):
		d.silence(s, h, begun)
	}
	d.mu.Unlock()
	if errors.Is(err, errEnded) {
		d.lose(s, h)
	}
}

// silence notes that a seat's helper does not answer, and waits for it. mu is held.
func (d *Driver) silence(s *seat, h *helper, since time.Time) {
	s.since, s.good = since, 0
	close(h.stuck)
	if d.isClosed() {
		return
	}
	d.config.Log.Warn("the driver does not answer", "gpu", s.whose())
	d.running.Go(func() { d.attend(s, h) })
}

// whose says for people whom a seat serves.
func (s *seat) whose() string {
	if s.gpu == nil {
		return "all"
	}
	return fmt.Sprint(s.gpu.index)
}

// answered counts the answers of a GPU that has a helper of its own, which after some is not needed any more.
func (d *Driver) answered(s *seat) {
	if s.gpu == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if s.good++; s.good == steady && d.common.since.IsZero() {
		d.running.Go(func() { d.retire(s, func() { s.gpu.seat = d.common }) })
	}
}

// retire ends a seat's helper and waits for that; then calls, with mu held. A helper that does not end is one that does
// not answer.
func (d *Driver) retire(s *seat, then func()) {
	d.mu.Lock()
	h := s.helper
	if h == nil || h.retired != nil || !s.since.IsZero() {
		d.mu.Unlock()
		return
	}
	d.mu.Unlock()
	select {
	case <-h.turn:
	case <-h.stuck:
		return
	case <-h.process.Ended():
		return
	}
	d.mu.Lock()
	h.retired = make(chan struct{})
	d.mu.Unlock()
	defer close(h.retired)
	h.process.Close()
	ended := waitEnded(h.process, leaving)
	d.mu.Lock()
	defer d.mu.Unlock()
	if !ended {
		d.silence(s, h, d.config.Now())
		return
	}
	if s.helper == h {
		s.helper = nil
	}
	then()
}

func waitEnded(p Process, limit time.Duration) bool {
	select {
	case <-p.Ended():
		return true
	default:
	}
	select {
	case <-p.Ended():
		return true
	case <-time.After(limit):
		return false
	}
}

// lose gives up a helper whose connection broke. Before it has ended it is not replaced.
func (d *Driver) lose(s *seat, h *helper) {
	d.mu.Lock()
	retired := h.retired
	d.mu.Unlock()
	if retired != nil {
		<-retired
		return
	}
	h.process.Kill()
	ended := waitEnded(h.process, leaving)
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case s.helper != h || !s.since.IsZero():
	case ended:
		s.helper = nil
		_ = d.postpone(s, errEnded)
	default:
		d.silence(s, h, d.config.Now())
	}
}
