// Command picture draws recorded terminal screens as SVG, for documents. It runs in the repository's root.
package main

import (
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	for _, s := range screens {
		text, err := s.read(".")
		if err == nil {
			err = os.WriteFile(filepath.Join(folder, s.picture), []byte(draw(text, s.title, s.about)), 0o644) //nolint:gosec // a picture
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "picture:", err)
			os.Exit(1)
		}
	}
}
