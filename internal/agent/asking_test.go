package agent

import (
	"os"
	"os/exec"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/agentconfig"
	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/nvml"
	"github.com/divvy-gpu/divvy/internal/process"
)

func about(pid int) question { return question{process.ID{PID: pid}, "test"} }

// What is asked about one user's processes delays that user's answers and nobody else's,
// and comes when it is there.
func TestAskingWaitsForNoUser(t *testing.T) {
	var q asking
	open, asked := make(chan struct{}), atomic.Int32{}
	stuck := func() answer { asked.Add(1); <-open; return answer{tenant: "slow"} }
	for range 100 {
		if _, known := q.ask(about(1), 1, stuck); known {
			t.Fatal("what is not told is known")
		}
		if _, known := q.ask(about(2), 1, func() answer { return answer{tenant: "behind"} }); known {
			t.Fatal("two questions about a user's processes are asked at once")
		}
	}
	quick := func() answer { return answer{tenant: "quick"} }
	eventually(t, "another user's process is known", func() bool {
		got, known := q.ask(about(3), 2, quick)
		return known && got.tenant == "quick"
	})
	close(open)
	for pid, want := range map[int]string{1: "slow", 2: "behind"} {
		eventually(t, "it is known in the end", func() bool {
			got, known := q.ask(about(pid), 1, stuck)
			return known && got.tenant == want
		})
	}
	if n := asked.Load(); n != 1 {
		t.Errorf("one question was asked %d times", n)
	}
}

// A look waits for an answer that could not come while the whole agent stood still.
func TestAskingAfterAStandstill(t *testing.T) {
	var q asking
	begun, over, told := make(chan struct{}), make(chan struct{}), make(chan bool)
	go func() {
		_, known := q.ask(about(1), 1, func() answer { close(begun); <-over; return answer{} })
		told <- known
	}()
	<-begun
	q.mu.Lock() // for which who asks waits, as who answers does for the end of this
	<-time.After(2 * mostWait)
	q.mu.Unlock()
	close(over)
	if !<-told {
		t.Error("the answer came at once, and was not waited for")
	}
}

// What takes long is asked again after a pause that grows, what is quick each time.
func TestAskingAgain(t *testing.T) {
	var q asking
	calls := map[string]int{}
	ask := func(what string, find func()) {
		id, err := process.Find(os.Getpid())
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, "it is told", func() bool {
			_, known := q.ask(question{id, what}, 1, func() answer { calls[what]++; find(); return answer{} })
			return known
		})
	}
	work := func() {
		const clock = unix.CLOCK_THREAD_CPUTIME_ID
		for begun := timeOf(clock); timeOf(clock)-begun < 2*costly; {
		}
	}
	ask("costly", work)
	for range 5 {
		ask("quick", func() {})
	}
	if calls["quick"] < 2 {
		t.Errorf("asked %v", calls)
	}
	id, _ := process.Find(os.Getpid())
	r := q.replies[question{id, "costly"}]
	for _, atLeast := range []time.Duration{2 * restFactor * costly, 4 * restFactor * costly} {
		if r.rest < atLeast {
			t.Errorf("the pause is %s, want %s", r.rest, atLeast)
		}
		q.mu.Lock()
		r.due, r.unseen = time.Now(), time.Time{}
		q.mu.Unlock()
		ask("costly", work)
	}
	q.mu.Lock()
	before := calls["costly"]
	r.due = time.Now().Add(time.Hour)
	q.mu.Unlock()
	for range 5 {
		ask("costly", work)
	}
	if calls["costly"] != before {
		t.Error("it is asked again before it is due")
	}
}

// Questions that were never answered come before those that are asked again.
func TestNewQuestionsComeFirst(t *testing.T) {
	var q asking
	var order []string
	ask := func(pid int, what string) {
		q.ask(about(pid), 1, func() answer { order = append(order, what); return answer{} })
	}
	eventually(t, "one is answered", func() bool {
		_, known := q.ask(about(1), 1, func() answer { return answer{} })
		return known
	})
	q.mu.Lock()
	q.replies[about(1)].unseen = time.Time{}
	q.mu.Unlock()
	open := make(chan struct{})
	q.ask(about(2), 1, func() answer { <-open; return answer{} })
	ask(1, "again")
	ask(3, "first")
	close(open)
	eventually(t, "both are answered", func() bool {
		q.mu.Lock()
		defer q.mu.Unlock()
		return q.replies[about(1)].pending == nil && q.replies[about(3)].pending == nil
	})
	if !slices.Equal(order, []string{"first", "again"}) {
		t.Errorf("asked in the order %v", order)
	}
}

// unanswering is a backend that does not get to an end with one process.
type unanswering struct {
	*pages
	pid  atomic.Int64
	open chan struct{}
}

func (s *unanswering) Owner(tenants []backend.Tenant, pid int) (string, bool) {
	if int64(pid) == s.pid.Load() {
		<-s.open
	}
	return s.pages.Owner(tenants, pid)
}

// A process about which nothing is told delays no look, and nobody is accused or signalled
// because of it.
func TestLooksGoOnBesideAStandingQuestion(t *testing.T) {
	n := newNode(t)
	n.interval = 20 * time.Millisecond
	b := &unanswering{pages: n.backend, open: make(chan struct{})}
	c := n.settings(b)
	c.Misuse, c.Listed = agentconfig.OutsideKill, func(int) bool { return true }
	r := n.startAs(c)
	defer close(b.open)
	guilty := n.asker(os.Getuid())
	created := n.grant(r, guilty, askOn("0", 2*gib))
	n.enter(created.Tenant.Dir, 0, guilty.cmd.Process.Pid, gib)
	n.driver.list(nvml.Process{PID: guilty.cmd.Process.Pid, Used: gib})
	rounds(t, r, firstID)
	stranger := exec.Command("sleep", "1000")
	if err := stranger.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = stranger.Process.Kill(); _ = stranger.Wait() }()
	b.pid.Store(int64(stranger.Process.Pid))
	n.driver.list(nvml.Process{PID: guilty.cmd.Process.Pid, Used: gib}, nvml.Process{PID: stranger.Process.Pid, Used: gib})
	rounds(t, r, firstID)
	if l := n.list(r); slices.ContainsFunc(l.Outside, func(o control.Outside) bool { return o.PID == stranger.Process.Pid }) {
		t.Errorf("of whom nothing is known it is said: %+v", l.Outside)
	}
	n.driver.list(nvml.Process{PID: guilty.cmd.Process.Pid, Used: 20 * gib}, nvml.Process{PID: stranger.Process.Pid, Used: gib})
	eventually(t, "the other is told", func() bool { return len(n.excesses(r)) > 0 })
	states(t, map[int]string{guilty.cmd.Process.Pid: "ZX", stranger.Process.Pid: "SRD"})
}

// Who sees to it that nobody comes to know whose a process is does not hide it so.
func TestQuestionsAreOverdue(t *testing.T) {
	id := process.ID{PID: 4711, Start: 1}
	for name, c := range map[string]struct {
		reply *reply
		want  bool
	}{
		"never asked":        {nil, false},
		"asked just now":     {&reply{pending: make(chan struct{}), asked: time.Now()}, false},
		"asked long ago":     {&reply{pending: make(chan struct{}), asked: time.Now().Add(-longestUnknown)}, true},
		"answered":           {&reply{asked: time.Now().Add(-longestUnknown)}, false},
		"answered, and anew": {&reply{pending: make(chan struct{}), asked: time.Now().Add(-longestUnknown), due: time.Now()}, false},
	} {
		q := asking{replies: map[question]*reply{}}
		if c.reply != nil {
			q.replies[question{id, ofOwner}] = c.reply
		}
		if got := q.overdue(id); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
