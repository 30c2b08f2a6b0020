package tenantdir

import (
	"context"
	"errors"
	"os"

	"github.com/divvy-gpu/divvy/internal/backend"
)

// Recover implements [backend.Observer]. Agents alone write records and config pages,
// so they tell what was granted and to whom. Simulated machines share the root:
// what is found may be another agent's.
func (ts *Tenants) Recover(context.Context) ([]backend.Found, error) {
	own, err := Survey(ts.config.Root, ".", os.Geteuid())
	contained, containedErr := Survey(ts.config.Root, containersName, os.Geteuid())
	for i := range contained {
		contained[i].Tenant.Layer = backend.LayerContainer
	}
	return append(own, contained...), errors.Join(err, containedErr)
}
