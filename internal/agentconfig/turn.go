package agentconfig

import (
	"go.yaml.in/yaml/v3"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// defaultTurn leaves as much of a GPU to ordinary shares as to turns. On a node of a cluster the room for turns has to be known
// before there are any: the scheduler counts amounts, and cannot count the largest of them.
const defaultTurn = 50

// noTurns is the value of turnMemory with which no share of the cluster's swaps.
const noTurns = "none"

// TurnMemory is how much of each GPU's memory a cluster's node keeps for the turns of swap shares; nothing where it has none.
func (c *Config) TurnMemory() v1alpha1.Memory {
	switch {
	case c != nil && c.noTurns:
		return v1alpha1.Memory{}
	case c == nil || c.turnMemory.IsZero():
		return v1alpha1.Percent(defaultTurn)
	}
	return c.turnMemory
}

func (r *reader) turnMemory(node *yaml.Node, field string) {
	if r.config.noTurns = node.Kind == yaml.ScalarNode && node.Value == noTurns; r.config.noTurns {
		return
	}
	r.config.turnMemory, _ = r.memory(node, field)
	if r.config.turnMemory.IsAll() {
		r.Fault(node, field, "%s is all of a GPU, and swap shares keep a part of theirs there: give less, such as %d%%", node.Value, defaultTurn)
	}
	r.config.places[field] = node.Line
}
