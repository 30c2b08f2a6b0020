// Layers writes what follows from the list of layers: depguard's rules and the drawing of the design.
package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	if err := generate("."); err != nil {
		fmt.Fprintln(os.Stderr, "layers:", err)
		os.Exit(1)
	}
}

// generate rewrites the files below root that are generated from the list.
func generate(root string) error {
	layers, err := read(filepath.Join(root, "hack/layers/layers.yaml"))
	if err != nil {
		return err
	}
	found, err := packages(root)
	if err != nil {
		return err
	}
	if err := complete(layers, found); err != nil {
		return err
	}
	for path, text := range map[string]string{".golangci.yml": rules(layers), "docs/design/layout.md": drawing(layers)} {
		path = filepath.Join(root, path)
		old, err := os.ReadFile(path)
		if err != nil {
			return fmt.Errorf("read what is around the generated part: %w", err)
		}
		changed, err := between(old, text)
		if err != nil {
			return fmt.Errorf("write %s: %w", path, err)
		}
		if bytes.Equal(old, changed) {
			continue
		}
		if err := os.WriteFile(path, changed, 0o644); err != nil { //nolint:gosec // for everybody to read
			return fmt.Errorf("write the layers: %w", err)
		}
	}
	return nil
}
