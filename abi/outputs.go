package abi

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
)

// A File is one written file: its path from the repository's root, and its text.
type File struct {
	Path, Text string
}

// A page is a layout description and where its C and Go views go.
type page struct {
	source, header, folder string
}

var pages = []page{
	{"abi/pages.yaml", "lib/abi/generated/page_layout.h", "internal/page"},
	{"abi/simgpu.yaml", "lib/abi/generated/machine_layout.h", "internal/simgpu"},
}

// Outputs reads all descriptions below root and returns every file that is
// written from them.
func Outputs(root fs.FS) ([]File, error) {
	var files []File
	var faults []error
	var remotes remoteInterface
	for _, l := range []Library{CUDA, NVML} {
		d, err := l.read(root)
		if err != nil {
			faults = append(faults, err)
			continue
		}
		out, err := l.outputs(d.Functions)
		files = append(files, out...)
		faults = append(faults, err)
		remotes = append(remotes, newRemoteLibrary(l, d))
	}
	if len(remotes) == 2 {
		wire, err := readWire(root)
		files = append(files, remoteOutputs(remotes, wire)...)
		faults = append(faults, err)
	}
	for _, p := range pages {
		out, err := p.outputs(root)
		files = append(files, out...)
		faults = append(faults, err)
	}
	return files, errors.Join(faults...)
}

func (p page) outputs(root fs.FS) ([]File, error) {
	text, err := fs.ReadFile(root, p.source)
	if err != nil {
		return nil, fmt.Errorf("read description: %w", err)
	}
	layout, err := ParseLayout(p.source, text)
	if err != nil {
		return nil, err
	}
	pkg := path.Base(p.folder)
	view, err := layout.Go(p.source, pkg)
	if err != nil {
		return nil, err
	}
	test, err := layout.GoTest(p.source, pkg)
	if err != nil {
		return nil, err
	}
	return []File{
		{p.header, layout.C(p.source)},
		{p.folder + "/layout_generated.go", view},
		{p.folder + "/layout_generated_test.go", test},
	}, nil
}

// read reads a library's description.
func (l Library) read(root fs.FS) (Interface, error) {
	text, err := fs.ReadFile(root, l.Source)
	if err != nil {
		return Interface{}, fmt.Errorf("read description: %w", err)
	}
	return ParseInterface(l.Source, text, l.Returns)
}

func (l Library) outputs(functions []Function) ([]File, error) {
	since, err := l.Since(functions, "simgpu")
	if err != nil {
		return nil, err
	}
	dir := "lib/abi/generated/" + l.lower()
	files := []File{
		{dir + "_functions.h", l.Prototypes(functions)},
		{dir + "_names.inc", l.Names(functions)},
		{dir + "_exports.txt", l.Exports(functions)},
		{"internal/simgpu/" + l.lower() + "_since_generated.go", since},
	}
	if l.Prefix == CUDA.Prefix {
		files = append(files, File{dir + "_hooks.inc", l.Hooks(functions)})
	}
	return files, nil
}
