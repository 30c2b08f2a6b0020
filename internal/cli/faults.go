package cli

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/divvy-gpu/divvy/internal/agent/control"
)

// isByItself reports whether a share of the tenant shows what only the share tells.
func isByItself(t control.Tenant) bool {
	return slices.ContainsFunc(t.Shares, func(s control.Share) bool { return s.Observed == nil || s.ByDescriptor > 0 })
}

// mechanismsOf returns a line for each share of a tenant whose part of the GPU the driver keeps.
func mechanismsOf(t control.Tenant) (lines []string) {
	for _, s := range t.Shares {
		if s.Mechanism != "" {
			lines = append(lines, fmt.Sprintf("%s, GPU %d: %s", t.Name, s.Index, s.Mechanism))
		}
	}
	return lines
}

// faultsOf returns lines about what is wrong with a tenant.
func faultsOf(t control.Tenant, now time.Time) []string {
	var faults []string
	share := shareOf(t.Name, t.User)
	if t.Idle != nil {
		faults = append(faults, fmt.Sprintf("! %s has used no GPU since %s", share, moment(*t.Idle, now)))
	}
	if s := t.Suspended; s != nil {
		faults = append(faults, suspensionOf(share, s, now))
	}
	switch {
	case t.Until != nil && now.Before(*t.Until):
		faults = append(faults, fmt.Sprintf("%s ends at %s: the administrator limits its time", share, moment(*t.Until, now)))
	case t.Until != nil:
		faults = append(faults, fmt.Sprintf("%s is ending: its time was over at %s", share, moment(*t.Until, now)))
	}
	if t.Fault != "" {
		faults = append(faults, fmt.Sprintf("! %s: %s", share, t.Fault))
	}
	for _, s := range t.Shares {
		if s.Excess != "" {
			faults = append(faults, fmt.Sprintf("! %s on GPU %d: %s", share, s.Index, s.Excess))
		}
		if s.Past != "" {
			faults = append(faults, fmt.Sprintf("! %s on GPU %d: %s", share, s.Index, s.Past))
		}
		faults = append(faults, turnFaults(share, s)...)
		if s.Time != nil && s.Time.Fault != "" {
			faults = append(faults, fmt.Sprintf("! %s on GPU %d: %s", share, s.Index, s.Time.Fault))
		}
		if s.ByDescriptor > 0 {
			faults = append(faults, fmt.Sprintf("! %s on GPU %d: none of its processes holds %s of its memory; file descriptors keep it until all are closed",
				share, s.Index, size(s.ByDescriptor)))
		}
	}
	return faults
}

// suspensionOf says how far a share's suspension is, and what ends it.
func suspensionOf(share string, s *control.Suspended, now time.Time) string {
	what := map[control.Suspension]string{
		control.SuspensionLeaving: "is being taken off its GPUs", control.SuspensionOut: "is off its GPUs",
		control.SuspensionWaiting: "waits to come back to its GPUs", control.SuspensionReturning: "comes back to its GPUs",
	}[s.State]
	text := fmt.Sprintf("%s %s since %s: %s", share, what, moment(s.Since, now), s.By)
	if s.State == control.SuspensionOut && s.Bytes > 0 {
		text += fmt.Sprintf("; %s of it is in host memory", size(s.Bytes))
	}
	if s.Reason != "" {
		text += "; " + s.Reason
	}
	switch {
	case s.For != "":
		text += "; it comes back by itself"
	case s.State == control.SuspensionOut && s.Hold:
		text += "; `divvy resume` brings it back"
	}
	return text
}

// shareOf names a share for people: two users may have shares of one name.
func shareOf(name, user string) string {
	if user == "" || strings.HasPrefix(name, user+"/") {
		return "share " + name // a cluster's, with its namespace
	}
	return fmt.Sprintf("share %s of %s", name, user)
}
