package driver

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// releases are NVIDIA's: 470.256.02, 560.94. What has fewer digits in front is the version of a
// library's interface, as libcuda.so.1.1 of WSL and Tegra.
var releases = regexp.MustCompile(`^[0-9]{3,}(\.[0-9]+){1,2}$`)

// Release is that of the driver to which a file belongs, or "". NVIDIA's libraries have it in their
// names, behind ".so.".
func Release(path string) string {
	_, release, _ := strings.Cut(filepath.Base(path), ".so.")
	if !releases.MatchString(release) {
		return ""
	}
	return release
}

// Module is the release of the kernel module that runs, or "" where the kernel does not tell: it is
// not loaded, or the kernel is WSL's.
func (f Finder) Module() string {
	text, err := os.ReadFile(filepath.Join("/", f.Root, "proc/driver/nvidia/version"))
	if err != nil {
		return ""
	}
	return moduleRelease(string(text))
}

// moduleRelease finds the release in what the module says of itself, such as "NVRM version: NVIDIA UNIX
// x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024"; "" where it says none.
func moduleRelease(text string) string {
	for line := range strings.Lines(text) {
		line, ok := strings.CutPrefix(line, "NVRM version:")
		if !ok {
			continue
		}
		for word := range strings.FieldsSeq(line) {
			if releases.MatchString(word) {
				return word
			}
		}
	}
	return ""
}
