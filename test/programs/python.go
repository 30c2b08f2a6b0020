package programs

import (
	"path/filepath"
	"strings"
)

// debianNumba is where Debian's packages have their Python modules.
const debianNumba = "debian/usr/lib/python3/dist-packages"

// python is the command of Debian's Python with the modules of one folder alone.
func (p *place) python(modules string, args ...string) []string {
	program := filepath.Join(p.Folder, "debian/usr/bin/python3.11")
	environment := []string{
		"PYTHONHOME=" + filepath.Join(p.Folder, "debian/usr"),
		"PYTHONPATH=" + filepath.Join(p.Folder, modules),
		"PYTHONDONTWRITEBYTECODE=1",
	}
	return p.unpacked(environment, append([]string{program, "-S"}, args...)...)
}

// script is the path of one of our own scripts.
func (p *place) script(name string) string { return filepath.Join(p.rundir, "scripts", name) }

// unpacked is the command of a program that finds the libraries of the unpacked packages behind those of its place.
func (p *place) unpacked(environment []string, argv ...string) []string {
	var folders []string
	for _, folder := range []string{
		"toolkit/lib64", "debian/usr/lib/x86_64-linux-gnu", "debian/lib/x86_64-linux-gnu",
		"debian/usr/lib/x86_64-linux-gnu/blas", "debian/usr/lib/x86_64-linux-gnu/lapack",
	} {
		folders = append(folders, filepath.Join(p.Folder, folder))
	}
	const set = `LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$0; export LD_LIBRARY_PATH; exec env "$@"`
	command := append([]string{"sh", "-c", set, strings.Join(folders, ":")}, environment...)
	return append(command, argv...)
}
