package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/doctor"
	"github.com/divvy-gpu/divvy/internal/modes"
	"github.com/divvy-gpu/divvy/internal/mps"
	"github.com/divvy-gpu/divvy/internal/process"
)

// formChecks tell what is wrong with the forms of GPUs, as an agent tells.
func formChecks(f *control.Forms) (checks []doctor.Check) {
	if f == nil {
		return nil
	}
	for _, g := range f.GPUs {
		name := fmt.Sprintf("form of GPU %d", g.Index)
		warn := func(id doctor.ID, next, format string, args ...any) {
			checks = append(checks, doctor.Check{ID: id, Name: name, Status: doctor.Warn, Found: fmt.Sprintf(format, args...), Next: next})
		}
		for _, m := range g.Modes {
			switch {
			case m.Foreign():
				warn("form.changed", again(g),
					"somebody changed its %s: Divvy made it %s, and it is %s", m.Mode, m.Made, m.Value)
			case m.Mode == string(modes.ComputeMode) && m.Made == "" && m.Value != "" && m.Value != "default":
				warn("form.compute-mode", fmt.Sprintf("as root: nvidia-smi -i %d -c DEFAULT", g.Index),
					"its compute mode is %s, which Divvy did not set: only one process at a time can use it, or none", m.Value)
			case m.Mode == string(modes.TimeSlice) && g.Form == v1alpha1.BackendTimeslice && m.Unknown != "":
				warn("form.timeslice", "install the driver's package that has nvidia-smi, of the driver's version", "%s", m.Unknown)
			}
		}
	}
	return checks
}

// mpsChecks tell by which control daemons the GPUs of form mps are served, whose agent keeps them below a directory.
func mpsChecks(f *control.Forms, dir string) (checks []doctor.Check) {
	if f == nil {
		return nil
	}
	for _, g := range f.GPUs {
		if g.Form != v1alpha1.BackendMPS {
			continue
		}
		c := doctor.Check{ID: "mps.daemon", Name: fmt.Sprintf("MPS on GPU %d", g.Index), Status: doctor.OK}
		daemon, err := mps.At(mps.DirsOf(filepath.Join(dir, "mps"), g.UUID).Pipe)
		switch {
		case errors.Is(err, mps.ErrAbsent):
			c.Status, c.Next = doctor.Warn, "the agent starts one within 10 seconds; if it does not, `divvy ls` and the agent's log tell why"
			c.Found = "no control daemon serves it: programs that start there fail"
		case err != nil:
			c.Found = fmt.Sprintf("whether its control daemon runs cannot be seen by %s: %v", process.UserName(os.Getuid()), err)
		default:
			c.Found = fmt.Sprintf("served by %s, with %s", daemon, shareCount(len(g.Shares)))
		}
		checks = append(checks, c)
	}
	return checks
}

// shareCount is a number of shares in words.
func shareCount(n int) string {
	if n == 1 {
		return "1 share"
	}
	return fmt.Sprintf("%d shares", n)
}

// again says how a GPU gets the modes of its form back.
func again(g control.Formed) string {
	switch g.Given {
	case control.GivenByFile:
		return "start the agent again, as root, while nothing uses the GPU: it sets the mode again; or set the mode back"
	case control.GivenByHand, control.GivenByDefault:
		return "give the GPU its form again (`divvy gpu set`, as root), or set the mode back"
	default:
		return "set the mode back; Divvy undoes what it changed after the GPU's last share"
	}
}

// changesLeft are the modes of GPUs that an agent changed that is gone, and kept in its directory.
func changesLeft(dir string) []modes.Change {
	book, err := modes.Open(filepath.Join(dir, modes.FileName), nil, nil)
	if err != nil {
		return nil // another user's, whose agent tells
	}
	return book.Changes()
}

// leftModes tell which modes of GPUs an agent changed that is gone.
func leftModes(dir string, name func(uuid string) string) []doctor.Check {
	var left []string
	for _, c := range changesLeft(dir) {
		left = append(left, fmt.Sprintf("the %s of %s is %s, and was %s", c.Mode, name(c.GPU), c.Last(), c.Before))
	}
	if len(left) == 0 {
		return nil
	}
	return []doctor.Check{{
		ID: "modes.left", Name: "changed modes", Status: doctor.Warn, Found: "an agent that is gone changed modes of GPUs: " + strings.Join(left, "; "),
		Next: "start the agent again, as root: it puts back what nobody needs",
	}}
}
