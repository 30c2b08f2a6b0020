package shipped

import (
	"debug/elf"
	"errors"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/install/installtest"
)

// newestLibc is the newest version of the C library's names that a file may need which is loaded in
// other people's containers: CentOS 7 has that one.
var newestLibc = []int{2, 17}

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

func TestFilesNeedAnOldLibc(t *testing.T) {
	tree := installtest.Tree(t)
	for _, name := range []string{
		"lib/divvy/libcuda.so.1", "lib/divvy/libnvidia-ml.so.1",
		"libexec/divvy/divvy-enter", "libexec/divvy/divvy-probe", "libexec/divvy/divvy-reap", "libexec/divvy/divvy-cover",
		"lib/simgpu/libcuda.so.1", "lib/simgpu/libnvidia-ml.so.1", "libexec/divvy/simgpuctl",
	} {
		file, err := elf.Open(filepath.Join(string(tree), name))
		if err != nil {
			t.Fatal(err)
		}
		symbols, err := file.ImportedSymbols()
		if err := errors.Join(err, file.Close()); err != nil && !errors.Is(err, elf.ErrNoSymbols) {
			t.Fatal(err)
		}
		if len(symbols) == 0 && !strings.HasSuffix(name, "/divvy-cover") {
			t.Errorf("%s needs nothing of the C library: this test finds nothing in it", name)
		}
		for _, symbol := range symbols {
			if version := libcVersion(symbol.Version); slices.Compare(version, newestLibc) > 0 {
				t.Errorf("%s needs %s of %s", name, symbol.Name, symbol.Version)
			}
		}
	}
}
