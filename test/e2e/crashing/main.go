// Command crashing is divvy-cluster with an agent that kills itself: once after each
// step that DIVVY_CRASH_AFTER names, a list with commas. A file in the directory
// DIVVY_CRASH_MARKS for each step that has been used keeps the next agent from
// ending there, too. The agent's calls of the hook name the steps.
//
// With DIVVY_MODEL, the root of a modelled host, its agent gives devices of that host to virtual machines.
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/cli/cluster"
)

func main() {
	os.Exit(run(os.Args[1:]))
}

func run(args []string) int {
	if len(args) == 2 && args[0] == modelCommand {
		if err := kernel(args[1], os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return 0
	}
	machine, err := modelled()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return cluster.Main(args, cluster.Hooks{Step: crash, Machine: machine}, os.Stdout, os.Stderr)
}

// crash kills this process after a step, where the environment names it.
func crash(step string) {
	if !slices.Contains(strings.Split(os.Getenv("DIVVY_CRASH_AFTER"), ","), step) {
		return
	}
	path := filepath.Join(os.Getenv("DIVVY_CRASH_MARKS"), "crashed-after-"+step)
	mark, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, os.ErrExist) {
		return
	}
	if err == nil {
		mark.Close()
	}
	_ = unix.Kill(os.Getpid(), unix.SIGKILL)
	select {} // the signal ends it
}
