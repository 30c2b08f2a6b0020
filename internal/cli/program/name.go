package program

import (
	"os"
	"path/filepath"
	"strings"
)

// Plugin is the file name of the link by which kubectl finds the program, as its command `divvy`.
const Plugin = "kubectl-divvy"

// plain is how the program is called otherwise.
const plain = "divvy"

// Called is the file name under which the program was called, which what it becomes is called by too.
func Called() string {
	if len(os.Args) > 0 && filepath.Base(os.Args[0]) == Plugin {
		return Plugin
	}
	return plain
}

// Name is how the caller calls the program: help and errors name it so.
func Name() string { return strings.Replace(Called(), "-", " ", 1) }

// named are examples as the caller would type them.
func named(examples string) string {
	if Name() == plain {
		return examples
	}
	lines := strings.Split(examples, "\n")
	for i, line := range lines {
		if rest, ours := strings.CutPrefix(line, "  "+plain+" "); ours {
			lines[i] = "  " + Name() + " " + rest
		}
	}
	return strings.Join(lines, "\n")
}
