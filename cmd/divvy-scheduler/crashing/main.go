// Command crashing is divvy-scheduler that does something to itself, once after each step of a list with commas: it kills
// itself after those that DIVVY_CRASH_AFTER names, and stops itself after those of DIVVY_STOP_AFTER, until somebody has it go
// on. A file in the directory DIVVY_CRASH_MARKS for each step that has been used, which holds the process's number, keeps the
// next scheduler from the same. The scheduler's calls of the hook name the steps.
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/cmd/divvy-scheduler/program"
)

func main() {
	os.Exit(program.Main(os.Args[1:], after))
}

// after kills or stops this process after a step, where the environment names it.
func after(step string) {
	switch {
	case named("DIVVY_CRASH_AFTER", step) && mark("crashed-after-"+step):
		_ = unix.Kill(os.Getpid(), unix.SIGKILL)
		select {} // the signal ends it
	case named("DIVVY_STOP_AFTER", step) && mark("stopped-after-"+step):
		// A signal to this very thread stops it before it does anything else.
		runtime.LockOSThread()
		_ = unix.Tgkill(os.Getpid(), unix.Gettid(), unix.SIGSTOP)
		runtime.UnlockOSThread()
	}
}

func named(variable, step string) bool {
	return slices.Contains(strings.Split(os.Getenv(variable), ","), step)
}

// mark makes a mark, and reports false where there was one.
func mark(name string) bool {
	file, err := os.OpenFile(filepath.Join(os.Getenv("DIVVY_CRASH_MARKS"), name), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if errors.Is(err, os.ErrExist) {
		return false
	}
	if err == nil {
		fmt.Fprint(file, os.Getpid()) //nolint:errcheck // a test that misses the number fails
		file.Close()
	}
	return true
}
