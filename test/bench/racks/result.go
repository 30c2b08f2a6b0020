package racks

import (
	"errors"
	"fmt"
	"time"

	"github.com/divvy-gpu/divvy/internal/scheduler/gang"
)

// Result counts gangs.
type Result struct {
	// Room is how many gangs have a rack with room for them, Together how many of these are planned in one rack, and None
	// how many have no such rack.
	Room, Together, None int
	// Clock tells the time, and Placed and Refused are how long plans and refusals took by it.
	Clock           func() time.Time
	Placed, Refused []time.Duration
}

// ErrWrong marks plans that break a rule.
var ErrWrong = errors.New("wrong plan")

// Plan plans a gang, and notes how long that took.
func (r *Result) Plan(c *Cluster, g gang.Gang, members []gang.Member) (gang.Plan, *gang.Refusal) {
	begun := r.Clock()
	plan, refusal := gang.Place(c.Inventory, g, members, c)
	took := r.Clock().Sub(begun)
	if refusal == nil {
		r.Placed = append(r.Placed, took)
	} else {
		r.Refused = append(r.Refused, took)
	}
	return plan, refusal
}

// Try plans a gang, whose first level is racks, and compares with the exhaustive search.
func (r *Result) Try(c *Cluster, g gang.Gang, members []gang.Member) error {
	plan, refusal := r.Plan(c, g, members)
	together := refusal == nil && c.Together(&plan)
	if len(c.Fits(members)) == 0 {
		r.None++
		if together {
			return fmt.Errorf("%w: %d members are in one rack, and none has room", ErrWrong, len(members))
		}
		return nil
	}
	r.Room++
	if together {
		r.Together++
	}
	return nil
}
