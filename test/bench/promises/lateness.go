package main

import (
	"errors"
	"slices"
	"time"

	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/page"
	"github.com/divvy-gpu/divvy/internal/tenantdir"
)

// hunger is for how long a share that waited counts as wanting more. A wait after a longer
// time is a change that the arbiter has to follow.
const hunger = 20 * time.Millisecond

// lateness watches tenants' pages from outside: when a launch waits for the first time, and
// when a budget appears that was decided after that.
type lateness struct {
	shares []waiting
	late   []float64 // ms
}

// waiting is what is known of one share.
type waiting struct {
	times   *page.TimeReader
	budgets *page.Budgets
	wanted  uint64 // as last read
	since   uint64 // of the first wait that no decision has followed yet, 0 without any
}

func newLateness(tenants []control.Tenant) (*lateness, error) {
	l := &lateness{}
	for _, t := range tenants {
		dir := tenantdir.Dir(t.Dir)
		times, err := page.OpenTimes(dir.State(), len(t.Shares))
		if err != nil {
			return nil, errors.Join(err, l.close())
		}
		budgets, err := page.OpenBudgets(dir.Config())
		if err != nil {
			return nil, errors.Join(err, times.Close(), l.close())
		}
		l.shares = append(l.shares, waiting{times: times, budgets: budgets})
	}
	return l, nil
}

func (l *lateness) close() (err error) {
	for _, s := range l.shares {
		err = errors.Join(err, s.times.Close(), s.budgets.Close())
	}
	return err
}

// look compares every share's last wait with its budget. What it finds is late by up to the
// time between two looks.
func (l *lateness) look() error {
	for i := range l.shares {
		s := &l.shares[i]
		budget, err := s.budgets.Read(0)
		if err != nil {
			return err
		}
		now, err := monotonic()
		if err != nil {
			return err
		}
		if s.since != 0 && budget.Tick >= s.since {
			l.late = append(l.late, float64(now-s.since)/1e6)
			s.since = 0
		}
		times, err := s.times.Read(0)
		if err != nil {
			return err
		}
		wanted := times.Bucket.Wanted
		if s.wanted != 0 && wanted > s.wanted+uint64(hunger) && s.since == 0 {
			s.since = wanted
		}
		s.wanted = wanted
	}
	return nil
}

// p99 is the lateness that one decision in a hundred exceeds, in ms. A wait that no decision
// has followed until now, CLOCK_MONOTONIC in ns, is late for as long as it lasts.
func (l *lateness) p99(now uint64) (float64, error) {
	all := slices.Clone(l.late)
	for _, s := range l.shares {
		if s.since != 0 {
			all = append(all, float64(now-s.since)/1e6)
		}
	}
	if len(all) == 0 {
		return 0, errors.New("no share began to wait, so nothing was decided")
	}
	slices.Sort(all)
	return all[(len(all)*99-1)/100], nil
}
