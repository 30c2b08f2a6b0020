package pacing

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/agentconfig"
	"github.com/divvy-gpu/divvy/internal/arbiter"
)

// spareMost is how much GPU time may be told late, which is more than the replay waits for. Beyond it no share has more
// than all of the GPU's time.
const spareMost = uint64(time.Second)

// misuse compares what the driver says of a share with what the share says.
type misuse struct {
	verdict arbiter.Verdict
	busy    float64 // the driver's figure, 0 to 1
	told    uint64  // when it was told
	counted uint64  // own time is known up to here
	spare   uint64  // how much more of its own figure can be true, ns
	limited uint64  // since when it has a limit, 0 without
	owners  uint64  // of the share's workers, when the watch was last told
	assumed bool    // the replay takes it to be busy always
	ignored bool    // the replay gives it no turns
	// trespass is whether it uses the GPU while nothing of it may, and trespassed whether text says so.
	trespass, trespassed bool
	fresh                uint64 // what processes that came or went may still have been charged for and not told, ns
	room                 int64  // what of its rate it has neither told nor been excused for, ns
	belief               arbiter.Belief
	unseen               float64 // the part of the GPU's time that its processes hid by ending, 0 to 1
	// answered is whether its processes were stopped or killed.
	answered bool
	// uncounted is until when the GPU may still work on what was launched while
	// nothing was counted; 1 stands for a share that has no limit now.
	uncounted uint64
	text      string // for people, empty while all is well
	shown     string // the complaint of which an event was written
}

// own is the time to count: the share's own figure, or the driver's if the share
// understates or tells too much.
func (m *misuse) own(now, measured uint64) uint64 {
	passed := now - min(m.counted, now)
	first := m.counted == 0
	m.counted = now
	if !first && (m.verdict >= arbiter.Understates || m.ignored) {
		return uint64(m.busy * float64(passed))
	}
	m.spare = min(m.spare, spareMost) + passed
	if first {
		m.spare = spareMost
	}
	measured = min(measured, m.spare)
	m.spare -= measured
	return measured
}

// owed is the part of own time that the share's bucket has to pay. While the GPU
// still works on what was launched without a limit, that is only what the share
// reports.
func (m *misuse) owed(now, own, told uint64) uint64 {
	if now < m.uncounted {
		return told
	}
	return own
}

// count notes whether the share's work is counted from now on, and whether some of
// it was counted.
func (m *misuse) count(now uint64, limited, some bool) {
	switch {
	case !limited:
		m.uncounted = 1
	case m.uncounted == 1:
		m.uncounted = now + uint64(backlog)
	case some:
		m.uncounted = min(m.uncounted, now+uint64(settling))
	}
}

// complaint is what people should know of the share, empty if all is well.
func (s *shareTime) complaint(now uint64) string {
	switch {
	case s.fault != nil:
		return "its GPU time is not divided: " + s.fault.Error()
	case s.misuse.text != "":
		return s.misuse.text
	case s.faultCount >= faultRounds && now-s.faulted < uint64(faultShown):
		return "its page reports impossible GPU time: " + describeFaults(s.faults)
	}
	return ""
}

func describeFaults(f arbiter.Fault) string {
	var texts []string
	for _, one := range []struct {
		fault arbiter.Fault
		text  string
	}{
		{arbiter.FaultBackwards, "time that runs backwards"},
		{arbiter.FaultFuture, "work in the future"},
		{arbiter.FaultExcess, "more work than time has passed"},
	} {
		if f&one.fault != 0 {
			texts = append(texts, one.text)
		}
	}
	return strings.Join(texts, ", ")
}

// tell reports to the watch what the share says and what it may use.
func (s *shareTime) tell(now uint64, w *arbiter.Watch, used arbiter.Usage) {
	if !s.limited() {
		return
	}
	if s.misuse.limited == 0 {
		s.misuse.limited = now
	}
	if s.owners != s.misuse.owners {
		w.Changed(now, s.key)
		s.misuse.owners = s.owners
	}
	w.Tell(now, s.key, arbiter.Told{
		Own: used.Told, Lost: used.Busy - min(used.Measured, used.Busy), Rate: s.budget.Rate,
		Open: arbiter.OldestOpen(s.key, s.works, used.Fault),
	})
}

// accused is a share whose misuse is to be reported or answered.
type accused struct {
	tenant, uuid, text string
	act                bool
}

// accuse collects the shares whose complaint is new, or whose misuse goes on and is
// to be answered.
func (l *loop) accuse(answer agentconfig.Outside) []accused {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []accused
	now := l.clock()
	for _, t := range l.tenants {
		for _, s := range t.shares {
			convicted := s.convicted()
			guilty := convicted || s.misuse.unseen > 0
			act := convicted && answer != agentconfig.OutsideReport
			switch {
			case guilty && s.misuse.text == "", act && !s.misuse.answered, s.misuse.trespass && !s.misuse.trespassed:
				s.misuse.text, s.misuse.answered, s.misuse.trespassed = describeMisuse(s, answer), act, s.misuse.trespass
			case !guilty && !s.misuse.answered:
				s.misuse.text, s.misuse.trespassed = "", false
			}
			text := s.complaint(now)
			if text != s.misuse.shown && text != "" || act {
				told := text
				if text == s.misuse.shown {
					told = ""
				}
				all = append(all, accused{t.id, s.uuid, told, act})
			}
			s.misuse.shown = text
		}
	}
	return all
}

// convicted reports whether a share is to be answered for how it uses GPU time. For what was
// concluded from who was seen it pays, and no process is stopped or killed: the driver's
// figures by process convict, or what it told.
func (s *shareTime) convicted() bool {
	return s.misuse.trespass || s.misuse.verdict >= arbiter.Understates || s.bill.defies() || s.bill.overdrawn() >= overdrawnMost
}

func describeMisuse(s *shareTime, answer agentconfig.Outside) string {
	what := fmt.Sprintf("it uses %.0f%% of the GPU's time and says less", 100*s.misuse.busy)
	switch {
	case s.misuse.trespass:
		what = fmt.Sprintf("it uses %.0f%% of the GPU's time while its memory has no turn there", 100*s.misuse.busy)
	case s.misuse.verdict < arbiter.Understates && s.bill.defies():
		what = fmt.Sprintf("it uses the GPU although its user's earlier shares left it a debt of GPU time, %v by now", time.Duration(s.bill.owed()).Round(10*time.Millisecond))
	case s.misuse.verdict < arbiter.Understates && s.bill.overdrawn() >= overdrawnMost:
		what = fmt.Sprintf("it has used %v of GPU time more than its share, and goes on", time.Duration(s.bill.overdrawn()).Round(10*time.Millisecond))
	case s.misuse.verdict < arbiter.Understates:
		return describeUnseen(s.misuse.unseen)
	case s.misuse.verdict == arbiter.Exceeds:
		what = fmt.Sprintf("it uses %.0f%% of the GPU's time, more than its share", 100*s.misuse.busy)
	}
	switch answer {
	case agentconfig.OutsideStop:
		what += ": its processes on the GPU were stopped (SIGSTOP); `divvy stop` ends it"
	case agentconfig.OutsideKill:
		what += ": its processes on the GPU were killed"
	}
	return what
}

// answerMisuse reports shares that misuse GPU time, and has them answered if the
// configuration says so.
func (p *Pacer) answerMisuse(ctx context.Context) {
	for _, c := range p.accuse(p.config.Misuse) {
		name, user, ok := p.config.Ledger.Name(c.tenant)
		if !ok {
			continue
		}
		if c.text != "" {
			p.config.Log.WarnContext(ctx, "GPU time is misused", "tenant", name, "gpu", c.uuid, "reason", c.text)
			p.config.Ledger.Tell(control.Event{Kind: control.EventMisuse, Tenant: name, User: user, UUID: c.uuid, Text: c.text})
		}
		if c.act {
			p.config.Ledger.Answer(ctx, c.tenant, c.uuid)
		}
	}
}
