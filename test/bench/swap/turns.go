package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/divvy-gpu/divvy/internal/residency"
)

const (
	mib    = uint64(1) << 20
	second = uint64(1_000_000_000)
	// tick is how often the law is asked: as often as an agent that has something to do asks it.
	tick = second / 100
	// areas are the allocations that a program's memory consists of.
	areas = 60
	// stampCost is what a stamp takes on the played machine, ns.
	stampCost = 500
	// queued is how many steps a program gives the driver ahead.
	queued = 2
)

// program is a share on the played machine. It goes through all of its memory in each step.
type program struct {
	name   string
	weight int
	area   uint64 // MiB of each area
	step   uint64 // ns of GPU time
	left   int    // steps to be given to the driver

	given     uint64 // ns of work
	moving    bool   // its memory, on command
	stamps    int    // that follow such moves
	order     residency.Order
	executed  uint64 // at the last decision
	finished  uint64 // when it was seen to have ended
	residents int    // how often its gate opened
}

func (p *program) bytes() uint64 { return p.area * areas * mib }

// stage is the played machine with its programs, and the law over them.
type stage struct {
	*player
	law      residency.Law
	gpu      residency.GPU
	programs []*program
	free     bool // no law: all gates are open
}

// add has a program arrive.
func (s *stage) add(p *program) error {
	s.programs = append(s.programs, p)
	if err := s.say("client %s", p.name); err != nil {
		return err
	}
	for i := range areas {
		if err := s.say("managed %s %d %d", p.name, i, p.area); err != nil {
			return err
		}
	}
	p.order.State = residency.Resident
	return nil
}

// run lets time pass until all programs have ended, or until is true.
func (s *stage) run(ctx context.Context, until func() bool) error {
	if !s.free { // memory is there before the first work
		if err := s.decide(); err != nil {
			return err
		}
	}
	for ctx.Err() == nil {
		going := false
		for _, p := range s.programs {
			if err := s.feed(p); err != nil {
				return err
			}
			going = going || p.finished == 0
		}
		if !going || until != nil && until() {
			return nil
		}
		err := s.say("advance %d", tick)
		if err == nil && !s.free {
			err = errors.Join(s.say("pages"), s.decide())
		}
		if err != nil {
			return err
		}
	}
	return ctx.Err()
}

// outstanding is the work that the driver has of a program.
func (s *stage) outstanding(p *program) uint64 { return p.given - s.executed[p.name] }

// feed gives the driver a program's next steps, if its gate is open.
func (s *stage) feed(p *program) error {
	for p.left > 0 && p.order.State == residency.Resident && s.outstanding(p) < queued*p.step {
		for i := range areas {
			if err := s.say("sweep %s %d %d writes 1", p.name, i, p.step/areas); err != nil {
				return err
			}
		}
		p.given += p.step / areas * areas
		p.left--
	}
	if p.left == 0 && s.outstanding(p) == 0 && p.finished == 0 {
		p.finished = s.now
	}
	return nil
}

// decide asks the law and carries out what it orders, as a share's library does.
func (s *stage) decide() error {
	var shares []residency.Share
	for _, p := range s.programs {
		if err := s.carry(p); err != nil {
			return err
		}
		busy := s.outstanding(p) > 0
		shares = append(shares, residency.Share{
			Key: p.name, Weight: p.weight, Bytes: []uint64{p.bytes()}, There: []uint64{s.pages[p.name].resident},
			Waits: p.left > 0 && p.order.State != residency.Resident,
			Works: !p.moving && (busy || s.executed[p.name] != p.executed),
			Done:  p.moving && s.reached[p.name] == p.stamps,
		})
		p.executed = s.executed[p.name]
	}
	orders, _ := s.law.Decide(s.now, []residency.GPU{s.gpu}, shares)
	for i, p := range s.programs {
		if orders[i].State != p.order.State {
			p.moving = false
			if orders[i].State == residency.Resident {
				p.residents++
			}
		}
		p.order = orders[i]
	}
	return nil
}

// carry begins to move the memory of a program that has to: it brings all when it enters; when it leaves, it gives what is
// ordered once its work has ended.
func (s *stage) carry(p *program) error {
	if p.moving || p.order.State != residency.Entering && (p.order.State != residency.Leaving || s.outstanding(p) > 0) {
		return nil
	}
	p.moving = true
	host, bytes := "", p.bytes()
	if p.order.State == residency.Leaving {
		host, bytes = " host 1", p.order.Give[0]
	}
	for i := uint64(0); i*p.area*mib < bytes; i++ {
		if err := s.say("prefetch %s %d%s", p.name, i, host); err != nil {
			return err
		}
		p.given++ // a prefetch counts as a nanosecond
	}
	p.stamps++
	if err := s.say("stamp %s", p.name); err != nil {
		return fmt.Errorf("wait for moved memory: %w", err)
	}
	p.given += stampCost
	return nil
}
