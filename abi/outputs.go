package abi

import (
	"errors"
	"fmt"
	"io/fs"
)

// A File is one written file: its path from the repository's root, and its text.
type File struct {
	Path, Text string
}

// Outputs reads all descriptions below root and returns every file that is
// written from them.
func Outputs(root fs.FS) ([]File, error) {
	var files []File
	var faults []error
	for _, l := range []Library{CUDA, NVML} {
		out, err := l.outputs(root)
		files = append(files, out...)
		faults = append(faults, err)
	}
	return files, errors.Join(faults...)
}

func (l Library) outputs(root fs.FS) ([]File, error) {
	text, err := fs.ReadFile(root, l.Source)
	if err != nil {
		return nil, fmt.Errorf("read description: %w", err)
	}
	functions, err := ParseFunctions(l.Source, text, l.Returns)
	if err != nil {
		return nil, err
	}
	dir := "lib/abi/" + l.lower()
	return []File{
		{dir + "_functions.h", l.Prototypes(functions)},
		{dir + "_names.inc", l.Names(functions)},
		{dir + "_exports.txt", l.Exports(functions)},
	}, nil
}
