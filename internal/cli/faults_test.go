package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/agent/control"
)

// Two users may have shares of one name: a line about one says whose it is.
func TestFaultsSayWhoseTheShareIs(t *testing.T) {
	ill := control.Share{Excess: "it has 9Gi", Past: "it is past its limit by overhead alone", Time: &control.Time{Fault: "it says less"}, ByDescriptor: 1 << 30}
	of := func(user, name string) string {
		return strings.Join(faultsOf(control.Tenant{Name: name, User: user, Fault: "its page is truncated", Shares: []control.Share{ill}}, time.Time{}), "\n")
	}
	if text := of("u1", "train"); !strings.Contains(text, "past its limit") {
		t.Errorf("nothing of the limit: %s", text)
	}
	for _, line := range strings.Split(of("u1", "train"), "\n") {
		if !strings.HasPrefix(line, "! share train of u1") {
			t.Errorf("%q does not say whose share it is", line)
		}
	}
	if text := of("team", "team/claim"); strings.Contains(text, "of team") {
		t.Errorf("a cluster's share has its namespace in its name: %s", text)
	}
}
