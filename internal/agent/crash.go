package agent

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// CrashVariable names an environment variable for tests: the steps of Prepare and
// Release, separated by commas, after each of which the agent kills itself once.
// What each is called stands where step is called.
const CrashVariable = "DIVVY_CRASH_AFTER"

// step is the hook that ends the agent as CrashVariable says, nil without it.
func (o Options) step() func(name string) {
	steps := strings.Split(os.Getenv(CrashVariable), ",")
	if len(steps) == 1 && steps[0] == "" {
		return nil
	}
	dir := o.Place.Dir()
	return func(name string) {
		if !slices.Contains(steps, name) {
			return
		}
		// The mark keeps the next agent from ending there, too.
		mark, err := os.OpenFile(filepath.Join(dir, "crashed-after-"+name), os.O_CREATE|os.O_EXCL, 0o600)
		if errors.Is(err, os.ErrExist) {
			return
		}
		if err == nil {
			mark.Close()
		}
		_ = unix.Kill(os.Getpid(), unix.SIGKILL)
		select {} // the signal ends it
	}
}
