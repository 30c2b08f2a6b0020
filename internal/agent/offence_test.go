package agent

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/agentconfig"
	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/process"
)

// What a share's process does against all shares of a GPU is told once, and answered only when it goes on.
func TestOffencesAreAnswered(t *testing.T) {
	n := newNode(t)
	r, b := n.startBeside(func(_ *beside, c *Config) { c.Misuse = agentconfig.OutsideKill })
	guilty, innocent := n.asker(os.Getuid()), n.asker(os.Getuid())
	name := n.grant(r, guilty, sideBySide(30)).Tenant.Name
	n.grant(r, innocent, sideBySide(30))
	id, err := process.Find(guilty.cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	told := func(text string) (count int) {
		for _, e := range n.list(r).Events {
			if e.Kind == control.EventMisuse && e.Tenant == name && strings.Contains(e.Text, text) {
				count++
			}
		}
		return count
	}
	offence := backend.Incident{UUID: firstID, Note: true, By: id, Text: "it was silent"}
	b.tell(offence)
	eventually(t, "it is told", func() bool { return told("it was silent") == 1 })
	if state := processState(id.PID); !strings.Contains("SRD", state) {
		t.Errorf("after a single offence it is %s", state)
	}
	for range manyOffences - 1 {
		b.tell(offence)
	}
	eventually(t, "it is answered", func() bool { return told("was killed") == 1 })
	states(t, map[int]string{id.PID: "ZX", innocent.cmd.Process.Pid: "SRD"})
	if got := told("it was silent"); got != 2 {
		t.Errorf("%d events", got)
	}
	nobody := backend.Incident{UUID: firstID, Note: true, By: process.ID{PID: 1 << 30}, Text: "nobody's"}
	b.tell(nobody)
	eventually(t, "what has ended is told of the GPU", func() bool {
		return slices.ContainsFunc(n.list(r).Events, func(e control.Event) bool { return e.Kind == control.EventGPU && e.Text == "nobody's" })
	})
}
