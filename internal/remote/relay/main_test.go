package relay

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/rundir"
)

// A file system that is full is told of as everywhere: which one, by whom, and what to do.
func TestFullIsTold(t *testing.T) {
	dir := t.TempDir()
	err := fmt.Errorf("save checkpoint: %w", &fs.PathError{Op: "write", Path: filepath.Join(dir, "share.json.new"), Err: unix.ENOSPC})
	// How much each user has there changes while other programs write.
	withoutFigures := func(text string) string { return regexp.MustCompile(`\d+ MiB`).ReplaceAllString(text, "N MiB") }
	want := withoutFigures(rundir.LookFull(dir).Text(os.Getuid()))
	if said := withoutFigures(failure(err)); said != want || strings.Contains(said, "checkpoint") {
		t.Errorf("it says %q, and not %q", said, want)
	}
	if said := failure(errors.New("another")); said != "another" {
		t.Errorf("it says %q", said)
	}
}
