package dist

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/divvy-gpu/divvy/internal/install/installtest"
)

// Debian's own checker finds neither errors nor warnings in the package but those that the package names with their reasons.
func TestLintian(t *testing.T) {
	dir := release(t)
	lintian, err := exec.LookPath("lintian")
	if err != nil {
		installtest.Missing(t, "third-party", err)
	}
	found, err := filepath.Glob(filepath.Join(dir, "divvy_*.deb"))
	if err != nil || len(found) != 1 {
		t.Fatalf("%q, %v", found, err)
	}
	said, err := exec.Command(lintian, "--allow-root", "--no-cfg", "--tag-display-limit", "0", "--fail-on", "error,warning", found[0]).CombinedOutput()
	if err != nil {
		t.Errorf("%v:\n%s", err, said)
	}
}
