package simgpu

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
)

//go:embed machines/*.yaml
var machineFiles embed.FS

// ErrUnknownMachine marks the error for a machine that is neither one of
// [Names] nor a file.
var ErrUnknownMachine = errors.New("unknown machine")

// Names returns the names of the machines that come with Divvy, sorted.
func Names() []string {
	entries, err := fs.ReadDir(machineFiles, "machines")
	if err != nil {
		return nil
	}
	names := make([]string, 0, len(entries))
	for _, entry := range entries {
		names = append(names, strings.TrimSuffix(entry.Name(), ".yaml"))
	}
	return names
}

// Source returns the text of a machine's file: one of [Names], or a file of
// the user's own given by its path, which holds a slash or ends in .yaml or
// .yml. The second result names it in messages.
func Source(machine string) (content []byte, file string, err error) {
	if isPath(machine) {
		content, err = readOwn(machine)
		return content, machine, err
	}
	file = path.Join("machines", machine+".yaml")
	content, err = machineFiles.ReadFile(file)
	if err != nil {
		return nil, "", fmt.Errorf("%w %q: use one of %s, or the path of a machine file such as ./%s.yaml",
			ErrUnknownMachine, machine, strings.Join(Names(), ", "), machine)
	}
	return content, machine, nil
}

// Load reads a machine as [Source] finds it and applies the overrides.
func Load(machine string, overrides ...string) (*Machine, error) {
	content, file, err := Source(machine)
	if err != nil {
		return nil, err
	}
	return Parse(file, content, overrides...)
}

func isPath(machine string) bool {
	extension := filepath.Ext(machine)
	return strings.ContainsRune(machine, filepath.Separator) || extension == ".yaml" || extension == ".yml"
}

func readOwn(file string) ([]byte, error) {
	info, err := os.Stat(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: there is no file %s: `divvy simgpu machines a100-80g` prints one to start from",
			ErrUnknownMachine, file)
	}
	if err != nil {
		return nil, fmt.Errorf("read machine file: %w", err)
	}
	// A device or a pipe might never end.
	if !info.Mode().IsRegular() || info.Size() > maxFileBytes {
		return nil, fmt.Errorf("read machine file: %s is not a file of at most %d bytes", file, maxFileBytes)
	}
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read machine file: %w", err)
	}
	return content, nil
}
