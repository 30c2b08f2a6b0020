package shipped

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/install/installtest"
)

// newestLibc is the newest version of the C library's names that one of Loaded may need: CentOS 7
// has that one.
var newestLibc = []int{2, 17}

func TestFilesNeedAnOldLibc(t *testing.T) {
	tree := installtest.Tree(t)
	for _, name := range Loaded {
		needs, err := Needs(filepath.Join(string(tree), name))
		if err != nil {
			t.Fatal(err)
		}
		if len(needs) == 0 && !strings.HasSuffix(name, "/divvy-cover") {
			t.Errorf("%s needs nothing of the C library: this test finds nothing in it", name)
		}
		for _, need := range needs {
			if slices.Compare(need.Version, newestLibc) > 0 {
				t.Errorf("%s needs %s of version %v", name, need.Name, need.Version)
			}
		}
	}
}
