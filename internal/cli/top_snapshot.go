package cli

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/cli/top"
)

// snapshotOf is what `divvy top` shows of a survey.
func snapshotOf(all survey, now time.Time) top.Snapshot {
	found := top.Snapshot{At: now}
	for _, a := range all.away {
		found.Notes = append(found.Notes, strings.Split(strings.TrimSpace(a.text()), "\n")...)
	}
	for _, h := range all.held {
		found.Notes = append(found.Notes, fmt.Sprintf("! GPU %s is held by %s.", h.UUID, h))
	}
	for _, l := range all.agents {
		for _, g := range l.GPUs {
			found.GPUs = append(found.GPUs, topGPU(l.Machine, g, true))
		}
		entitled := entitlements(l.Listing)
		for _, t := range l.Tenants {
			for i, s := range t.Shares {
				found.Shares = append(found.Shares, topShare(l, t, s, entitled[shareKey{t.ID, i}]))
			}
		}
		found.Notes = append(found.Notes, on(l.Machine, gpuNotes(l))...)
		found.Notes = append(found.Notes, on(l.Machine, outsideNotes(l))...)
	}
	for _, u := range all.unserved {
		for _, g := range u.GPUs {
			found.GPUs = append(found.GPUs, topGPU(u.Machine, g, false))
		}
		found.Notes = append(found.Notes, on(u.Machine, u.Notes)...)
		if u.Fault != "" {
			found.Notes = append(found.Notes, on(u.Machine, []string{"! " + u.Fault})...)
		}
	}
	return found
}

// on are notes about a simulated machine, with its name: several machines have a GPU 0.
func on(machine string, notes []string) (named []string) {
	for _, note := range notes {
		if machine != "" {
			text, wrong := strings.CutPrefix(note, "! ")
			note = machine + ": " + text
			if wrong {
				note = "! " + note
			}
		}
		named = append(named, note)
	}
	return named
}

func topGPU(machine string, g control.GPU, served bool) top.GPU {
	r := readingOf(g)
	one := top.GPU{
		Key: machine + "/" + g.UUID, Machine: machine, Index: g.Index, Model: strings.TrimPrefix(g.Name, "NVIDIA "), Capacity: g.Capacity, Used: g.Used,
		Utilisation: r.Utilisation, Celsius: r.Temperature, Served: served,
	}
	if r.Milliwatts != nil {
		one.Watts = new(int((*r.Milliwatts + 500) / 1000))
	}
	return one
}

func topShare(l listing, t control.Tenant, s control.Share, entitled float64) top.Share {
	one := top.Share{
		Tenant: t.ID, GPU: l.Machine + "/" + s.UUID, Name: t.Name, User: t.User, Command: strings.Join(t.Command, " "), State: state(t, s), Index: s.Index,
		Limit: s.Limit, Used: usedBy(s), Entitled: entitled, Age: l.Time.Sub(t.Created),
	}
	if s.Time != nil {
		one.Time, one.HeldBack = s.Time.Percent, s.Time.HeldBackPercent
	}
	if s.Refusals != nil {
		one.Refused = s.Refusals.Count
	}
	if s.Turns != nil {
		one.Turns = &top.Turns{Turn: turnOf(s, l.Time), Moved: movedOf(s), Resident: residentOf(s)}
	}
	summed := one
	one.Details = func() []string { return detailsOf(t, s, summed, l.Time) }
	return one
}

// detailsOf are lines about one share.
func detailsOf(t control.Tenant, s control.Share, one top.Share, now time.Time) []string {
	lines := []string{
		fmt.Sprintf("%s, since %s", shareOf(t.Name, t.User), moment(t.Created, now)),
		"command   " + orDash(one.Command),
		fmt.Sprintf("GPU       %d, %s", s.Index, s.UUID),
		fmt.Sprintf("memory    %s of %s, %s of it overhead; at most %s so far", used(s), size(s.Limit), size(s.Overhead), size(s.Peak)),
		fmt.Sprintf("time      %s of the GPU's, entitled to %.0f%%", spent(s.Time), one.Entitled),
		fmt.Sprintf("terms     backend %s, policy %s, cores %s, weight %s, class %s", s.Backend, policyOf(s), coresOf(s), weightOf(s), s.Class),
		fmt.Sprintf("held back %s", heldBackOf(t, s, now)),
		fmt.Sprintf("refused   %s", refusedOf(s)),
		"layer     " + string(t.Layer),
	}
	lines = append(lines, turnLines(s, now)...)
	if t.Remote != nil {
		lines = append(lines, "client    "+t.Remote.Text())
	}
	var processes []string
	for _, p := range s.Process {
		text := pid(p.PID)
		if p.Client > 0 {
			text = fmt.Sprintf("%d (worker %s)", p.Client, text)
		}
		processes = append(processes, text)
	}
	lines = append(lines, "processes "+orDash(strings.Join(processes, ", ")))
	lines = append(lines, mechanismsOf(control.Tenant{Name: t.Name, Shares: []control.Share{s}})...)
	return append(lines, faultsOf(t, now)...)
}

// heldBackOf says how much of its time a share had to wait for GPU time.
func heldBackOf(t control.Tenant, s control.Share, now time.Time) string {
	if s.Time == nil {
		return "-"
	}
	text := strconv.FormatFloat(s.Time.HeldBackPercent, 'f', 0, 64) + "% of the last second"
	if life := now.Sub(t.Created); life > 0 {
		text += fmt.Sprintf(", %.0f%% since it began", 100*min(1, float64(s.Time.HeldBackTotal)/float64(life)))
	}
	return text
}

// refusedOf says which allocations of a share were refused.
func refusedOf(s control.Share) string {
	r := s.Refusals
	if r == nil || r.Count == 0 {
		return "no allocation"
	}
	return fmt.Sprintf("%d allocations, %d of them by the GPU; the largest of %s", r.Count, r.ByGPU, size(r.Largest))
}

// shareKey is a tenant's id and which of its shares is meant.
type shareKey struct {
	tenant string
	share  int
}

// entitlements are how much of its GPU's time each share has a right to, in percent: what it is guaranteed and, of weighted
// online shares, their part of what is guaranteed to nobody.
func entitlements(l control.Listing) map[shareKey]float64 {
	guaranteed, weights := map[string]float64{}, map[string]float64{}
	weighted := func(s control.Share) bool {
		return s.Policy == v1alpha1.PolicyWeighted && s.Class != v1alpha1.ClassOffline
	}
	for _, t := range l.Tenants {
		for _, s := range t.Shares {
			if weighted(s) {
				weights[s.UUID] += float64(s.Weight)
			} else {
				guaranteed[s.UUID] += float64(s.Cores)
			}
		}
	}
	all := map[shareKey]float64{}
	for _, t := range l.Tenants {
		for i, s := range t.Shares {
			all[shareKey{t.ID, i}] = float64(s.Cores)
			if weighted(s) && weights[s.UUID] > 0 {
				all[shareKey{t.ID, i}] = max(0, 100-guaranteed[s.UUID]) * float64(s.Weight) / weights[s.UUID]
			}
		}
	}
	return all
}
