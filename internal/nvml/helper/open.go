package helper

import (
	"errors"
	"fmt"
	"time"

	"github.com/divvy-gpu/divvy/internal/checkpoint"
	"github.com/divvy-gpu/divvy/internal/nvml"
)

// memory is what is kept of the machine's GPUs. It ends with the machine, as a run directory does.
type memory struct {
	Version nvml.Version
	Count   int
	GPUs    []nvml.Facts
}

// Open starts a helper and finds the GPUs. Those that are lost or must be reset are left out, because the others can
// still serve. So are those that are silent or answer with an error and of which nothing is remembered: they are asked
// again. It is an error if all of them answer with one, or if the whole driver is silent and nothing is remembered.
func Open(c Config) (*Driver, error) {
	if c.Now == nil {
		c.Now = time.Now
	}
	d := &Driver{config: c, closed: make(chan struct{}), common: &seat{}, gpus: map[int]*gpu{}, changers: map[int]*changer{}}
	var before memory
	if c.Memory != "" {
		d.memory = checkpoint.NewFile[memory](c.Memory, "gpus", 1)
		before, _ = d.memory.Load() // what cannot be read is asked for again
	}
	if err := d.find(before); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	d.remember()
	return d, nil
}

// find asks for all GPUs and lists them.
func (d *Driver) find(before memory) error {
	begun := d.config.Now()
	d.mu.Lock()
	h, err := d.begin(d.common)
	d.mu.Unlock()
	if err != nil {
		return err
	}
	a, err := d.open(d.common, h)
	d.mu.Lock()
	d.count = a.Count
	if errors.Is(err, nvml.ErrSilent) && len(before.GPUs) > 0 {
		d.count, d.version, err = before.Count, before.Version, nil
	}
	d.mu.Unlock()
	if err != nil {
		return err
	}
	for i := range d.count {
		if d.config.Now().Sub(begun) > d.config.Limits.Start {
			d.giveUp(i)
		}
		if err := d.identify(i); err != nil {
			return err
		}
	}
	d.recall(before)
	return d.allRefused()
}

// allRefused is why no GPU can be listed, if the driver answers about all of them with an error.
func (d *Driver) allRefused() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	var all []error
	for i := range d.count {
		if g := d.gpus[i]; g == nil || g.listed || g.refused == nil {
			return nil
		}
		all = append(all, d.gpus[i].refused)
	}
	return errors.Join(all...)
}

// identify lists a GPU unless it is lost, silent, or answers with an error.
func (d *Driver) identify(index int) error {
	told := d.ask([]item{{Kind: askIdentify, Index: index}})[0]
	switch err := told.err; {
	case errors.Is(err, nvml.ErrSilent), errors.Is(err, nvml.ErrLost), errors.Is(err, nvml.ErrReset):
		return nil
	case errors.Is(err, nvml.ErrResult), errors.Is(err, nvml.ErrVanished):
		d.config.Log.Warn("the driver answers about a GPU with an error", "gpu", index, "error", err)
		d.mu.Lock()
		defer d.mu.Unlock()
		d.gpus[index].refused = err
		d.running.Go(func() { d.pursue(index) })
		return nil
	case err != nil:
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	g := d.gpus[index]
	g.facts, g.known, g.listed = *told.Facts, true, true
	return nil
}

// pursue asks about a GPU again and again, ever more seldom, until the driver tells of it.
func (d *Driver) pursue(index int) {
	for pause := d.config.Limits.Pause; ; pause = min(2*pause, d.config.Limits.LongestPause) {
		select {
		case <-time.After(pause):
		case <-d.closed:
			return
		}
		told := d.ask([]item{{Kind: askIdentify, Index: index}})[0]
		d.mu.Lock()
		g := d.gpus[index]
		if g.refused = told.err; told.err == nil && !g.known {
			g.facts, g.known = *told.Facts, true
		}
		d.mu.Unlock()
		if told.err == nil {
			d.config.Log.Info("the driver answers again", "gpu", index)
			return
		}
	}
}

// giveUp counts a GPU as silent that nobody has asked about.
func (d *Driver) giveUp(index int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.gpus[index] != nil || !d.common.since.IsZero() {
		return
	}
	g := &gpu{index: index}
	g.seat = &seat{gpu: g, since: d.config.Now()}
	d.gpus[index] = g
	d.running.Go(func() { d.attend(g.seat, nil) })
}

// recall lists GPUs of which the driver does not tell and of which an earlier agent knew all.
func (d *Driver) recall(before memory) {
	d.mu.Lock()
	defer d.mu.Unlock()
	taken := map[string]bool{}
	for _, g := range d.gpus {
		taken[g.facts.UUID] = taken[g.facts.UUID] || g.known
	}
	for _, facts := range before.GPUs {
		g := d.gpus[facts.Index]
		if before.Count != d.count || g == nil || g.known || g.seat.since.IsZero() && g.refused == nil || taken[facts.UUID] {
			continue
		}
		g.facts, g.known, g.listed = facts, true, true
	}
}

// remember saves the facts for the next agent.
func (d *Driver) remember() {
	if d.memory == nil {
		return
	}
	d.mu.Lock()
	now := memory{Version: d.version, Count: d.count}
	for i := range d.count {
		if g := d.gpus[i]; g != nil && g.known {
			now.GPUs = append(now.GPUs, g.facts)
		}
	}
	d.mu.Unlock()
	if err := d.memory.Save(now); err != nil {
		d.config.Log.Warn("cannot remember the GPUs", "error", err)
	}
}

// Close ends the helpers. One that sleeps in the kernel is left to itself.
func (d *Driver) Close() error {
	d.mu.Lock()
	if d.isClosed() {
		d.mu.Unlock()
		return nil
	}
	close(d.closed)
	helpers := map[*helper]bool{d.common.helper: true}
	for _, g := range d.gpus {
		helpers[g.seat.helper] = true
	}
	for _, c := range d.changers {
		helpers[c.helper] = true
	}
	delete(helpers, nil)
	d.mu.Unlock()
	for h := range helpers {
		h.process.Close()
	}
	d.running.Wait()
	var left error
	for h := range helpers {
		if waitEnded(h.process, leaving) {
			continue
		}
		if h.process.Kill(); !waitEnded(h.process, leaving) {
			left = fmt.Errorf("%w: a process that asks it does not end", nvml.ErrDriver)
		}
	}
	return left
}
