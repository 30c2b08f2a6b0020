// Manifests writes what the chart has to know of the webhook's code, and the plain manifests, which are the chart with
// its own values.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/divvy-gpu/divvy/test/chart/manifests/plain"
)

func main() {
	chart := flag.String("chart", "deploy/chart", "the chart's `directory`")
	out := flag.String("out", "deploy/manifests", "where the manifests go, a `directory`")
	flag.Parse()
	if err := write(*chart, *out); err != nil {
		fmt.Fprintln(os.Stderr, "manifests:", err)
		os.Exit(1)
	}
}

func write(chart, out string) error {
	text, err := plain.Dialects()
	if err != nil {
		return err
	}
	if err := replace(filepath.Join(chart, "files", "dialects.yaml"), text); err != nil {
		return err
	}
	for _, file := range plain.Files {
		text, err := file.Render(chart)
		if err != nil {
			return err
		}
		if err := replace(filepath.Join(out, file.Name), text); err != nil {
			return err
		}
	}
	return nil
}

// replace leaves a file alone that is as it should be.
func replace(name string, text []byte) error {
	if old, err := os.ReadFile(name); err == nil && bytes.Equal(old, text) {
		return nil
	}
	if err := os.WriteFile(name, text, 0o644); err != nil { //nolint:gosec // for everybody to read
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}
