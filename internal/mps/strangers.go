package mps

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/divvy-gpu/divvy/internal/process"
)

// pipeVariable tells a daemon and its clients its pipe directory.
const pipeVariable = "CUDA_MPS_PIPE_DIRECTORY="

// Strangers are the control daemons that run on this machine and whose pipe directory is none of Divvy's, as far as this process
// may see where they listen: its own user's, and root all.
func Strangers() (found []Stranger) {
	for _, id := range process.All() {
		proc := fmt.Sprintf("/proc/%d", id.PID)
		command, err := os.ReadFile(filepath.Join(proc, "cmdline"))
		if err != nil || !isControl(command) {
			continue
		}
		environment, err := os.ReadFile(filepath.Join(proc, "environ"))
		if err != nil {
			continue
		}
		pipe := toldPipe(environment)
		if ofDivvy(pipe) {
			continue
		}
		// What asks a daemon is the same program, and does not listen. A container's directory is found through its process.
		for _, at := range []string{pipe, filepath.Join(proc, "root", pipe)} {
			if daemon, err := At(at); err == nil && daemon.PID == id.PID {
				daemon.Pipe = pipe
				found = append(found, daemon)
				break
			}
		}
	}
	slices.SortFunc(found, func(a, b Stranger) int { return strings.Compare(a.Pipe, b.Pipe) })
	return found
}

// isControl reports whether a command line is that of the control program.
func isControl(command []byte) bool {
	words := bytes.SplitN(command, []byte{0}, 3)
	return slices.ContainsFunc(words[:min(len(words), 2)], func(word []byte) bool { // the first one is an interpreter's where there is one
		return filepath.Base(string(word)) == ControlProgram
	})
}

// toldPipe is the pipe directory that a program was told by its environment.
func toldPipe(environment []byte) string {
	for entry := range bytes.SplitSeq(environment, []byte{0}) {
		if pipe, told := bytes.CutPrefix(entry, []byte(pipeVariable)); told && len(pipe) > 0 {
			return string(pipe)
		}
	}
	return DefaultPipe
}

// ofDivvy reports whether a pipe directory is one of [DirsOf] where agents have theirs.
func ofDivvy(pipe string) bool {
	of := filepath.Dir(pipe)
	return filepath.Base(filepath.Dir(of)) == "mps" && DirsOf(filepath.Dir(of), filepath.Base(of)).Pipe == pipe
}
