package drivers

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/driver"
	"github.com/divvy-gpu/divvy/internal/install/installtest"
)

// fileOf is where a driver's own library lies.
func fileOf(t *testing.T, d Driver, library driver.Library) string {
	t.Helper()
	path, err := d.file(library)
	must(t, err)
	return path
}

// machine is a root with these libraries, linked as their packages do, and a kernel module of a release, if one is named.
func machine(t *testing.T, cuda, nvml, module string) (finder driver.Finder, dir string) {
	t.Helper()
	root, err := filepath.EvalSymlinks(t.TempDir())
	must(t, err)
	dir = filepath.Join(root, "usr/lib64")
	must(t, errors.Join(os.MkdirAll(dir, 0o755), os.MkdirAll(filepath.Join(root, "proc/driver/nvidia"), 0o755)))
	for library, path := range map[driver.Library]string{driver.CUDA: cuda, driver.NVML: nvml} {
		here := filepath.Join(dir, filepath.Base(path))
		if os.Link(path, here) != nil { // another file system
			image, err := os.ReadFile(path)
			must(t, errors.Join(err, os.WriteFile(here, image, 0o755)))
		}
		must(t, os.Symlink(filepath.Base(path), filepath.Join(dir, string(library))))
	}
	if module != "" {
		text := fmt.Sprintf("NVRM version: NVIDIA UNIX x86_64 Kernel Module  %s  Tue Mar  5 22:23:56 UTC 2024\n", module)
		must(t, os.WriteFile(filepath.Join(root, "proc/driver/nvidia/version"), []byte(text), 0o644))
	}
	return driver.Finder{Root: root}, dir
}

// NVIDIA's own drivers are taken whole and with their kernel module, and refused in any other company.
func TestCompanyOfLibraries(t *testing.T) {
	const another = "999.1.2"
	all := unpacked(t)
	for _, own := range all {
		for _, other := range all {
			for _, module := range []string{"", own.Version, another} {
				finder, dir := machine(t, fileOf(t, own, driver.CUDA), fileOf(t, other, driver.NVML), module)
				d, err := finder.Find()
				if other == own && module != another {
					if err != nil || d.Release() != own.Version || len(d.Aside) > 0 {
						t.Errorf("%s with module %q: %+v, %v", own.Version, module, d, err)
					}
					continue
				}
				if !errors.Is(err, driver.ErrUnusable) || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), "expected") {
					t.Errorf("%s with NVML %s and module %q: %+v, %v", own.Version, other.Version, module, d, err)
				}
			}
		}
	}
}

// Of none of these drivers a documented function is unknown, so the doctor is silent about them.
func TestNothingIsUnknown(t *testing.T) {
	for _, d := range unpacked(t) {
		for _, library := range driver.Libraries {
			theirs, err := driver.Names(fileOf(t, d, library))
			must(t, err)
			ours, err := driver.Names(installtest.Tree(t).Library(string(library)))
			must(t, err)
			if unknown := driver.Unknown(theirs, ours); len(unknown) > 0 {
				t.Errorf("%s of %s: %v", library, d.Version, unknown)
			}
		}
	}
}
