package pacing

import (
	"errors"
	"time"

	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/nvml"
)

// drivenMost is the longest time that one sample of the driver stands for.
const drivenMost = uint64(2 * time.Second)

// driven is the time in which nobody but the driver counts what a share does, because it has no limit: its library
// measures nothing then. What is counted is counted once, as from moves on.
type driven struct {
	from uint64 // since when that is not counted yet, 0 while the library measures all
	to   uint64 // until when, 0 while that goes on
	// fresh is whether from is when the share began.
	fresh bool
	// awayFrom and awayTo are between which moments no agent was there. What the share had a right to then is counted as
	// far as the driver still tells what it did: a right to time of which nobody knows would count as time that it left.
	awayFrom, awayTo uint64
}

// resume goes on where the last agent was, which counted rights until since: what the driver still tells of the time
// after that is counted.
func (d *driven) resume(from, since, now uint64) {
	if from != 0 && from < now && d.from != 0 {
		d.from, d.awayFrom, d.awayTo = from, since, now
	}
}

// right is what the share had a right to of a sample of the driver's, beyond what was counted, in ns. It is alone.
func (d *driven) right(begin, end uint64) float64 {
	begin, end = max(begin, d.awayFrom), min(end, d.awayTo)
	if begin >= end {
		return 0
	}
	d.awayFrom = end
	return float64(end - begin)
}

// turn takes up whether the share has a limit from now on. What it did until played is counted already.
func (d *driven) turn(now, played uint64, limited bool) {
	switch {
	case !limited && (d.from == 0 || d.to != 0):
		d.from, d.to, d.fresh = max(d.from, min(played, now), 1), 0, false
	case limited && d.from != 0 && d.to == 0:
		d.to = now
	}
}

// take returns how much of what the driver saw is to be counted, in ns: of a sample from begin to end the part busy, 0 to
// 1. It is counted then.
func (d *driven) take(begin, end uint64, busy float64) (ns float64) {
	if d.from == 0 {
		return 0
	}
	until := end
	if d.to != 0 {
		until = min(end, d.to)
	}
	span := float64(until - min(max(begin, d.from), until))
	ns = busy * span
	if d.fresh && begin < d.from { // nothing of the share's was before
		ns = min(busy*float64(end-begin), span)
	}
	d.fresh = d.fresh && end <= d.from
	d.from = max(d.from, end)
	if d.to != 0 && d.from >= d.to {
		*d = driven{}
	}
	return ns
}

// driven reports whether some share of a GPU does what only the driver counts, and which tenant's it is if the GPU has
// one share.
func (l *loop) driven(uuid string) (some bool, only string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	g := l.gpus[uuid]
	if g == nil {
		return false, ""
	}
	for _, s := range g.shares {
		some = some || s.driven.from != 0
	}
	if len(g.shares) == 1 {
		only = g.shares[0].tenant.id
	}
	return some, only
}

// countDriven gives shares without a limit their parts, by tenant id, of what the driver says that the whole GPU did.
func (l *loop) countDriven(uuid string, wall time.Time, samples []nvml.Sample, parts map[string]float64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	g := l.gpus[uuid]
	if g == nil {
		return
	}
	now := l.clock()
	for _, sample := range samples {
		end := now - min(uint64(max(wall.Sub(sample.At), 0)), now)
		if end <= g.drivenTo {
			continue
		}
		begin := end - min(uint64(sampleLeast), end)
		if end-g.drivenTo <= drivenMost {
			begin = g.drivenTo
		}
		g.drivenTo = end
		for _, s := range g.shares {
			s.usage.right.entitled += s.driven.right(begin, end)
			s.usage.add(now, uint64(s.driven.take(begin, end, min(sample.Busy, 1))*parts[s.tenant.id]))
		}
	}
	for _, s := range g.shares {
		s.keep(now)
	}
}

// tally counts what shares without a limit did. busy is which part of the GPU's time each tenant had in the newest
// samples, and newest the end of these, by GPU index; a GPU of which the driver does not tell that is left out.
func (w *watcher) tally(gpus []backend.GPU, busy map[int]map[string]float64, newest map[int]time.Time) {
	var due []backend.GPU
	var indexes []int
	var since []time.Time
	var only []string
	for _, gpu := range gpus {
		some, tenant := w.pacer.driven(gpu.UUID)
		if _, told := busy[gpu.Index]; some && told {
			due, only = append(due, gpu), append(only, tenant)
			indexes, since = append(indexes, gpu.Index), append(since, w.drivenSince[gpu.Index])
		}
	}
	if len(due) == 0 {
		return
	}
	wall := time.Now()
	for i, did := range w.pacer.config.Driver.Activities(indexes, since) {
		samples, parts := did.Samples, busy[indexes[i]]
		if errors.Is(did.Err, nvml.ErrNotSupported) && !newest[indexes[i]].IsZero() {
			samples = []nvml.Sample{{At: newest[indexes[i]], Busy: sum(parts)}}
		}
		if len(samples) == 0 {
			continue
		}
		w.drivenSince[indexes[i]] = samples[len(samples)-1].At
		w.pacer.countDriven(due[i].UUID, wall, samples, w.portions(indexes[i], samples, parts, only[i]))
	}
}

// portions is which part of what a GPU did each tenant did: as the driver's figures by process say, which are of some of
// the time. Where no process was busy in that, all is the only share's if nobody else is on the GPU.
func (w *watcher) portions(index int, samples []nvml.Sample, parts map[string]float64, only string) map[string]float64 {
	if all := sum(parts); all > 0 {
		portions := make(map[string]float64, len(parts))
		for tenant, part := range parts {
			portions[tenant] = part / all
		}
		return portions
	}
	worked := false
	for _, one := range samples {
		worked = worked || one.Busy > 0
	}
	if !worked || only == "" {
		return nil
	}
	listed := w.pacer.config.Driver.Holdings([]int{index})[0]
	if listed.Unlisted != nil {
		return nil
	}
	for _, one := range listed.Processes {
		if w.owner(one.PID) != only {
			return nil
		}
	}
	return map[string]float64{only: 1}
}

func sum(parts map[string]float64) (all float64) {
	for _, part := range parts {
		all += part
	}
	return all
}
