package alloc

import (
	"fmt"
	"strings"
)

// Choice says why an assignment was chosen among all that fit: its key under the
// policy was the smallest.
type Choice struct {
	policy *Policy
	key    uint64
}

// describer is implemented by terms whose scores need a unit.
type describer interface{ describe(score uint64) string }

// String explains the choice term by term.
func (c Choice) String() string {
	if c.policy == nil {
		return ""
	}
	var parts []string
	shift := nodeBits
	for _, t := range c.policy.Terms {
		shift += t.bits()
	}
	for _, t := range c.policy.Terms {
		shift -= t.bits()
		score := c.key >> shift & (1<<t.bits() - 1)
		if d, ok := t.(describer); ok {
			parts = append(parts, d.describe(score))
		} else {
			parts = append(parts, fmt.Sprintf("%s %d", t.Name(), score))
		}
	}
	return fmt.Sprintf("least by policy %s: %s; the first node of those alike", c.policy.Name, strings.Join(parts, ", then "))
}

func (t Capacity) describe(score uint64) string {
	return fmt.Sprintf("%s %.2f GPUs", t.Name(), float64(int64(score)-capacityZero)/1000)
}
