package drivers

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/driver"
	"github.com/divvy-gpu/divvy/internal/install/installtest"
	"github.com/divvy-gpu/divvy/internal/launch"
)

var update = flag.Bool("update", false, "write the generated parts of docs/drivers.md anew")

// unpacked are the versions that are unpacked.
func unpacked(t *testing.T) []Driver {
	t.Helper()
	if !slices.Contains(strings.Split(os.Getenv("DIVVY_REQUIRE"), ","), "drivers") {
		t.Skip("it downloads NVIDIA's drivers and takes a minute: run make test-drivers")
	}
	found, err := Unpacked("../../.cache/drivers")
	must(t, err)
	return found
}

// pairs opens each version that is unpacked.
func pairs(t *testing.T) []*Pair {
	t.Helper()
	found := unpacked(t)
	tree := installtest.Tree(t)
	if err := launch.Enter(tree.Program("divvy-enter")).Probe(t.Context()); err != nil {
		installtest.Missing(t, "userns", err)
	}
	var opened []*Pair
	for _, d := range found {
		p, err := Open(t.Context(), d, tree, t.TempDir())
		must(t, err)
		opened = append(opened, p)
	}
	return opened
}

func TestSharesAnswerAsTheDriver(t *testing.T) {
	opened := pairs(t)
	runtimes, err := Runtimes("../../.cache/runtimes")
	must(t, err)
	var rows []Row
	for _, p := range opened {
		row := Row{Driver: p.Driver, Answers: map[string]int{}}
		row.CUDA, err = p.CUDA(t.Context())
		must(t, err)
		for _, s := range p.Subjects(runtimes) {
			t.Run(p.Version+"/"+s.Name, func(t *testing.T) {
				result, err := s.Compare(t.Context())
				must(t, err)
				for _, d := range result.Differences[:min(10, len(result.Differences))] {
					t.Error(d)
				}
				t.Logf("%d answers, %d differ", result.Answers, len(result.Differences))
				row.Answers[s.Group] += result.Answers
				row.Differences += len(result.Differences)
			})
		}
		rows = append(rows, row)
	}
	var columns []string
	for _, s := range opened[0].Subjects(runtimes) {
		if !slices.Contains(columns, s.Group) {
			columns = append(columns, s.Group)
		}
	}
	if flag.Lookup("test.run").Value.String() == "" && !t.Failed() {
		checkPage(t, rows, map[string]string{"drivers": table(rows, columns), "ways": listed(Ways)})
	}
}

// page says in public what was compared.
const page = "../../docs/drivers.md"

// checkPage compares the generated parts of the page. A driver that cannot be had here keeps its line.
func checkPage(t *testing.T, rows []Row, parts map[string]string) {
	t.Helper()
	var versions []string
	for _, r := range rows {
		versions = append(versions, r.Version)
	}
	text, err := os.ReadFile(page)
	must(t, err)
	for name, part := range parts {
		changed, old, err := between(string(text), name, part)
		must(t, err)
		if lines := stale(old, part, versions); len(lines) > 0 && !*update {
			t.Errorf("%s is stale, run make test-drivers GOTESTFLAGS=-update; it\n%s", page, strings.Join(lines, "\n"))
		}
		text = []byte(changed)
	}
	if *update {
		must(t, os.WriteFile(page, text, 0o600))
	}
}

// What docs/drivers.md and the design say of the one way that differs.
func TestALibraryBehindFindsTheDriver(t *testing.T) {
	p := pairs(t)[0]
	for place, want := range map[*Place]string{&p.Alone: "cuMemAlloc_v2 no", &p.Env: "cuMemAlloc_v2 driver", &p.Covered: "cuMemAlloc_v2 driver"} {
		lines, err := p.walk(t.Context(), behind, driver.CUDA, *place, []string{"cuMemAlloc_v2"})
		must(t, err)
		if !slices.Contains(lines, want) {
			t.Errorf("%s: %v, want %q", place.Name, lines, want)
		}
	}
}

// Too few versions, half a download and a folder without a library are no silent success.
func TestUnpackedRefusesTooLittle(t *testing.T) {
	folder := t.TempDir()
	for _, version := range []string{"1", "2"} {
		if _, err := Unpacked(folder); !errors.Is(err, ErrFew) {
			t.Errorf("before version %s: %v, want %v", version, err, ErrFew)
		}
		must(t, os.MkdirAll(filepath.Join(folder, version), 0o700))
		must(t, os.WriteFile(filepath.Join(folder, version, ".complete"), nil, 0o600))
	}
	if _, err := Unpacked(folder); !errors.Is(err, ErrFile) {
		t.Errorf("without a library: %v, want %v", err, ErrFile)
	}
}

func TestCompareSeesEveryDifference(t *testing.T) {
	q := Question{Name: "status", Least: 2}
	result, err := compare(q, []string{"a 1", "b signal 11", "c 3"}, []string{"a 1", "b 0", "c 4"})
	must(t, err)
	if len(result.Differences) != 1 || result.Differences[0] != (Difference{"c 3", "c 4"}) {
		t.Errorf("differences: %v", result.Differences)
	}
	for _, few := range [][]string{{"a 1"}, {"a 1", "b 2", "c 3"}} {
		if _, err := compare(q, few, few[:1]); !errors.Is(err, ErrAnswers) {
			t.Errorf("%d answers against 1: %v, want %v", len(few), err, ErrAnswers)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
