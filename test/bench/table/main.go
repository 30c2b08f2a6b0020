// Command table writes the page for people from a folder of measurements.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/divvy-gpu/divvy/test/bench/measurement"
)

func main() {
	folder := os.Args[len(os.Args)-1]
	page, err := measurement.Table(folder)
	if err == nil {
		err = os.WriteFile(filepath.Join(folder, "README.md"), []byte(page), 0o644)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "table:", err)
		os.Exit(1)
	}
}
