package agent

import (
	"maps"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/process"
)

// asking has the kernel asked about processes beside the looks: a user may have much open,
// or have it where reading takes long. The questions about one user's processes are asked
// one after another, and a look waits for them within bounds only. What is not
// answered by then is unknown until it is. The zero value is ready.
type asking struct {
	mu      sync.Mutex // held for a moment, alone
	replies map[question]*reply
	users   map[int]*inquirer
	// The window began at since; windows counts them, and looks have waited in this one.
	since   time.Time
	windows int
	waited  time.Duration
	// full is how many replies there may be before those about the dead are taken out.
	full int
}

// question is what is asked about a process.
type question struct {
	id    process.ID
	about string
}

// answer is what the kernel told.
type answer struct {
	tenant string // the owner's id
	unread bool   // the owner is not known: the process has too much open
	counts bool
	// keeps is for how long the answer stays true.
	keeps time.Duration
}

// reply is what is known of a question.
type reply struct {
	answer
	// pending is closed when the question is answered that is asked now, nil if none is, and
	// asked is when that was asked.
	pending chan struct{}
	asked   time.Time
	// unseen is until when the answer counts for who did not get it when they asked.
	unseen time.Time
	due    time.Time // when to ask again
	rest   time.Duration
}

// inquirer asks about one user's processes.
type inquirer struct {
	// first are the questions that were never answered, which come before those that are
	// asked again.
	first, again []func()
	working      bool
	wake         chan struct{} // ends a pause
	// clock is that of the thread which asks, begun what it showed when the question
	// was begun, and worked the time of processors that those before took.
	clock         int32
	begun, worked time.Duration
	// base is what was worked when the window of that number began.
	base   time.Duration
	window int
	// late says that somebody gave up waiting for the question that is asked now.
	late bool
}

// What looks wait for questions in a window of time.
const (
	window = time.Second
	// mostWork is how long those about one user's processes may take in time of processors.
	// An honest process takes less than a millisecond, one of a large program some.
	mostWork = 25 * time.Millisecond
	// mostWait bounds the wait for all users', also where reading stands still.
	mostWait = 250 * time.Millisecond
	// waitStep is the time between two comparisons of the wait with the bounds, and mostStep what counts of it: where it took longer, the
	// agent had no processor, and nor had who answers.
	waitStep = time.Millisecond
	mostStep = 10 * time.Millisecond
)

// What is done about a process about which questions take long.
const (
	// costly is from when on a question does.
	costly = 5 * time.Millisecond
	// A question is asked again after restFactor times what it took, each time after twice
	// the time before, up to longestAnswer.
	restFactor    = 100
	longestAnswer = time.Minute
	// pauseFactor is how much longer than a costly question the pause after it is.
	pauseFactor = 4
	// longestUnknown is for how long it is left open whose a process is. An honest user's are
	// known in milliseconds.
	longestUnknown = 15 * time.Second
	// leastReplies are kept before the first of the dead are taken out.
	leastReplies = 64
)

// known returns the answer to a question that need not be asked now.
func (q *asking) known(key question) (a answer, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if r := q.replies[key]; r != nil && r.holds(time.Now()) {
		r.unseen = time.Time{}
		return r.answer, true
	}
	return answer{}, false
}

// holds reports whether a reply's answer counts at a moment.
func (r *reply) holds(now time.Time) bool {
	return r.pending == nil && (now.Before(r.unseen) || now.Before(r.due))
}

// ask returns the answer to a question about a process of a user; ok is false while it is
// not known. Where it must be asked again, find does that on a goroutine of its own.
func (q *asking) ask(key question, uid int, find func() answer) (a answer, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	r := q.replyTo(key)
	if r.holds(time.Now()) {
		r.unseen = time.Time{}
		return r.answer, true
	}
	u := q.users[uid]
	if u == nil {
		u = &inquirer{wake: make(chan struct{}, 1)}
		if q.users == nil {
			q.users = map[int]*inquirer{}
		}
		q.users[uid] = u
	}
	if r.pending == nil {
		r.pending, r.asked = make(chan struct{}), time.Now()
		q.put(u, r, find)
	}
	if !q.wait(u, r.pending) {
		return answer{}, false
	}
	r.unseen = time.Time{}
	return r.answer, true
}

// put has a question asked. mu is held.
func (q *asking) put(u *inquirer, r *reply, find func() answer) {
	next := func() { q.find(u, r, find) }
	if r.due.IsZero() {
		u.first = append(u.first, next)
		select {
		case u.wake <- struct{}{}:
		default:
		}
	} else {
		u.again = append(u.again, next)
	}
	if !u.working {
		u.working = true
		go q.work(u)
	}
}

// next takes the next question out, nil if there is none. mu is held.
func (u *inquirer) next() (ask func()) {
	from := &u.first
	if len(*from) == 0 {
		from = &u.again
	}
	if len(*from) > 0 {
		ask, *from = (*from)[0], (*from)[1:]
	}
	return ask
}

// replyTo is what is known of a question. mu is held.
func (q *asking) replyTo(key question) *reply {
	r := q.replies[key]
	if r != nil {
		return r
	}
	if len(q.replies) >= max(q.full, leastReplies) {
		maps.DeleteFunc(q.replies, func(key question, r *reply) bool { return r.pending == nil && !key.id.Alive() })
		q.full = 2 * len(q.replies)
	}
	if q.replies == nil {
		q.replies = map[question]*reply{}
	}
	r = &reply{}
	q.replies[key] = r
	return r
}

// wait waits for an answer within the bounds. mu is held, but not meanwhile.
func (q *asking) wait(u *inquirer, pending <-chan struct{}) (answered bool) {
	for {
		select {
		case <-pending:
			return true
		default:
		}
		if now := time.Now(); now.Sub(q.since) >= window {
			q.since, q.windows, q.waited = now, q.windows+1, 0
		}
		if u.window != q.windows {
			u.window, u.base = q.windows, u.work()
		}
		if u.late || q.waited >= mostWait || u.work()-u.base >= mostWork {
			u.late = true
			return false
		}
		q.mu.Unlock()
		begun := time.Now()
		select {
		case <-pending:
		case <-time.After(waitStep):
		}
		q.mu.Lock()
		q.waited += min(time.Since(begun), mostStep)
	}
}

// work is how long the questions have kept processors. mu is held.
func (u *inquirer) work() time.Duration {
	if u.clock == 0 {
		return u.worked
	}
	return u.worked + timeOf(u.clock) - u.begun
}

// work asks until there are no more questions. It has a thread of its own meanwhile, whose
// clock tells what they take.
func (q *asking) work(u *inquirer) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	q.mu.Lock()
	defer q.mu.Unlock()
	u.clock = clockOf(unix.Gettid())
	u.begun = timeOf(u.clock)
	for ask := u.next(); ask != nil; ask = u.next() {
		q.mu.Unlock()
		ask()
		q.mu.Lock()
		took := timeOf(u.clock) - u.begun
		u.worked, u.begun, u.late = u.worked+took, u.begun+took, false
		if took >= costly && len(u.first) == 0 {
			q.pause(u, pauseFactor*took)
		}
	}
	u.working = false
	u.clock = 0
}

// pause leaves processors to others, until a question comes that was never answered. mu is
// held, but not meanwhile.
func (q *asking) pause(u *inquirer, longest time.Duration) {
	u.late = true // nobody waits for it
	select {
	case <-u.wake: // for a question that has been asked since
	default:
	}
	q.mu.Unlock()
	select {
	case <-u.wake:
	case <-time.After(longest):
	}
	q.mu.Lock()
	u.late = false
}

// find answers a question.
func (q *asking) find(u *inquirer, r *reply, find func() answer) {
	found := find()
	q.mu.Lock()
	defer q.mu.Unlock()
	rest := time.Duration(0)
	if took := timeOf(u.clock) - u.begun; took >= costly {
		rest = min(max(restFactor*took, 2*r.rest), longestAnswer)
	}
	now := time.Now()
	r.answer, r.rest, r.unseen, r.due = found, rest, now.Add(reconsidered), now.Add(max(rest, found.keeps))
	close(r.pending)
	r.pending = nil
}

// unread reports whether nobody can tell whose a process is because it has too much open.
func (q *asking) unread(id process.ID) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	r := q.replies[question{id, ofOwner}]
	return r != nil && r.unread
}

// overdue reports whether it has been asked for very long whose a process is, and was never
// answered: its user sees to that.
func (q *asking) overdue(id process.ID) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	r := q.replies[question{id, ofOwner}]
	return r != nil && r.pending != nil && r.due.IsZero() && time.Since(r.asked) >= longestUnknown
}

// clockOf is the clock of the processors' time that a thread of this process takes
// (clock_getcpuclockid(3) and MAKE_THREAD_CPUCLOCK of Linux).
func clockOf(tid int) int32 { return int32(^tid<<3 | 4 | 2) }

// timeOf reads a clock, which stands at 0 where there is none of that kind.
func timeOf(clock int32) time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(clock, &now); err != nil {
		return 0
	}
	return time.Duration(now.Nano())
}
