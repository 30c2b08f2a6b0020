package agent

import (
	"slices"
	"strconv"
	"time"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/pacing"
	"github.com/divvy-gpu/divvy/internal/page"
)

// debt is GPU time that shares which have ended used and did not pay. The next share of
// the same debtor on the same GPU takes it over. Until then it is paid at the rate of the
// shares that made it.
type debt struct {
	// Debtor is the user, or on a cluster the namespace.
	Debtor string `json:"debtor"`
	UUID   string `json:"uuid"`
	// Owed is ns of GPU time at the moment At; Rate is in parts per million.
	Owed uint64    `json:"owed"`
	Rate uint32    `json:"rate"`
	At   time.Time `json:"at"`
}

const (
	// debtKept is for how long a debt is remembered.
	debtKept = time.Hour
	// debtLeast is the least that is worth remembering, ns.
	debtLeast = uint64(time.Millisecond)
)

// at is what is left of a debt. A clock that was set back pays nothing.
func (d *debt) at(now time.Time) uint64 {
	passed := max(now.Sub(d.At), 0)
	if passed >= debtKept {
		return 0
	}
	return d.Owed - min(d.Owed, uint64(passed)/page.Whole*uint64(d.Rate)+uint64(passed)%page.Whole*uint64(d.Rate)/page.Whole)
}

// debts has at most one entry for each debtor, GPU and rate.
type debts []debt

// left drops what was paid or is too old, and returns the rest.
func (all *debts) left(now time.Time) debts {
	*all = slices.DeleteFunc(*all, func(d debt) bool { return d.at(now) < debtLeast })
	return slices.Clone(*all)
}

// add remembers a debt.
func (all *debts) add(now time.Time, d debt) {
	for i := range *all {
		if old := &(*all)[i]; old.Debtor == d.Debtor && old.UUID == d.UUID && old.Rate == d.Rate {
			old.Owed, old.At = min(old.at(now)+d.at(now), page.MostOwed), now
			return
		}
	}
	*all = append(*all, d)
}

// take hands over all that a debtor owes on a GPU.
func (all *debts) take(now time.Time, debtor, uuid string) (owed uint64) {
	*all = slices.DeleteFunc(*all, func(d debt) bool {
		if d.Debtor != debtor || d.UUID != uuid {
			return false
		}
		owed = min(owed+d.at(now), page.MostOwed)
		return true
	})
	return owed
}

// debtor is whom a tenant's debts are remembered of.
func (r *record) debtor() string {
	switch {
	case r.Tenancy == nil:
		return "user " + strconv.Itoa(r.UID)
	case r.Tenancy.Namespace == "":
		return "tenant " + r.ID
	}
	return "namespace " + r.Tenancy.Namespace
}

// takeDebts has a tenant that is about to be made take over what its user owes. A tenant
// whose GPU time nobody divides could not pay. Agent.mu is held.
func (a *Agent) takeDebts(t *tenant) {
	if t.backend().Form() != v1alpha1.BackendSlice {
		return
	}
	for i := range t.Shares {
		t.Shares[i].Owed = a.debts.take(a.config.Now(), t.debtor(), t.Shares[i].place())
	}
}

// place is the UUID of the GPU, or of the MIG instance, whose time the share divides.
func (s *share) place() string {
	if s.Instance != nil && s.Instance.UUID != "" {
		return s.Instance.UUID
	}
	return s.UUID
}

// settle finds out what a tenant owes whose last process has ended, before its pages go.
func (a *Agent) settle(t *tenant) {
	wanted := a.wanted(t)
	source, ok := a.makerOf(wanted).(pacing.Source)
	if !ok {
		return
	}
	owes := a.pacer.Settle(pacing.Member{Tenant: wanted, Source: source})
	a.mu.Lock()
	defer a.mu.Unlock()
	if owes != nil {
		t.owes = owes
	}
}

// mostOwed is the most that a share can owe at the end of its life which took over so much. A GPU
// works no longer for a share than that lives: what was charged beyond is an estimate of work that
// ended with its processes, such as that of a grid which would have run for hours.
func mostOwed(inherited uint64, life time.Duration) uint64 {
	return inherited + uint64(max(life, 0))
}

// leaveDebts remembers what a tenant owes that ends. One that was never made, or whose
// pages are gone, owes what it took over. Agent.mu is held.
func (a *Agent) leaveDebts(t *tenant) {
	now := a.config.Now()
	for i, s := range t.Shares {
		d := debt{Debtor: t.debtor(), UUID: s.place(), Owed: s.Owed, Rate: uint32(max(s.Cores, 1)) * (page.Whole / 100), At: t.Created}
		if i < len(t.owes) {
			d.Owed, d.Rate, d.At = min(t.owes[i].Owed, mostOwed(s.Owed, now.Sub(t.Created))), t.owes[i].Rate, now
		}
		if d.at(now) >= debtLeast {
			a.debts.add(now, d)
		}
	}
}
