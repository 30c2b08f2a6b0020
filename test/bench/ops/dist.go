package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/divvy-gpu/divvy/test/bench/measurement"
)

const distID = "ops.dist_differences"

// measureDist builds the release of the commit in two folders, of other names and depths, and compares all its files.
func measureDist(ctx context.Context) (rows []measurement.Row, err error) {
	work, err := os.MkdirTemp("", "divvy-dist-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	one, other := filepath.Join(work, "one"), filepath.Join(work, "another", "and-deeper", "two")
	// Both are cloned first: the checkout may go on while they are built.
	if err := errors.Join(clone(ctx, one), clone(ctx, other)); err != nil {
		return nil, err
	}
	for _, folder := range []string{one, other} {
		if said, err := exec.CommandContext(ctx, "make", "--no-print-directory", "-C", folder, "dist").CombinedOutput(); err != nil {
			return nil, fmt.Errorf("build the release: %w: %s", err, said)
		}
	}
	bytes, files, size, err := differences(filepath.Join(one, "build", "dist"), filepath.Join(other, "build", "dist"))
	if err != nil {
		return nil, err
	}
	row := measurement.Of(distID, "bytes", 0, measurement.Lower, "make bench-ops ONLY="+distID, float64(bytes))
	row.Case = "two builds of one commit in different folders"
	row.Note = fmt.Sprintf("%d files, %d MiB: archive, Debian package, images, chart, checksums", files, size>>20)
	return []measurement.Row{row}, nil
}

// clone clones this checkout. What was downloaded for images is shared.
func clone(ctx context.Context, folder string) error {
	cache, err := filepath.Abs(".cache")
	if err != nil {
		return err
	}
	if said, err := exec.CommandContext(ctx, "git", "clone", "--quiet", ".", folder).CombinedOutput(); err != nil {
		return fmt.Errorf("clone the checkout: %w: %s", err, said)
	}
	return os.Symlink(cache, filepath.Join(folder, ".cache"))
}

// differences counts the bytes in which the files of two folders differ; what only one has counts whole.
func differences(one, other string) (bytes, files int, size int64, err error) {
	names := map[string]bool{}
	for _, dir := range []string{one, other} {
		entries, err := os.ReadDir(dir)
		if err != nil {
			return 0, 0, 0, err
		}
		for _, entry := range entries {
			names[entry.Name()] = true
		}
	}
	for name := range names {
		a, err := os.ReadFile(filepath.Join(one, name))
		b, otherErr := os.ReadFile(filepath.Join(other, name))
		if err := errors.Join(err, otherErr); err != nil && !errors.Is(err, os.ErrNotExist) {
			return 0, 0, 0, err
		}
		bytes += max(len(a), len(b)) - min(len(a), len(b))
		for i := range min(len(a), len(b)) {
			if a[i] != b[i] {
				bytes++
			}
		}
		size += int64(len(a))
	}
	return bytes, len(names), size, nil
}
