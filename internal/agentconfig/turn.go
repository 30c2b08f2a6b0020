package agentconfig

import (
	"go.yaml.in/yaml/v3"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// defaultTurn leaves as much of a GPU to ordinary shares as to turns. On a node of a cluster the room for turns has to be known
// before there are any: the scheduler counts amounts, and cannot count the largest of them.
const defaultTurn = 50

// TurnMemory is how much of each GPU's memory a cluster's node keeps for the turns of swap shares.
func (c *Config) TurnMemory() v1alpha1.Memory {
	if c == nil || c.turnMemory.IsZero() {
		return v1alpha1.Percent(defaultTurn)
	}
	return c.turnMemory
}

func (r *reader) turnMemory(node *yaml.Node, field string) {
	r.config.turnMemory, _ = r.memory(node, field)
	if r.config.turnMemory.IsAll() {
		r.Fault(node, field, "%s is all of a GPU, and swap shares keep a part of theirs there: give less, such as %d%%", node.Value, defaultTurn)
	}
	r.config.places[field] = node.Line
}
