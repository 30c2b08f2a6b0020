package mps

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/divvy-gpu/divvy/internal/mps"
)

// ErrProgram says that NVIDIA's programs for MPS are not installed.
var ErrProgram = errors.New("MPS is not installed")

// Program finds the control daemon's program in the folders of the driver's programs. The caller's PATH is not asked: it
// may be a user's, and the daemon serves others.
func Program(folders []string) (string, error) {
	for _, folder := range folders {
		path := filepath.Join(folder, mps.ControlProgram)
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o111 != 0 {
			return path, nil
		}
	}
	return "", fmt.Errorf("%w: no %s in %v: install the driver's package that has it, such as nvidia-cuda-mps or nvidia-compute-utils, or use another backend",
		ErrProgram, mps.ControlProgram, folders)
}

// least is the compute capability from which MPS lets processes run side by side with address spaces of their own.
const least = 7

// unsuited is why no GPU of a compute capability, such as 7.5, can have shares of MPS, "" where it can or that is unknown.
func unsuited(capability string) string {
	if n := major(capability); capability != "" && n < least {
		return fmt.Sprintf("its compute capability is %s, and MPS isolates the memory of programs from %d.0 on", capability, least)
	}
	return ""
}
