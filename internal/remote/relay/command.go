package relay

import (
	"context"
	"errors"
	"fmt"

	"github.com/divvy-gpu/divvy/internal/remote/wire"
)

// noCommands is why a host is left out of those for a command.
const noCommands = "its file lets this client run no commands: have `divvy serve admit %s --commands` run there"

// Command has run use a connection with the best of the hosts for a command, which is the next best where that refuses, and
// where none has room and the request waits, that which lacks least. What else run returns counts. Run gets the request as the
// host is to be asked.
func (hosts Hosts) Command(ctx context.Context, take wire.Take, tell func(string), run func(conn *wire.Conn, take wire.Take) error) error {
	candidates := hosts.candidates(ctx, take)
	gone := map[int]string{}
	for i, o := range candidates {
		if o.Inventory != nil && !o.Inventory.Commands {
			gone[i] = fmt.Sprintf(noCommands, o.Host.client())
		}
	}
	said := false
	for ctx.Err() == nil {
		c := Choose(candidates, gone, take.Request)
		at, asked := c.At, take
		asked.Wait = at < 0
		if at < 0 && take.Wait {
			at = c.Wait
		}
		if at < 0 {
			return refusedBy(candidates, c)
		}
		if !said {
			said = true
			tellLeftOut(candidates, tell)
		}
		h := candidates[at].Host
		if len(hosts) > 1 {
			tell("the command runs on " + h.Name)
		}
		conn, err := h.dial(ctx)
		if err == nil {
			err = run(conn, asked)
			_ = conn.Close() // it has ended
		}
		refused := new(wire.Refused)
		if err == nil || conn != nil && !errors.As(err, &refused) {
			return err
		}
		gone[at] = err.Error()
	}
	return context.Cause(ctx)
}

// refusedBy is a refusal by all hosts.
func refusedBy(candidates []Candidate, c Choice) error {
	refused := &RefusedByAll{}
	for i, o := range candidates {
		refused.Hosts, refused.Words = append(refused.Hosts, o.Host), append(refused.Words, c.Words[i])
	}
	return refused
}
