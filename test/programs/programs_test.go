package programs

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/install/installtest"
)

// setting skips the test where the programs are not promised: they are downloaded.
func setting(t *testing.T) Setting {
	t.Helper()
	if !slices.Contains(strings.Split(os.Getenv("DIVVY_REQUIRE"), ","), "programs") {
		t.Skip("it runs programs that hack/programs.sh downloads: run make test-programs")
	}
	folder, err := filepath.Abs("../../.cache/programs")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(folder, ".complete")); err != nil {
		t.Fatalf("the programs are not there: %v", err)
	}
	return Setting{Tree: installtest.Tree(t), Folder: folder}
}

// skipUnable skips a way that this machine does not allow.
func skipUnable(t *testing.T, s Setting, way string) {
	t.Helper()
	if way != "namespace" && !isAway(way) {
		return
	}
	if said, err := exec.Command(s.Tree.Program("divvy-enter"), "--probe").CombinedOutput(); err != nil {
		t.Logf("%s", said)
		installtest.Missing(t, "userns", err)
	}
}

func TestPrograms(t *testing.T) {
	s := setting(t)
	for _, program := range All() {
		t.Run(program.Name, func(t *testing.T) {
			t.Parallel()
			for _, way := range Ways {
				t.Run(way, func(t *testing.T) {
					skipUnable(t, s, way)
					if err := program.Check(t.Context(), s, way); err != nil {
						t.Error(err)
					}
				})
			}
		})
	}
}

// The memory of a program leaves the GPU and comes back, by turns or as the driver likes, and its output is the same.
func TestProgramsWhoseMemoryLeavesTheGPU(t *testing.T) {
	s := setting(t)
	for name, ruled := range map[string]bool{"turns": true, "no agent": false} {
		t.Run(name, func(t *testing.T) {
			skipUnable(t, s, "namespace")
			for _, swapper := range Swappers() {
				t.Run(swapper.Name, func(t *testing.T) {
					if err := swapper.Check(t.Context(), s, ruled); err != nil {
						t.Error(err)
					}
				})
			}
		})
	}
}
