package agent

import (
	"fmt"
	"reflect"
	"slices"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// asPrepared returns shares as they were prepared where an agent of an earlier version
// took an exclusive one for a share with all memory. It goes on as that.
func (t *tenant) asPrepared(shares []TenancyShare) []TenancyShare {
	if t.Rebuilt || len(shares) != len(t.Tenancy.Shares) {
		return shares
	}
	shares = slices.Clone(shares)
	for i, had := range t.Tenancy.Shares {
		if w := shares[i]; w.Exclusive && !had.alone() && w.UUID == had.UUID && w.Memory == had.Memory {
			shares[i] = had
		}
	}
	return shares
}

// same reports whether a tenant was prepared with these shares.
func (a *Agent) same(t *tenant, shares []TenancyShare) bool {
	if !t.Rebuilt {
		return reflect.DeepEqual(t.Tenancy.Shares, shares)
	}
	// What is known of it is what the backend found, in the backend's units.
	return slices.EqualFunc(t.Shares, shares, func(s share, w TenancyShare) bool {
		return s.UUID == w.UUID && s.Cores == w.Cores && sameInstance(s.Instance, w.Instance) &&
			(w.alone() || w.Config.Backend == v1alpha1.BackendMIG || s.Limit == a.rounded(w.UUID, w.Memory))
	})
}

// rounded is a limit of a GPU in whole units of the backend.
func (a *Agent) rounded(uuid string, limit uint64) uint64 {
	unit := max(a.gpu(uuid).Unit, 1)
	return limit / unit * unit
}

// adopt takes over what a new request says of the tenancy.
func (t *tenant) adopt(wanted Tenancy) {
	t.Tenancy, t.Name = &wanted, wanted.Name
	if !t.Rebuilt {
		return
	}
	t.Rebuilt, t.Shares = false, slices.Clone(t.Shares)
	for i, w := range wanted.Shares {
		t.Shares[i].Whole, t.Shares[i].ShareConfig = w.alone(), w.Config
	}
}

func describeShares(shares []TenancyShare) string {
	text := ""
	for i, s := range shares {
		if i > 0 {
			text += " and "
		}
		if s.alone() {
			text += "all of " + s.UUID
			continue
		}
		if s.Instance != nil {
			text += fmt.Sprintf("MIG instance %s at memory slice %d of %s by backend %s, ", s.Instance.Profile, s.Instance.Start, s.UUID, s.Config.Backend)
		}
		text += fmt.Sprintf("%s, %d cores, %s of %s", v1alpha1.FormatBytes(s.Memory), s.Cores, s.Config.Policy, s.UUID)
	}
	return text
}
