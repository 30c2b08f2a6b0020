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
	// Placed and Refused are how long plans and refusals took.
	Placed, Refused []time.Duration
}

// ErrWrong marks plans that break a rule.
var ErrWrong = errors.New("wrong plan")

// Try plans a gang, whose first level is racks, and compares with the exhaustive search.
func (r *Result) Try(c *Cluster, g gang.Gang, members []gang.Member) error {
	begun := time.Now()
	plan, refusal := gang.Place(c.Inventory, g, members, c)
	took := time.Since(begun)
	if refusal == nil {
		r.Placed = append(r.Placed, took)
	} else {
		r.Refused = append(r.Refused, took)
	}
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
