package attack

import (
	"context"
	_ "embed" // the program's source
	"path/filepath"
	"strconv"
	"time"
)

// Fleeting is the program that uses a GPU by processes that live for a moment each.
const Fleeting = "fleeting"

//go:embed testdata/fleeting.c
var fleeting []byte

// BuildFleeting compiles it into a directory.
func BuildFleeting(ctx context.Context, dir string) error {
	return build(ctx, filepath.Join(dir, Fleeting), fleeting)
}

// FleetingCommand is what runs it with the program that lies in a directory, with a kernel
// of that length in each process. It prints a line when the first has ended.
func FleetingCommand(dir string, kernel time.Duration) []string {
	return []string{filepath.Join(dir, Fleeting), strconv.FormatInt(kernel.Nanoseconds(), 10)}
}
