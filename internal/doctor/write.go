package doctor

import (
	"fmt"
	"strings"
)

// Write writes checks as a list for people.
func Write(w *strings.Builder, checks []Check) {
	for _, c := range checks {
		fmt.Fprintf(w, "%-4s  %s: %s\n", c.Status, c.Name, c.Found)
		if c.Next != "" {
			fmt.Fprintf(w, "      → %s\n", c.Next)
		}
		for _, line := range c.Commands {
			fmt.Fprintf(w, "        %s\n", line)
		}
	}
}
