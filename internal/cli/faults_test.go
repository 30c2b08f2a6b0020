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

// A share that the cluster's scheduler has leave comes back by itself, and nobody is told to resume it.
func TestSuspendedForSomebody(t *testing.T) {
	since := time.Date(2026, 12, 1, 9, 0, 0, 0, time.UTC)
	s := &control.Suspended{State: control.SuspensionOut, Since: since, By: "the cluster's scheduler gives its room to pod a/b", Hold: true, For: "pod a/b", Bytes: 3 << 30}
	text := suspensionOf("share team/train", s, since)
	if !strings.Contains(text, "its room to pod a/b; 3Gi of it is in host memory; it comes back by itself") || strings.Contains(text, "divvy resume") {
		t.Error(text)
	}
	s.For = ""
	if text := suspensionOf("share team/train", s, since); !strings.HasSuffix(text, "; `divvy resume` brings it back") {
		t.Error(text)
	}
}
