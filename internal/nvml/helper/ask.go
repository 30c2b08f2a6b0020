package helper

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/divvy-gpu/divvy/internal/nvml"
)

// Conditions are [nvml.Library.Condition] of GPUs, in their order.
func (d *Driver) Conditions(gpus []int) []nvml.Checkup {
	all := make([]nvml.Checkup, len(gpus))
	for i, t := range d.ask(itemsOf(gpus, askCondition)) {
		all[i].Err = t.err
		if t.Condition != nil {
			all[i].Condition = *t.Condition
		}
	}
	return all
}

// Holdings are [nvml.Library.Processes] and [nvml.Library.Used] of GPUs, in their order.
func (d *Driver) Holdings(gpus []int) []nvml.Holding {
	all := make([]nvml.Holding, len(gpus))
	told := d.ask(itemsOf(gpus, askProcesses, askUsed))
	for i := range all {
		listed, used := &told[2*i], &told[2*i+1]
		all[i] = nvml.Holding{Processes: listed.Processes, Unlisted: listed.err, Used: used.Used, Unread: used.err, Instances: used.Instances}
	}
	return all
}

// Utilisations are [nvml.Library.Utilisation] of GPUs, each since a moment of its own, in their order.
func (d *Driver) Utilisations(gpus []int, since []time.Time) []nvml.Load {
	all := make([]nvml.Load, len(gpus))
	for i, t := range d.ask(itemsSince(gpus, since, askUtilisation)) {
		all[i] = nvml.Load{Samples: t.Utilisation, Err: t.err}
	}
	return all
}

// Activities are [nvml.Library.Busy] of GPUs, each since a moment of its own, in their order.
func (d *Driver) Activities(gpus []int, since []time.Time) []nvml.Activity {
	all := make([]nvml.Activity, len(gpus))
	for i, t := range d.ask(itemsSince(gpus, since, askBusy)) {
		all[i] = nvml.Activity{Samples: t.Busy, Err: t.err}
	}
	return all
}

// Readings are [nvml.Library.Reading] of GPUs, in their order.
func (d *Driver) Readings(gpus []int) []nvml.Gauge {
	all := make([]nvml.Gauge, len(gpus))
	for i, t := range d.ask(itemsOf(gpus, askReading)) {
		if all[i].Err = t.err; t.err != nil {
			continue
		}
		if err := json.Unmarshal(t.Reading, &all[i].Reading); err != nil {
			all[i].Err = fmt.Errorf("%w: read what GPU %d does: %w", nvml.ErrDriver, gpus[i], err)
		}
	}
	return all
}

func itemsSince(gpus []int, since []time.Time, about kind) []item {
	items := itemsOf(gpus, about)
	for i := range items {
		items[i].Since = since[i]
	}
	return items
}

// Answering is [nvml.Library.Answering]; a silent GPU is not asked.
func (d *Driver) Answering() (uuids []string, silent int) {
	d.mu.Lock()
	gpus := make([]int, d.count)
	d.mu.Unlock()
	for i := range gpus {
		gpus[i] = i
	}
	for _, t := range d.ask(itemsOf(gpus, askIdentify)) {
		if t.err != nil {
			silent++
			continue
		}
		uuids = append(uuids, t.Facts.UUID)
	}
	return uuids, silent
}

// itemsOf asks the same about each GPU, all about one GPU one after the other.
func itemsOf(gpus []int, kinds ...kind) []item {
	items := make([]item, 0, len(gpus)*len(kinds))
	for _, gpu := range gpus {
		for _, k := range kinds {
			items = append(items, item{Kind: k, Index: gpu})
		}
	}
	return items
}

// told is what is known of an item, and why that is not all.
type told struct {
	result
	err error
}

// inquiry is items with what is told of them.
type inquiry struct {
	items []item
	told  []told
	left  []int // the items of which nothing is told yet, by number
}

// ask asks about GPUs, whichever helpers serve them. A GPU about which the driver does not answer in time holds up the
// others for a moment, once, and has an error.
func (d *Driver) ask(items []item) []told {
	q := inquiry{items: items, told: make([]told, len(items))}
	for i := range items {
		q.left = append(q.left, i)
	}
	for range mostTries {
		if len(q.left) == 0 {
			break
		}
		index := items[q.left[0]].Index
		s, h, err := d.route(index)
		if err != nil {
			q.fail(index, err)
			continue
		}
		d.put(&q, s, h)
	}
	for _, i := range q.left {
		q.told[i].err = fmt.Errorf("ask about GPU %d: %w", items[i].Index, errEnded)
	}
	return q.told
}

// mostTries bounds how many helpers are asked one question: all GPUs may fall silent one after the other.
const mostTries = 64

// put asks one helper about those of the items left that it serves.
func (d *Driver) put(q *inquiry, s *seat, h *helper) {
	mine := d.served(q, s)
	if len(mine) == 0 {
		return // somebody else found out meanwhile that it answers late
	}
	asked := make([]item, len(mine))
	for i, number := range mine {
		asked[i] = q.items[number]
	}
	begun := d.config.Now()
	a, err := h.ask(asked, d.config.Limits)
	switch {
	case err == nil:
		for i := range a.Results {
			q.told[mine[i]] = told{a.Results[i], a.Results[i].Fault.err()}
		}
		known := mine[:len(a.Results)]
		q.left = slices.DeleteFunc(q.left, func(i int) bool { return slices.Contains(known, i) })
		if !a.Busy {
			d.answered(s)
			return
		}
		index := asked[len(a.Results)].Index
		q.fail(index, d.claim(s, h, index, begun))
	case errors.Is(err, errSilent) && (s.gpu != nil || asked[0].Index == asked[len(asked)-1].Index):
		index := asked[0].Index
		q.fail(index, d.claim(s, h, index, begun))
	case errors.Is(err, errSilent), errors.Is(err, errEnded):
		// Not even the helper itself answers, so nobody knows about which GPU it asks.
		d.lose(s, h)
	}
}

// served are the items left about GPUs of a seat, by number.
func (d *Driver) served(q *inquiry, s *seat) (mine []int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, i := range q.left {
		index := q.items[i].Index
		if d.gpus[index] == nil {
			d.gpus[index] = &gpu{index: index, seat: d.common}
		}
		if d.gpus[index].seat == s {
			mine = append(mine, i)
		}
	}
	return mine
}

// fail says why nothing is told of a GPU any more.
func (q *inquiry) fail(index int, err error) {
	q.left = slices.DeleteFunc(q.left, func(i int) bool {
		if q.items[i].Index != index {
			return false
		}
		q.told[i].err = err
		return true
	})
}
