package pacing

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/agentconfig"
	"github.com/divvy-gpu/divvy/internal/arbiter"
	"github.com/divvy-gpu/divvy/internal/nvml"
)

// A share that uses the GPU while its memory has no turn is told of with the first sample that can be of nothing else, and
// answered; the same use in its turn is its own business.
func TestUseWithoutATurn(t *testing.T) {
	wall := time.Now()
	for name, c := range map[string]struct {
		closed time.Duration // before now; 0: its gate is open
		before time.Duration // the last sample that was known
		sample time.Duration // the new one
		busy   float64
		guilty bool
	}{
		"in its turn":                         {0, 700, 300, 0.9, false},
		"long after its turn":                 {10_000, 700, 300, 0.9, true},
		"a little":                            {10_000, 700, 300, 0.06, true},
		"as the driver rounds":                {10_000, 700, 300, 0.01, false},
		"the sample began in its turn":        {900, 2000, 300, 0.9, false},
		"the sample is all after its turn":    {900, 800, 300, 0.9, true},
		"nothing was known for long":          {5000, 60_000, 300, 0.9, true},
		"the sample may be of a second":       {1200, 60_000, 300, 0.9, false},
		"the sample is of a second after all": {1301, 60_000, 300, 0.9, true},
	} {
		t.Run(name, func(t *testing.T) {
			court := &court{}
			d, p := court.judged(t, agentconfig.OutsideStop, "a", "b")
			p.config.Closed = func(tenant string) uint64 {
				if tenant != "a" || c.closed == 0 {
					return 0
				}
				return d.now - uint64(c.closed*time.Millisecond)
			}
			w := newWatcher(p)
			w.since[0] = wall.Add(-c.before * time.Millisecond)
			w.pids[os.Getpid()] = "a"
			judge := func(busy float64) {
				// Both clocks stand still: that of the pages and that of samples.
				w.judge(0, firstID, []nvml.Utilisation{{PID: os.Getpid(), At: wall.Add(-c.sample * time.Millisecond), Busy: busy}}, wall)
				p.answerMisuse(t.Context())
			}
			judge(c.busy)
			if guilty := len(court.told) > 0 && strings.Contains(court.told[0].Text, "no turn"); guilty != c.guilty || guilty != (len(court.answered) > 0) {
				t.Fatalf("told %+v, answered %q", court.told, court.answered)
			}
			// Who was convicted of something else before is told of it as well.
			court.told = nil
			d.convict("b", arbiter.Understates)
			p.answerMisuse(t.Context())
			d.loop.judge(firstID, map[string]bool{"b": true})
			p.answerMisuse(t.Context())
			if len(court.told) != 2 || !strings.Contains(court.told[1].Text, "no turn") {
				t.Errorf("told %+v", court.told)
			}
			if guards := p.guards(firstID); guards != (c.closed != 0) {
				t.Errorf("asked at each round: %v", guards)
			}
		})
	}
}
