package doctor

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/divvy-gpu/divvy/internal/mps"
)

// foreignDaemons tell of MPS control daemons that are not Divvy's: at the place where programs look that are told no other, and of
// those of which this reader may see where they listen.
func (h Host) foreignDaemons() (checks []Check) {
	told := map[int]bool{}
	tell := func(daemon mps.Stranger, who, with string) {
		if told[daemon.PID] {
			return
		}
		told[daemon.PID] = true
		checks = append(checks, Check{
			ID: "mps.foreign", Name: "MPS", Status: Warn, Found: daemon.String() + " is an MPS control daemon that is not Divvy's: " + who + " use GPUs through it",
			Next: "end it before GPUs get backend mps: `echo quit | nvidia-cuda-mps-control` as its user" + with,
		})
	}
	if daemon, err := mps.At(filepath.Join(h.Root, mps.DefaultPipe)); err == nil {
		tell(daemon, "programs without a share", "")
	}
	for _, daemon := range mps.Strangers() {
		tell(daemon, "programs that are told of it", ", with CUDA_MPS_PIPE_DIRECTORY as that directory")
	}
	return checks
}

// LeftDaemons tells of MPS control daemons, and of their directories, that an agent left which had its directory there
// and serves no more.
func LeftDaemons(dir string) (checks []Check) {
	for _, pipe := range mps.Left(filepath.Join(dir, "mps")) {
		c := Check{ID: "mps.left", Name: "MPS", Status: Warn, Next: "start the agent, which takes it over, or ends it where no share needs it: `divvy run` starts your own"}
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
