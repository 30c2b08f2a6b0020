package pacing

import (
	"errors"
	"io/fs"
	"os"
	"strconv"
	"testing"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/page"
	"github.com/divvy-gpu/divvy/internal/tenantdir"
)

// beats counts the pages a tenant gives way to on its first GPU, and checks that
// each is a pulse page of one of the others.
func beats(t *testing.T, d *division, m Member, others ...Member) int {
	t.Helper()
	count := 0
	pulses := d.budget(m, 0).Pulses
	for k := range page.Pulses {
		path := tenantdir.Dir(m.Dir).Beat(0, k)
		_, err := os.Stat(path)
		if set := pulses&(1<<k) != 0; set != (err == nil) {
			t.Errorf("page %d: bit %v, file %v", k, set, err)
		}
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		count++
		known := false
		for _, other := range others {
			same, err := page.SameFile(tenantdir.Dir(other.Dir).Pulse(0), path)
			known = known || err == nil && same
		}
		if !known {
			t.Errorf("page %d is of nobody who is there", k)
		}
	}
	return count
}

func TestPulsesReachWhoGivesWay(t *testing.T) {
	const online, offline = v1alpha1.ClassOnline, v1alpha1.ClassOffline
	d := newDivision(t)
	first := d.add("first", shareOf(v1alpha1.PolicyWeighted, 0, 1, online))
	d.pass(1, nil)
	if _, err := os.Stat(tenantdir.Dir(first.Dir).Pulse(0)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a pulse that nobody reads: %v", err)
	}
	batch := d.add("batch", shareOf(v1alpha1.PolicyWeighted, 0, 1, offline))
	second := d.add("second", shareOf(v1alpha1.PolicyFixed, 10, 1, online))
	d.pass(1, nil)
	if n := beats(t, d, batch, first, second); n != 2 {
		t.Errorf("%d pages, want 2", n)
	}
	for m, want := range map[string]uint32{"first": page.BudgetBeat, "second": page.BudgetBeat, "batch": page.BudgetYield} {
		for _, one := range d.all {
			if got := d.budget(one, 0).Flags; one.ID == m && got&(page.BudgetBeat|page.BudgetYield) != want {
				t.Errorf("%s: flags %d", m, got)
			}
		}
	}
	changes := d.budget(batch, 0).PulseChanges
	d.pass(3, nil)
	if got := d.budget(batch, 0).PulseChanges; got != changes {
		t.Errorf("changes %d, then %d, although nothing changed", changes, got)
	}
	d.restart()
	d.pass(1, nil)
	if got := d.budget(batch, 0).PulseChanges; got != changes || beats(t, d, batch, first, second) != 2 {
		t.Errorf("changes %d, then %d under the next agent", changes, got)
	}
	d.remove("first")
	d.pass(1, nil)
	if n := beats(t, d, batch, second); n != 1 || d.budget(batch, 0).PulseChanges == changes {
		t.Errorf("%d pages, want 1", n)
	}
	d.all[0].Shares[0].Class = online
	d.publish()
	d.pass(1, nil)
	if n := beats(t, d, batch); n != 0 {
		t.Errorf("%d pages of an online share", n)
	}
}

// A neighbour that ends while no agent runs leaves no page behind.
func TestPulsesAfterAnAbsence(t *testing.T) {
	d := newDivision(t)
	batch := d.add("batch", shareOf(v1alpha1.PolicyWeighted, 0, 1, v1alpha1.ClassOffline))
	d.add("gone", shareOf(v1alpha1.PolicyWeighted, 0, 1, v1alpha1.ClassOnline))
	stays := d.add("stays", shareOf(v1alpha1.PolicyWeighted, 0, 1, v1alpha1.ClassOnline))
	d.pass(1, nil)
	d.remove("gone")
	d.restart()
	d.pass(1, nil)
	if n := beats(t, d, batch, stays); n != 1 {
		t.Errorf("%d pages, want 1", n)
	}
}

func TestMoreOnlineSharesThanPulses(t *testing.T) {
	d := newDivision(t)
	batch := d.add("batch", shareOf(v1alpha1.PolicyWeighted, 0, 1, v1alpha1.ClassOffline))
	var online []Member
	for i := range page.Pulses + 3 {
		online = append(online, d.add("o"+strconv.Itoa(i), shareOf(v1alpha1.PolicyWeighted, 0, 1, v1alpha1.ClassOnline)))
	}
	d.pass(1, nil)
	if n := beats(t, d, batch, online...); n != page.Pulses {
		t.Errorf("%d pages", n)
	}
}

// What could not be linked is linked with the next change, whoever's it is.
func TestPulsesAreLinkedAgain(t *testing.T) {
	d := newDivision(t)
	online := d.add("online", shareOf(v1alpha1.PolicyWeighted, 0, 1, v1alpha1.ClassOnline))
	batch := d.add("batch", shareOf(v1alpha1.PolicyWeighted, 0, 1, v1alpha1.ClassOffline))
	inTheWay := tenantdir.Dir(online.Dir).Pulse(0)
	if err := os.MkdirAll(inTheWay+"/full", 0o700); err != nil {
		t.Fatal(err)
	}
	d.pass(1, nil)
	if n := beats(t, d, batch, online); n != 0 {
		t.Fatalf("%d pages though none can be made", n)
	}
	if err := os.RemoveAll(inTheWay); err != nil {
		t.Fatal(err)
	}
	elsewhere := shareOf(v1alpha1.PolicyWeighted, 0, 1, v1alpha1.ClassOnline)
	elsewhere.GPU.UUID = otherID
	d.add("elsewhere", elsewhere)
	d.pass(1, nil)
	if n := beats(t, d, batch, online); n != 1 {
		t.Errorf("%d pages, want 1", n)
	}
}
