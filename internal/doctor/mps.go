package doctor

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/divvy-gpu/divvy/internal/mps"
)

// foreignDaemon tells of an MPS control daemon at the place where programs look that are told no other. Divvy's are elsewhere.
func (h Host) foreignDaemon() []Check {
	daemon, err := mps.At(filepath.Join(h.Root, mps.DefaultPipe))
	if err != nil {
		return nil
	}
	return []Check{{
		Name: "MPS", Status: Warn, Found: daemon.String() + " is an MPS control daemon that is not Divvy's: programs without a share use GPUs through it",
		Next: "end it before GPUs get backend mps: `echo quit | nvidia-cuda-mps-control` as its user",
	}}
}

// LeftDaemons tells of MPS control daemons, and of their directories, that an agent left which had its directory there
// and serves no more.
func LeftDaemons(dir string) (checks []Check) {
	for _, pipe := range mps.Left(filepath.Join(dir, "mps")) {
		c := Check{Name: "MPS", Status: Warn, Next: "start the agent, which takes it over, or ends it where no share needs it: `divvy run` starts your own"}
		if daemon, err := mps.At(pipe); err == nil {
			c.Found = fmt.Sprintf("%s is the MPS control daemon of an agent that does not run", daemon)
		} else {
			c.Found = pipe + " is left of an MPS control daemon that does not run"
			if info, err := os.Lstat(pipe); err == nil && !info.IsDir() {
				c.Found, c.Next = pipe+" is no directory", "remove it: an agent makes one"
			}
		}
		checks = append(checks, c)
	}
	return checks
}
