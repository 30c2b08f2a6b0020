package helper

import (
	"errors"
	"fmt"
	"time"

	"github.com/divvy-gpu/divvy/internal/nvml"
)

// changer is the process that changes one GPU, such as its MIG instances. That may take many seconds, for which nobody's
// figures wait.
type changer struct {
	// turn has one entry while nobody changes the GPU.
	turn chan struct{}

	// What follows belongs to who has the turn; Driver.mu guards the helper besides.

	// helper is nil while there is no process.
	helper *helper
	// begun is when it was asked last, and left a process that was given up then and has not ended.
	begun time.Time
	left  Process
	// idle ends the process that nobody has asked for a while.
	idle *time.Timer
}

// change asks one thing that may take long about a GPU, in a process of its own. Changes of one GPU wait for each other.
// An answer that does not come within [Limits.Change] is given up, and so is every change of the GPU until the process
// has ended: two would change the GPU at the same time.
func (d *Driver) change(one item) told {
	c := d.changer(one.Index)
	select {
	case <-c.turn:
	case <-d.closed:
		return told{err: errClosed}
	}
	defer func() { c.turn <- struct{}{} }()
	if err := d.beginChange(c, one.Index); err != nil {
		return told{err: err}
	}
	a, err := d.exchangeSlowly(c, question{Items: []item{one}}, one.Index)
	if err == nil && len(a.Results) != 1 {
		err = fmt.Errorf("%w: an answer of %d results to one question", nvml.ErrDriver, len(a.Results))
	}
	if err != nil {
		return told{err: d.endChange(c, one.Index, err)}
	}
	c.idle = time.AfterFunc(d.config.Limits.Keep, func() { d.dismiss(c) })
	return told{a.Results[0], a.Results[0].Fault.err()}
}

// errClosed is returned to who asks a driver that was closed.
var errClosed = fmt.Errorf("%w: it was closed", nvml.ErrDriver)

// changer is that of a GPU.
func (d *Driver) changer(gpu int) *changer {
	d.mu.Lock()
	defer d.mu.Unlock()
	c := d.changers[gpu]
	if c == nil {
		c = &changer{turn: make(chan struct{}, 1)}
		c.turn <- struct{}{}
		d.changers[gpu] = c
	}
	return c
}

// beginChange sees that there is a process with the library open. The caller has the turn.
func (d *Driver) beginChange(c *changer, gpu int) error {
	if c.idle != nil {
		c.idle.Stop()
	}
	if c.left != nil {
		if !waitEnded(c.left, 0) {
			return silent{gpu, c.begun}
		}
		c.left = nil
	}
	if c.helper != nil && !waitEnded(c.helper.process, 0) {
		return nil
	}
	d.mu.Lock()
	if d.isClosed() {
		d.mu.Unlock()
		return errClosed
	}
	p, err := d.config.Start()
	if err != nil {
		d.mu.Unlock()
		return fmt.Errorf("%w: %w", nvml.ErrDriver, err)
	}
	c.helper = newHelper(p)
	q := d.opening()
	d.mu.Unlock()
	a, err := d.exchangeSlowly(c, q, gpu)
	if err == nil {
		err = a.Fault.err()
	}
	if err != nil {
		return d.endChange(c, gpu, err)
	}
	return nil
}

// exchangeSlowly asks, and says in the log if that takes long.
func (d *Driver) exchangeSlowly(c *changer, q question, gpu int) (answer, error) {
	limit := d.config.Limits.Change
	c.begun = d.config.Now()
	if q.Open {
		limit = d.config.Limits.Open
	}
	begun := c.begun
	slow := time.AfterFunc(d.config.Limits.Answer, func() {
		d.config.Log.Warn("the driver takes long to change a GPU", "gpu", gpu, "since", begun.Format(time.DateTime), "given up after", limit)
	})
	defer slow.Stop()
	return c.helper.exchange(q, limit)
}

// endChange ends a changer's process, and returns what an error means: that the driver does not answer, if the process
// was given up. The caller has the turn.
func (d *Driver) endChange(c *changer, gpu int, err error) error {
	h := c.helper
	d.mu.Lock()
	c.helper = nil
	d.mu.Unlock()
	h.process.Close()
	if errors.Is(err, errSilent) {
		h.process.Kill()
		err = silent{gpu, c.begun}
		d.config.Log.Warn("the driver did not change a GPU in time", "gpu", gpu)
	}
	if !waitEnded(h.process, leaving) {
		if h.process.Kill(); !waitEnded(h.process, leaving) {
			c.left = h.process
		}
	}
	return err
}

// dismiss ends a process that is not needed now.
func (d *Driver) dismiss(c *changer) {
	select {
	case <-c.turn:
	default:
		return // somebody needs it
	}
	defer func() { c.turn <- struct{}{} }()
	if c.helper != nil {
		_ = d.endChange(c, 0, nil) // it was not asked anything
	}
}
