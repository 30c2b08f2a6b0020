package agentconfig

import (
	"math"

	"go.yaml.in/yaml/v3"
)

// Commands is what of a share's command line is kept in the history.
type Commands string

// What can be kept.
const (
	CommandsWhole   Commands = "whole" // its beginning
	CommandsProgram Commands = "program"
	CommandsNone    Commands = "none"
)

// History says what is kept of what shares did.
type History struct {
	// Off keeps nothing.
	Off bool
	// Days is for how long, and Bytes how much at most; 0 where the file does not say.
	Days  int
	Bytes uint64
	// Commands is empty for [CommandsWhole].
	Commands Commands
}

// Bounds of a history: as many days as ten years have, and room for the records of a few shares.
const (
	mostDays    = 3660
	leastOfDays = 1 << 20
)

// History is what is kept of what shares did.
func (c *Config) History() History {
	if c == nil {
		return History{}
	}
	return c.history
}

func (r *reader) history(node *yaml.Node, field string) {
	h := &r.config.history
	r.Fields(node, field, known{
		"record": func(n *yaml.Node, f string) {
			var record bool
			if n.Kind != yaml.ScalarNode || n.Decode(&record) != nil {
				r.Fault(n, f, "must be true or false")
			}
			h.Off = !record
		},
		"days": func(n *yaml.Node, f string) { h.Days = r.number(n, f, mostDays) },
		"size": func(n *yaml.Node, f string) {
			if h.Bytes = r.bytes(n, f); h.Bytes > 0 && h.Bytes < leastOfDays || h.Bytes > math.MaxInt64 {
				r.Fault(n, f, "%q: give 1Mi or more", n.Value)
			}
		},
		"commands": func(n *yaml.Node, f string) {
			h.Commands = choice(r, n, f, CommandsWhole, CommandsProgram, CommandsNone)
		},
	})
}
