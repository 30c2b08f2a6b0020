package arbiter

import "slices"

// add makes a process that is not known yet.
func (r *Replay) add(w *Work, now uint64) *process {
	p := &process{
		key: w.Key, share: w.Share, read: now, count: w.Count, unmeasured: w.Unmeasured, lagLimit: lagMost,
		openSince: openOf(w, now), openUntil: w.OpenUntil,
	}
	r.processes[w.Key] = p
	r.ordered = append(r.ordered, p)
	return p
}

func openOf(w *Work, now uint64) uint64 {
	if w.OpenSince > now+futureSlack {
		return 0
	}
	return w.OpenSince
}

// take reads what processes tell and returns the unmeasured work since the last call, in ns, of each and of all.
func (r *Replay) take(now uint64, works []Work) (hidden map[*process]float64, total float64) {
	present := 0
	for i := range works {
		w := &works[i]
		p := r.processes[w.Key]
		if p == nil {
			p = r.add(w, now)
			// Its ring holds what it wrote since the last call, and maybe intervals of the worker's last owner, which
			// were played long ago.
			fresh := w.Intervals
			for len(fresh) > 0 && fresh[0].End <= r.clock {
				fresh = fresh[1:]
			}
			p.count -= uint32(len(fresh))
		}
		if p.read != now {
			present++
		}
		p.read = now
		if amount := r.takeIntervals(p, now, w) + r.takeUnmeasured(p, now, w); amount > 0 {
			if hidden == nil {
				hidden = map[*process]float64{}
			}
			hidden[p] += amount
			total += amount
		}
		r.takeOpen(p, now, w)
	}
	if len(r.processes) == present {
		return hidden, total
	}
	r.dropEnded(now)
	return hidden, total
}

// dropEnded forgets processes that were not read at now, once their intervals are played.
func (r *Replay) dropEnded(now uint64) {
	r.ordered = slices.DeleteFunc(r.ordered, func(p *process) bool {
		if p.read == now {
			return false
		}
		p.openSince = 0
		r.closeOpen(p)
		if len(p.pending) > 0 {
			return false
		}
		delete(r.processes, p.key)
		return true
	})
}

// takeIntervals reads the new intervals and returns what was charged for those that were overwritten unread.
func (r *Replay) takeIntervals(p *process, now uint64, w *Work) (lost float64) {
	fresh := w.Count - p.count
	p.count = w.Count
	if fresh > 1<<31 {
		r.fault(p.share, FaultBackwards)
		return 0
	}
	told := w.Intervals[len(w.Intervals)-min(len(w.Intervals), int(fresh)):]
	if missing := int(fresh) - len(told); missing > 0 && len(told) > 0 {
		lost = r.creditLost(p, missing, told)
	}
	for _, one := range told {
		r.takeInterval(p, now, one)
	}
	if len(told) > 0 {
		p.lagLimit = min(2*p.lagLimit, lagMost)
	}
	return lost
}

// creditLost counts overwritten intervals as the process's own time, each as long as the mean of those that are left.
func (r *Replay) creditLost(p *process, missing int, told []Interval) float64 {
	sum := uint64(0)
	for _, one := range told {
		sum += min(one.Charged, chargedMost)
	}
	gap := told[0].Begin - min(told[0].Begin, max(p.ended, r.clock))
	amount := min(float64(sum)/float64(len(told))*float64(missing), float64(min(gap, lagMost)))
	r.credit(p, uint64(amount), uint64(amount), 0)
	return amount
}

func (r *Replay) takeInterval(p *process, now uint64, one Interval) {
	one.Charged = min(one.Charged, chargedMost)
	switch {
	case one.End < one.Begin, one.End+overlapSlack < p.ended, one.Begin+overlapSlack < p.ended:
		r.fault(p.share, FaultBackwards)
		return
	case one.End > now+futureSlack:
		r.fault(p.share, FaultFuture)
		return
	case len(p.pending) >= pendingMost:
		r.fault(p.share, FaultExcess)
		return
	}
	one.Begin, one.End = max(one.Begin, p.ended), max(one.End, p.ended)
	p.ended = one.End
	if r.turnless(p.share) {
		r.credit(p, 0, one.Charged, 0)
		// All of it may have been its own time. Nobody can know while the share has no turns of its own.
		r.told(p.share, one.End-one.Begin)
		return
	}
	if one.Begin < r.clock {
		one = r.takeLate(p, one)
		if one.End <= r.clock {
			return
		}
	} else {
		r.closeOpen(p)
	}
	p.pending = append(p.pending, one)
}

// takeLate credits the part of an interval that the replay has passed already, and returns the rest. If the process
// took turns for that part as open work, those turns count. Otherwise it is no longer known who else had work then,
// and what was charged counts.
func (r *Replay) takeLate(p *process, one Interval) Interval {
	if p.inside && len(p.pending) == 0 {
		if one.End > r.clock {
			return one
		}
		length := one.End - one.Begin
		r.credit(p, min(uint64(p.own), length), one.Charged, length)
		r.closeOpen(p)
		return one
	}
	late := min(one.End, r.clock) - one.Begin
	part := uint64(float64(one.Charged) * (float64(late) / float64(max(one.End-one.Begin, 1))))
	r.credit(p, min(part, late), part, late)
	one.Begin += late
	one.Charged -= min(part, one.Charged)
	return one
}

func (r *Replay) takeUnmeasured(p *process, now uint64, w *Work) float64 {
	if w.Unmeasured < p.unmeasured {
		r.fault(p.share, FaultBackwards)
		p.unmeasured = w.Unmeasured
		return 0
	}
	amount, passed := w.Unmeasured-p.unmeasured, now-r.read
	if amount == 0 {
		return 0
	}
	p.unmeasured = w.Unmeasured
	if amount > passed+openSlack {
		r.fault(p.share, FaultExcess)
		amount = passed
	}
	if r.turnless(p.share) {
		r.credit(p, 0, amount, 0)
		r.told(p.share, amount)
		return 0
	}
	r.credit(p, amount, amount, 0)
	return float64(min(amount, passed))
}

func (r *Replay) takeOpen(p *process, now uint64, w *Work) {
	if w.OpenSince > now+futureSlack {
		r.fault(p.share, FaultFuture)
	}
	p.openSince, p.openUntil = openOf(w, now), w.OpenUntil
	if p.openSince == 0 || r.ignored[p.share] {
		r.closeOpen(p)
	}
}

// closeOpen ends the turns of a process whose open work no longer counts as running.
func (r *Replay) closeOpen(p *process) {
	if p.inside && len(p.pending) == 0 {
		p.inside, p.own = false, 0
		r.turns.leave(p)
	}
}
