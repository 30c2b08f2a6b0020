package relay

import (
	"context"
	"errors"
	"fmt"

	"github.com/divvy-gpu/divvy/internal/remote/wire"
)

// noCommands is why a host is left out of those for a command.
const noCommands = "its file lets this client run no commands: have `divvy serve admit %s --commands` run there"

// Command has run use a connection with the best of the hosts for a command, see [inTurn]. What run returns counts, unless the
// host refuses. Run gets the request as the host is to be asked.
func (hosts Hosts) Command(ctx context.Context, take wire.Take, tell func(string), run func(conn *wire.Conn, take wire.Take) error) error {
	candidates := hosts.candidates(ctx, take)
	gone := map[int]string{}
	for i, o := range candidates {
		if o.Inventory != nil && !o.Inventory.Commands {
			gone[i] = fmt.Sprintf(noCommands, o.Host.client())
		}
	}
	return inTurn(ctx, candidates, gone, take, tell, func(o Candidate, asked wire.Take) (over bool, err error) {
		if len(hosts) > 1 {
			tell("the command runs on " + o.Host.Name)
		}
		conn, err := o.Host.dial(ctx)
		if err != nil {
			return false, err
		}
		err = run(conn, asked)
		_ = conn.Close() // it has ended
		refused := new(wire.Refused)
		return err == nil || !errors.As(err, &refused), err
	})
}
