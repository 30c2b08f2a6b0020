package arbiter

import "math"

// Law divides the time of one GPU. Its zero value is ready. It keeps only what it observed of each share, smoothed, so
// that a new Law decides as well as an old one after 50 ms.
//
// Every limited share has a token bucket, which gains Rate of real time and pays for the share's own GPU time. The
// rates are:
//
//   - A hungry share, which wants more than it gets, gets what [divide] gives it: guarantees first, then what is left
//     by weight, then bursts; offline shares get what online ones do not use. The rates of hungry shares and the use
//     of the others sum to 1, unless caps leave time over.
//   - A share that is not hungry gets the rate that it would have if it were, so that it can begin at once. The
//     hungry shares' rates include what it does not use.
//
// Rates that sum to 1 do not let the GPU idle while somebody waits: the buckets together gain 1 and pay the part of
// the time in which the GPU is busy, so on an idle GPU they grow until one is not empty. A late wake-up costs time
// once; the credit that it leaves lets later launches come early enough. A share whose rate is above its part of the
// slices need not be measured exactly: the others' rates hold them to their parts, and it gets the rest, with its
// bucket full.
//
// While others use the GPU, nobody sees how much a share would use: one that waits for each of its launches gets a
// slice only when the others' slices end, and would do more without them. So an active share is presumed to want all
// that it may have until the GPU idles beside hungry shares. Then what it leaves is gradually lent to them, see
// [Law.lend].
type Law struct {
	observed map[string]*observation
	last     uint64
	idle     float64 // part of the time, smoothed over idleTime

	// terms are those for which bases were worked out.
	terms []Terms
	bases []float64
	// What follows is memory that every division uses anew.
	present      []*observation
	demands      []demand
	given, tried []float64
}

const (
	ms = 1_000_000

	// smoothing is the time constant of a share's measured use. A change shows to 95 % after three of them, and the
	// division has to follow it within these 60 ms.
	smoothing = 20 * ms
	// hungerHold is how long a share stays hungry after it last waited. It spans a few rounds, because a share that
	// waits between two launches of a few ms does not wait in every round.
	hungerHold = 20 * ms
	// forgotten is the time without news after which a share's use counts as unknown. Unknown demand counts as
	// unlimited.
	forgotten = 100 * ms
	// idleTime is the time constant of the GPU's idleness. It is long, because the own time of a long launch is told
	// all at once.
	idleTime = 200 * ms
	// lendTime is the time constant with which idle time is lent to hungry shares, and reclaimTime the time in which
	// all of it comes back while the GPU does not idle.
	lendTime    = 50 * ms
	reclaimTime = 1000 * ms
	// idleAllowed is the part of the time that may idle beside hungry shares: the law sees use with errors of this
	// order, and only an idle GPU shows it that somebody wants no more.
	idleAllowed = 0.01

	// A bucket holds burstTime times its rate, but at least burstLeast and at most burstTime. Processes on busy
	// machines lose their processor for 10 to 30 ms, which should cost them nothing. What is saved beyond that would
	// only serve to crowd out others later.
	burstTime  = 40 * ms
	burstLeast = 2 * ms

	// depthOnline is how much unfinished work a process of an online share may have. Its queue does not delay
	// neighbours, because the GPU gives slices to processes in turn, and its bucket bounds it too. Two launches of
	// 50 ms cover delays of the process itself.
	depthOnline = 100 * ms
	// depthFree is practically no bound, for a share to which all others give way.
	depthFree = 1000 * ms
	// depthOffline is for offline shares beside online ones. One launch is always allowed; if it takes at most 1 ms, no
	// more than 1.5 ms of offline work is ahead of an online launch.
	depthOffline = 500_000

	// leastRate is the least rate of any share, 1 %, so that all of them make progress.
	leastRate = Whole / 100
)

// observation is what is known of how much a share would use.
type observation struct {
	round  uint64  // the last Divide that had this share
	told   uint64  // use is known up to here
	known  bool    // use was told since the share became active
	use    float64 // own GPU time per time
	stolen float64 // neighbours' GPU time within its intervals, per time
	active bool
	hungry bool
	wanted uint64  // when it last wanted
	rate   float64 // its last one
	lent   float64 // the part, 0 to 1, of what it leaves that is lent
}

func (d *observation) note(now uint64, r *Report) {
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
func (d *observation) wish() float64 {
	switch {
	case d.hungry:
		return 1
	case !d.active:
		return d.use
	}
	return 1 - d.lent*(1-d.use)
}

// Divide decides the budgets of all shares of the GPU, in their order. Calls may come late or irregularly.
func (l *Law) Divide(now uint64, shares []Share) []Budget {
	observed := l.note(now, shares)
	l.lend(now, shares, observed)
	l.demands = l.demands[:0]
	for i, d := range observed {
		one := demandOf(&shares[i].Terms)
		one.wish, one.use = d.wish(), d.use
		l.demands = append(l.demands, one)
	}
	l.given = divide(l.demands, l.given)
	hungry := newIfHungry(l.demands, l.tried)
	for i, d := range observed {
		if !d.hungry {
			l.given[i] = hungry.gets(i)
		}
		d.rate = l.given[i]
	}
	l.tried = hungry.got
	return budgets(shares, l.given, l.basesOf(shares))
}

// basesOf are the bases of shares, which change with their terms alone.
func (l *Law) basesOf(shares []Share) []float64 {
	same := len(l.terms) == len(shares)
	for i := 0; same && i < len(shares); i++ {
		same = l.terms[i] == shares[i].Terms
	}
	if !same {
		l.terms = l.terms[:0]
		for i := range shares {
			l.terms = append(l.terms, shares[i].Terms)
		}
		l.bases = bases(l.demands)
	}
	return l.bases
}

// note updates the observations by the reports and forgets shares that are gone.
func (l *Law) note(now uint64, shares []Share) []*observation {
	if l.observed == nil {
		l.observed = map[string]*observation{}
	}
	all := l.present[:0]
	for i := range shares {
		d := l.observed[shares[i].Key]
		if d == nil {
			d = &observation{told: now}
			l.observed[shares[i].Key] = d
		}
		d.note(max(now, d.told), &shares[i].Report)
		d.round = now
		all = append(all, d)
	}
	l.present = all
	if len(l.observed) == len(all) {
		return all
	}
	for key, d := range l.observed {
		if d.round != now {
			delete(l.observed, key)
		}
	}
	return all
}

// lend moves what shares leave of their rates to hungry ones while the GPU idles, and back while it does not. Shares
// that leave more lend more. Time that neighbours had within a share's intervals does not count as left.
func (l *Law) lend(now uint64, shares []Share, observed []*observation) {
	passed := float64(now - min(l.last, now))
	if l.last == 0 || passed == 0 {
		l.last = now
		return
	}
	l.last = now
	own, hungry := 0.0, false
	for i, d := range observed {
		own += float64(shares[i].Own)
		hungry = hungry || d.hungry && shares[i].Policy != Fixed
	}
	l.idle += (1 - math.Exp(-passed/idleTime)) * (1 - own/passed - l.idle)
	l.idle = max(l.idle, -1)
	idle := l.idle
	for _, d := range observed {
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

// budgets turns rates into budgets.
func budgets(shares []Share, rates, bases []float64) []Budget {
	online, offline := 0, 0
	for i := range shares {
		if shares[i].Offline {
			offline++
		} else {
			online++
		}
	}
	all := make([]Budget, len(shares))
	for i := range shares {
		s, g := &shares[i], &all[i]
		uncapped := demandOf(&s.Terms).most >= 1
		g.Limited = s.Policy != Free && (len(shares) > 1 || !uncapped)
		g.Beat = !s.Offline && offline > 0
		g.Yield = s.Offline && online > 0
		g.Capped = !uncapped || g.Yield
		g.Rate, g.Base = ppm(rates[i]), ppm(bases[i])
		g.Burst = max(burstLeast, uint64(burstTime*min(rates[i], 1)))
		g.Depth = depthOnline
		switch {
		case g.Yield:
			g.Depth = depthOffline
		case online == 1 && g.Beat && uncapped:
			// Nobody has to be protected from this share. Its bucket counts what it uses and never makes it wait, not
			// even if the count is wrong.
			g.Rate, g.Depth = 2*Whole, depthFree
		}
	}
	return all
}

func ppm(rate float64) uint32 { return uint32(min(max(rate*Whole, leastRate), Whole)) }
