package shipped

import (
	"debug/elf"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Loaded are the built files that are loaded in other people's containers, or run there or on their hosts.
var Loaded = []string{
	"bin/divvy", "bin/gpubench",
	"lib/divvy/libcuda.so.1", "lib/divvy/libnvidia-ml.so.1",
	"lib/remote/libdivvy-remote.so.1", "libexec/divvy/divvy-worker",
	"libexec/divvy/divvy-enter", "libexec/divvy/divvy-probe", "libexec/divvy/divvy-checkpoint", "libexec/divvy/divvy-reap", "libexec/divvy/divvy-cover",
	"lib/simgpu/libcuda.so.1", "lib/simgpu/libnvidia-ml.so.1", "lib/simgpu/nvidia-cuda-mps-control",
	"lib/simgpu/nvidia-cuda-mps-server", "lib/simgpu/nvidia-smi",
	"libexec/divvy/simgpuctl",
}

// Need is a name that a file needs of the C library, and the numbers of its version.
type Need struct {
	Name    string
	Version []int
}

// Needs are the names that a file needs of the C library.
func Needs(path string) ([]Need, error) {
	file, err := elf.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read what a file needs: %w", err)
	}
	symbols, err := file.ImportedSymbols()
	if err := errors.Join(err, file.Close()); err != nil && !errors.Is(err, elf.ErrNoSymbols) {
		return nil, fmt.Errorf("read what %s needs: %w", path, err)
	}
	var needs []Need
	for _, symbol := range symbols {
		if version := libcVersion(symbol.Version); version != nil {
			needs = append(needs, Need{symbol.Name, version})
		}
	}
	return needs, nil
}

// libcVersion reads a name's version, such as GLIBC_2.2.5; what is not the C library's has none.
func libcVersion(version string) []int {
	text, found := strings.CutPrefix(version, "GLIBC_")
	if !found {
		return nil
	}
	var numbers []int
	for part := range strings.SplitSeq(text, ".") {
		number, err := strconv.Atoi(part)
		if err != nil {
			return []int{1 << 30} // GLIBC_PRIVATE belongs to one release alone
		}
		numbers = append(numbers, number)
	}
	return numbers
}
