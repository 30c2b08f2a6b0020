package arbiter

import "math"

// Law divides the time of one GPU. Its zero value is ready. It keeps nothing but the smoothed demand of each share,
// so one that starts again after a pause decides as well within 50 ms.
//
// Every share that must wait at all has a token bucket, which gains Rate of real time and pays for the share's own
// GPU time. What the rates are:
//
//   - A share that wants more than it may do (hungry) gets what [divide] grants it: guarantees first, then what is left
//     by weight, then bursts; offline shares get what online ones do not use. The rates of hungry shares and what
//     the others use make 1 together, unless caps leave time over.
//   - A share that is not hungry gets what it would be granted if it were, so that it can begin at once. What it
//     does not use of that is in the rates of the hungry ones.
//
// Rates that sum to 1 do not idle the GPU while somebody waits: the sum of the buckets grows by 1 - (part of the
// time in which the GPU is busy), so an idle GPU fills them until one is not empty, and a busy one leaves the sum as it
// is. A late wake-up costs time once; the credit it leaves behind lets launches come early enough from then on.
// And a share whose rate is above its slices' part is never the one that must be exact: the others' rates hold them to
// their part, and it gets the rest, with its bucket full.
//
// What a share would use is not seen while others use the GPU: one that waits for each of its launches gets a slice
// when the others' end, and would do more without them. So whoever is active is presumed to want all that it may
// have, until the GPU idles beside hungry shares; then what it leaves is lent to them by and by, see [Law.lend].
type Law struct {
	demands map[string]*demand
	last    uint64
	idle    float64 // part of the time, smoothed over idleTime
}

const (
	ms = 1_000_000

	// smoothing is the time constant of a share's measured use: three of them, in which a change shows for 95 %, are
	// the 60 ms in which a division must have followed.
	smoothing = 20 * ms
	// hungerHold is how long a share stays hungry after it last waited. It spans a few rounds, because a share that
	// waits between two launches of a few ms does not wait in every round.
	hungerHold = 20 * ms
	// forgotten is how long a share may be without any news of its use before that counts as unknown. Unknown
	// demand counts as unlimited.
	forgotten = 100 * ms
	// idleTime is over what time the GPU's idleness is seen: the own time of long launches comes at once.
	idleTime = 200 * ms
	// lendTime is the time constant with which idle time beside hungry shares is lent, and reclaimTime the time in
	// which all that is lent comes back while the GPU does not idle.
	lendTime    = 50 * ms
	reclaimTime = 1000 * ms
	// idleAllowed is what part of the time may idle beside hungry shares: the law sees use with errors of this order,
	// and an idle GPU is how it sees that somebody wants no more.
	idleAllowed = 0.01

	// burstTime times its rate is what a bucket holds, but at least burstLeast and at most burstTime: processes on
	// busy machines lose their processor for 10 to 30 ms, which should cost them nothing, and what is saved up beyond
	// that could only be used to crowd out others later.
	burstTime  = 40 * ms
	burstLeast = 2 * ms

	// depthOnline is how much unfinished work a process may have among equals. Its queue does not delay neighbours,
	// because slices are dealt per process. What the bucket holds bounds it too; two launches of 50 ms cover delays of
	// the process itself.
	depthOnline = 100 * ms
	// depthFree does not bound anything: for a share whom everybody else gives way.
	depthFree = 1000 * ms
	// depthOffline beside online shares: with one launch of at most 1 ms, which is always allowed, no more than 1.5 ms
	// of offline work is ahead of an online launch.
	depthOffline = 500_000

	// leastRate is below no share: 1 %, so that whoever holds a share goes on.
	leastRate = Whole / 100
)

// demand is what is known of how much a share would use.
type demand struct {
	round  uint64  // the last Divide that had this share
	told   uint64  // use is known up to here
	known  bool    // use was told since the share became active
	use    float64 // own GPU time per time
	stolen float64 // neighbours' GPU time within its intervals, per time
	active bool
	hungry bool
	wanted uint64  // when it last wanted
	rate   float64 // that it was given
	lent   float64 // what part, 0 to 1, of what it leaves is lent
}

func (d *demand) note(now uint64, r *Report) {
	if r.Wanted {
		d.wanted = now
	}
	if r.Own > 0 || !r.Active {
		d.known = r.Own > 0 || d.known && d.use > 0.001
		if now > d.told {
			span := float64(now - d.told)
			weight := 1 - math.Exp(-span/smoothing)
			d.use += weight * (min(float64(r.Own)/span, 1) - d.use)
			stolen := float64(max(r.Busy, r.Own) - r.Own)
			d.stolen += weight * (min(stolen/span, 1) - d.stolen)
		}
		d.told = now
	}
	d.active = r.Active
	unknown := r.Active && (!d.known || now-d.told > forgotten)
	d.hungry = unknown || d.wanted != 0 && now-d.wanted <= hungerHold
}

// wish is how much of the GPU the share is presumed to want.
func (d *demand) wish() float64 {
	switch {
	case d.hungry:
		return 1
	case !d.active:
		return d.use
	}
	return 1 - d.lent*(1-d.use)
}

// Divide decides the budgets of all shares of the GPU, in their order. Calls may come late or irregularly.
func (l *Law) Divide(now uint64, shares []Share) []Grant {
	demands := l.note(now, shares)
	l.lend(now, shares, demands)
	claims := make([]claim, len(shares))
	for i, d := range demands {
		claims[i] = claimOf(&shares[i].Terms)
		claims[i].wish, claims[i].use = d.wish(), d.use
	}
	granted := divide(claims)
	rates := make([]float64, len(shares))
	for i, d := range demands {
		rates[i] = granted[i]
		if !d.hungry {
			rates[i] = divideIfHungry(claims, i)
		}
		d.rate = rates[i]
	}
	return grants(shares, rates, bases(claims))
}

// note takes the reports in and forgets shares that are gone.
func (l *Law) note(now uint64, shares []Share) []*demand {
	if l.demands == nil {
		l.demands = map[string]*demand{}
	}
	all := make([]*demand, len(shares))
	for i := range shares {
		d := l.demands[shares[i].Key]
		if d == nil {
			d = &demand{told: now}
			l.demands[shares[i].Key] = d
		}
		d.note(max(now, d.told), &shares[i].Report)
		d.round = now
		all[i] = d
	}
	for key, d := range l.demands {
		if d.round != now {
			delete(l.demands, key)
		}
	}
	return all
}

// lend moves what shares leave of their rates to hungry ones while the GPU idles, and back while it does not. Who
// leaves most lends first; time that neighbours had within a share's intervals it did not leave.
func (l *Law) lend(now uint64, shares []Share, demands []*demand) {
	passed := float64(now - min(l.last, now))
	if l.last == 0 || passed == 0 {
		l.last = now
		return
	}
	l.last = now
	own, hungry := 0.0, false
	for i, d := range demands {
		own += float64(shares[i].Own)
		hungry = hungry || d.hungry && shares[i].Policy != Fixed
	}
	l.idle += (1 - math.Exp(-passed/idleTime)) * (1 - own/passed - l.idle)
	l.idle = max(l.idle, -1)
	idle := l.idle
	for _, d := range demands {
		left := d.rate - d.use/max(1-d.stolen, 0.05)
		switch {
		case d.hungry:
			d.lent = 0
		case !d.active || !hungry:
		case idle > idleAllowed && left > 0:
			d.lent = min(d.lent+(idle-idleAllowed)*min(left/max(d.rate, 0.01), 1)*passed/lendTime, 1)
		case idle < idleAllowed/2:
			d.lent = max(d.lent-passed/reclaimTime, 0)
		}
	}
}

// grants turns rates into budgets.
func grants(shares []Share, rates, bases []float64) []Grant {
	online, offline := 0, 0
	for i := range shares {
		if shares[i].Offline {
			offline++
		} else {
			online++
		}
	}
	all := make([]Grant, len(shares))
	for i := range shares {
		s, g := &shares[i], &all[i]
		uncapped := claimOf(&s.Terms).most >= 1
		g.Limited = len(shares) > 1 || !uncapped
		g.Beat = !s.Offline && offline > 0
		g.Yield = s.Offline && online > 0
		g.Rate, g.Base = ppm(rates[i]), ppm(bases[i])
		g.Burst = max(burstLeast, uint64(burstTime*min(rates[i], 1)))
		g.Depth = depthOnline
		switch {
		case g.Yield:
			g.Depth = depthOffline
		case online == 1 && g.Beat && uncapped:
			// Nobody is to be protected from this share. Its bucket counts what it uses and never makes it wait, not
			// even for an error in that count.
			g.Rate, g.Depth = 2*Whole, depthFree
		}
	}
	return all
}

func ppm(rate float64) uint32 { return uint32(min(max(rate*Whole, leastRate), Whole)) }
