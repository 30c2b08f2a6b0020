package residency

// A share that does not answer when its turn ends costs the others Drain, and each turn that it does not use the entering
// as well. So they make room for it rarely until it answers.
const (
	// Absence is for how long nobody makes room for a share after it has not answered, ns. It doubles each time until the
	// share answers, and grows no longer than LongestAbsence, so that nothing locks a share out for good.
	Absence        = Longest
	LongestAbsence = 64 * Longest
	// quiet is for how long a share must have had no work before it is taken that this has ended, ns: work that goes on is
	// told now and then.
	quiet = second
)

// silence is since when a share has not answered.
type silence struct {
	silent  bool
	barred  bool   // nobody makes room for it
	absence uint64 // the last one's length
	over    uint64 // when it ends
}

// answer takes up whether a share that leaves has answered until now, when it is away for others.
func (r *record) answer(now uint64) {
	if r.Done {
		r.silence = silence{}
		return
	}
	r.absence = min(max(2*r.absence, Absence), LongestAbsence)
	r.silent, r.barred, r.over = true, true, now+r.absence
	r.displaced = true
}

// quietAt is when it is taken that its work has ended, if it has no more until then.
func (r *record) quietAt() uint64 { return max(r.worked, r.since) + quiet }

// listen notes whether a share is still to stay away.
func (r *record) listen(now uint64) {
	if r.silent && r.State == Away && r.Done && now >= r.quietAt() {
		r.silence = silence{}
	}
	r.barred = r.silent && r.State == Away && now < r.over
}
