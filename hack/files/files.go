// Package files reads trees of files that were built, for archives of them.
package files

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Each calls a function for a file, or each file of a folder, in the order of their paths: with the path from there, with slashes
// and "." for the file itself, its content, and whether it is a program. A link to a file counts as the file.
func Each(from string, found func(inside string, content []byte, program bool) error) error {
	return filepath.WalkDir(from, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		inside, err := filepath.Rel(from, name)
		if err != nil {
			return fmt.Errorf("name %s: %w", name, err)
		}
		info, err := os.Stat(name)
		if err != nil {
			return err
		}
		content, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		return found(filepath.ToSlash(inside), content, info.Mode()&0o111 != 0)
	})
}
