package tenantdir

import (
	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/page"
)

// OpenTurns opens the pages of a tenant with swap shares for who has them take turns.
func (*Tenants) OpenTurns(t backend.Tenant) (*page.Turns, error) {
	d := Dir(t.Dir)
	config, _ := d.heard()
	return page.OpenTurns(config, d.State(), len(t.Shares))
}
