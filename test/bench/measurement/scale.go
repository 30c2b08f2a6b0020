package measurement

import (
	"flag"
	"fmt"
	"os"
)

// quickNodes is how many nodes a quick measurement has at most.
const quickNodes = 50

// Scale is how much a measurement of a cluster takes: its figures' own sizes, or fewer to see whether something works.
type Scale struct {
	// Nodes replaces each figure's own number of nodes; 0 does not.
	Nodes          int
	Quick, Verbose bool
}

// AddFlags adds the flags that set it.
func (s *Scale) AddFlags(flags *flag.FlagSet) {
	flags.IntVar(&s.Nodes, "nodes", 0, "another number of nodes than each figure's own; writes nothing")
	flags.BoolVar(&s.Quick, "quick", false, fmt.Sprintf("%d nodes and one short round, to see whether something works; writes nothing", quickNodes))
	flags.BoolVar(&s.Verbose, "v", false, "tell what happens")
}

// Whole reports whether all of it is measured, so that its figures may be kept.
func (s Scale) Whole() bool { return !s.Quick && s.Nodes == 0 }

// NodesOr is how many nodes a figure has.
func (s Scale) NodesOr(own int) int {
	switch {
	case s.Nodes > 0:
		return s.Nodes
	case s.Quick:
		return min(own, quickNodes)
	}
	return own
}

// Rounds is how often a figure is taken.
func (s Scale) Rounds() int {
	if s.Quick {
		return 1
	}
	return 5
}

// Few is how many pods a round has.
func (s Scale) Few(own int) int {
	if s.Quick {
		return own / 10
	}
	return own
}

// Say tells what happens to who wants to know.
func (s Scale) Say(format string, args ...any) {
	if s.Verbose {
		fmt.Fprintf(os.Stderr, format+"\n", args...)
	}
}

// Target is the make target that takes figures.
type Target string

// More is a row of one case, of which more is better. A goal of 0 stands for none.
func (t Target) More(id, name, unit string, goal float64, runs []float64, note string) Row {
	r := t.row(id, name, unit, goal, Higher, runs, note)
	if goal == 0 {
		r.Goal = nil
	}
	return r
}

// Less is a row of one case, of which less is better. A goal below 0 stands for none.
func (t Target) Less(id, name, unit string, goal float64, runs []float64, note string) Row {
	r := t.row(id, name, unit, goal, Lower, runs, note)
	if goal < 0 {
		r.Goal = nil
	}
	return r
}

func (t Target) row(id, name, unit string, goal float64, better Direction, runs []float64, note string) Row {
	r := Of(id, unit, goal, better, fmt.Sprintf("make %s ONLY=%s", t, id), runs...)
	r.Case, r.Note = name, note
	return r
}

// Middle is the median of some runs, of which there is at least one.
func Middle(runs []float64) float64 {
	median, _ := Summary(runs, Higher)
	return median
}
