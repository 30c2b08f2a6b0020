// Command reference writes docs/reference from the code: commands with their flags, configuration, metrics and events. It runs in
// the repository's root.
package main

import (
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	for name, write := range pages {
		text, err := write(".")
		if err == nil {
			err = os.WriteFile(filepath.Join(folder, name), []byte(text), 0o644) //nolint:gosec // a document
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "reference:", err)
			os.Exit(1)
		}
	}
}
