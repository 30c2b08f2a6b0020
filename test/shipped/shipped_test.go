package shipped

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/divvy-gpu/divvy/internal/install/installtest"
)

// unwanted are texts of test code, which every program that contains it has: names of
// environment variables, and paths of packages, which Go keeps for every function.
var unwanted = []string{
	"DIVVY_CRASH", "DIVVY_REQUIRE", "crashed-after-",
	"testing.(*T)", "net/http/httptest", "divvy/test/", "installtest",
}

// What the tests need to make an agent die, and other code of theirs, is in no
// program that is shipped.
func TestProgramsContainNoTestCode(t *testing.T) {
	tree := installtest.Tree(t)
	for name, part := range map[string]string{
		"bin/divvy":                     "divvy/internal/agent/daemon",
		"libexec/divvy/divvy-cluster":   "divvy/internal/agent/daemon",
		"libexec/divvy/divvy-scheduler": "divvy/cmd/divvy-scheduler/program",
	} {
		program, err := os.ReadFile(filepath.Join(string(tree), name))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Contains(program, []byte(part)) {
			t.Errorf("%s does not name the packages that it is made of: this test finds nothing in it", name)
		}
		for _, text := range unwanted {
			if bytes.Contains(program, []byte(text)) {
				t.Errorf("%s contains %q", name, text)
			}
		}
	}
}
