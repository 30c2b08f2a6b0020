package abi

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// ErrStale says that written files differ from what the descriptions give.
var ErrStale = errors.New("generated files are out of date; run: go run ./abi/gen")

// Generate writes all derived files below root, and with check only compares
// them: differences go to log and the error is ErrStale.
func Generate(root string, check bool, log io.Writer) error {
	files, err := Outputs(os.DirFS(root))
	if err != nil {
		return err
	}
	stale := false
	for _, f := range files {
		path := filepath.Join(root, f.Path)
		have, err := os.ReadFile(path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("read generated file: %w", err)
		}
		if bytes.Equal(have, []byte(f.Text)) {
			continue
		}
		stale = true
		if _, err := fmt.Fprintf(log, "%s: %s\n", f.Path, firstDifference(string(have), f.Text)); err != nil {
			return fmt.Errorf("report a difference: %w", err)
		}
		if check {
			continue
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return fmt.Errorf("create folder: %w", err)
		}
		if err := os.WriteFile(path, []byte(f.Text), 0o644); err != nil {
			return fmt.Errorf("write generated file: %w", err)
		}
	}
	if check && stale {
		return ErrStale
	}
	return nil
}

// firstDifference names the first line in which two texts differ.
func firstDifference(have, want string) string {
	if have == "" {
		return "new"
	}
	h, w := strings.Split(have, "\n"), strings.Split(want, "\n")
	for i := range min(len(h), len(w)) {
		if h[i] != w[i] {
			return fmt.Sprintf("line %d: %q becomes %q", i+1, h[i], w[i])
		}
	}
	return fmt.Sprintf("%d lines become %d", len(h), len(w))
}
