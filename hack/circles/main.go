// Circles checks that the folders below lib/ depend on each other one way only.
//
// A folder depends on another if one of its files includes a file of the other,
// or if one of its objects takes a symbol that an object of the other defines.
// No folders may depend on each other in a circle. Inside a folder the same is
// asked of its files, except for the circles named in known, at most one in a
// folder; a circle that is named and is not there any more is a fault too.
//
// Usage, after make c: go run ./hack/circles [-objects build/obj]
package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// A circle is a set of files of one folder that depend on each other, and why
// they are left so.
type circle struct {
	folder string
	files  []string
	reason string
}

var known = []circle{
	{
		folder: "lib/cuda/time",
		files:  []string{"batch.c", "capture.c", "flight.c", "flights.c", "gate.c", "kernel.c", "launch.c", "reading.c", "turns.c"},
		reason: "a launch passes the gates, joins a batch and reads what is done; a read may open a gate again",
	},
	{
		folder: "lib/share",
		files:  []string{"descriptor.c", "exiting.c", "export.c", "ledger.c", "reap.c", "room.c", "slot.c"},
		reason: "a reservation that does not fit reaps dead processes, and reaping changes the ledger as a reservation does",
	},
	{
		folder: "lib/simgpu/machine",
		files:  []string{"blocks.c", "export.c", "lock.c", "page_moves.c", "pages.c", "paging.c", "reap.c", "schedule.c", "servers.c", "state.c"},
		reason: "who takes a lock over from a dead holder repairs what it holds, and the repair takes locks and blocks itself",
	},
}

func main() {
	objects := flag.String("objects", "build/obj", "the folder of the object files")
	flag.Parse()
	report, err := run(".", *objects)
	if err != nil {
		fmt.Fprintln(os.Stderr, "circles:", err)
		os.Exit(1)
	}
	for _, line := range report.drawing() {
		fmt.Println(line)
	}
	fmt.Printf("house.circles between folders: %d, inside: %d (named: %d)\n",
		report.between, report.inside, len(known))
	for _, fault := range report.faults {
		fmt.Fprintln(os.Stderr, fault)
	}
	if len(report.faults) > 0 {
		os.Exit(1)
	}
}

func run(root, objects string) (report, error) {
	sources, err := readSources(root)
	if err != nil {
		return report{}, err
	}
	symbols, err := readSymbols(sources, objects)
	if err != nil {
		return report{}, err
	}
	edges := append(includes(sources), taken(symbols)...)
	return judge(edges, known), nil
}

// readSources returns the text of every C file below lib/ by its path.
func readSources(root string) (map[string]string, error) {
	sources := map[string]string{}
	err := filepath.WalkDir(filepath.Join(root, "lib"), func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || !isSource(path) {
			return err
		}
		text, err := os.ReadFile(path) //nolint:gosec // a file of this repository
		relative, _ := filepath.Rel(root, path)
		sources[relative] = string(text)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read C files: %w", err)
	}
	return sources, nil
}

func isSource(path string) bool {
	switch filepath.Ext(path) {
	case ".c", ".h", ".inc":
		return true
	}
	return false
}

// readSymbols asks nm for the symbols of each source's object. Tests' objects
// are left out: many define main, and nothing links against them.
func readSymbols(sources map[string]string, objects string) ([]symbol, error) {
	var symbols []symbol
	for _, path := range sorted(sources) {
		if filepath.Ext(path) != ".c" || strings.Contains(path, "/test/") {
			continue
		}
		object := filepath.Join(objects, strings.TrimSuffix(strings.TrimPrefix(path, "lib/"), ".c")+".o")
		text, err := exec.Command("nm", "-g", object).Output() //nolint:gosec // an object of this build
		if err != nil {
			return nil, fmt.Errorf("list symbols of %s (make c builds it): %w", object, err)
		}
		symbols = append(symbols, parseSymbols(path, string(text))...)
	}
	return symbols, nil
}
