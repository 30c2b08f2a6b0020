// Package sysfs reads what the kernel tells below /sys and /proc from a file system that the caller gives. What is not there, or
// vanishes meanwhile, is empty.
package sysfs

import (
	"errors"
	"io/fs"
	"path"
)

// Names are those of what is in a folder, sorted: nil where there is no folder, and not nil where it is empty.
func Names(root fs.FS, folder string) []string {
	entries, err := fs.ReadDir(root, folder)
	if err != nil {
		return nil
	}
	names := make([]string, len(entries))
	for i, entry := range entries {
		names[i] = entry.Name()
	}
	return names
}

// Target is the last part of where a link leads, "" for no link.
func Target(root fs.FS, link string) string {
	to, err := fs.ReadLink(root, link)
	if err != nil || to == "" {
		return ""
	}
	return path.Base(to)
}

// There tells whether something has a name, without following links.
func There(root fs.FS, name string) bool {
	_, err := fs.Lstat(root, name)
	return err == nil
}

// IsLate tells whether a file system has given a file up, because the kernel does not answer about it.
func IsLate(err error) bool {
	var timed interface{ Timeout() bool }
	return errors.As(err, &timed) && timed.Timeout()
}
