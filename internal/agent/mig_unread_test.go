package agent

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/agent/control"
)

// A GPU in MIG mode of which nobody can tell how it is divided takes no shares, and says why. Once that is known it has no
// fault.
func TestUnreadMIGMode(t *testing.T) {
	q := newQuarry(t)
	q.mig.SetUnread(errors.New("no profile is told"))
	r := q.run("")
	r.NoteMIGModes(map[string]string{firstID: "it is in MIG mode, and this agent cannot tell more"})
	whole := ask(gib)
	whole.Request.Among = []string{"0"}
	text, code := q.refusal(r, os.Getuid(), whole)
	if code != control.CodeRefused || !strings.Contains(text, "cannot tell more (") || !strings.Contains(text, "no profile is told") {
		t.Errorf("%s, %s", code, text)
	}
	if fault := q.list(r).GPUs[0].Fault; !strings.Contains(fault, "no profile is told") {
		t.Errorf("listed with fault %q", fault)
	}
	q.mig.SetUnread(nil)
	if _, err := r.forms(t.Context(), root, struct{}{}); err != nil {
		t.Fatal(err)
	}
	if fault := q.list(r).GPUs[0].Fault; fault != "" {
		t.Errorf("listed with fault %q", fault)
	}
	q.grant(r, q.asker(os.Getuid()), instanceOf("1g.10gb"))
}
