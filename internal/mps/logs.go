package mps

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

const (
	// longestLog bounds a log file, in bytes that it takes: a daemon writes down every command, and the directory may be in
	// memory.
	longestLog = 4 << 20
	// blockSize is the unit in which stat(2) tells what a file takes.
	blockSize = 512
)

// trim empties the log files that have become too long.
func (p Dirs) trim() error {
	for _, name := range []string{"control.log", "server.log"} {
		path := filepath.Join(p.Log, name)
		info, err := os.Lstat(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("look at the log of an MPS control daemon: %w", err)
		}
		// A daemon that writes on where it was leaves a file with a hole.
		stat, ok := info.Sys().(*syscall.Stat_t)
		if !ok || !info.Mode().IsRegular() || stat.Blocks*blockSize <= longestLog {
			continue
		}
		if err := os.Truncate(path, 0); err != nil {
			return fmt.Errorf("empty the log of an MPS control daemon: %w", err)
		}
	}
	return nil
}
