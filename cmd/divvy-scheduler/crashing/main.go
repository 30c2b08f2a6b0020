// Command crashing is divvy-scheduler that kills itself: once after each step that DIVVY_CRASH_AFTER names, a list with
// commas. A file in the directory DIVVY_CRASH_MARKS for each step that has been used keeps the next scheduler from ending
// there, too. The scheduler's calls of the hook name the steps.
package main

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/cmd/divvy-scheduler/program"
)

func main() {
	os.Exit(program.Main(os.Args[1:], crash))
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
