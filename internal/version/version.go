// Package version knows which version of Divvy this is. The file VERSION is the
// only place where the number is chosen; `make generate` copies it to the files
// of other formats that must repeat it.
package version

import (
	_ "embed" // for VERSION
	"runtime/debug"
	"strings"
)

//go:embed VERSION
var file string

// Number is the release, such as "0.1.0". It is part of the program, so it is
// right also where the Go tool records neither a module version nor a commit.
func Number() string { return strings.TrimSpace(file) }

// Full is Number followed by the commit that the program was built from, where
// the Go tool recorded one: "0.1.0+0123456789ab", and ".modified" behind it if
// the sources differed from the commit.
func Full() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return Number()
	}
	return full(Number(), info.Settings)
}

// shortCommit is the number of digits that tell a commit from every other.
const shortCommit = 12

func full(number string, settings []debug.BuildSetting) string {
	var commit, modified string
	for _, s := range settings {
		switch s.Key {
		case "vcs.revision":
			commit = s.Value[:min(shortCommit, len(s.Value))]
		case "vcs.modified":
			if s.Value == "true" {
				modified = ".modified"
			}
		}
	}
	if commit == "" {
		return number
	}
	return number + "+" + commit + modified
}
