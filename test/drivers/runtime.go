package drivers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// ErrRuntimes says that NVIDIA's runtime libraries are not there.
var ErrRuntimes = errors.New("a CUDA runtime library is missing: hack/runtimes.sh unpacks them")

// Runtime is one version of NVIDIA's runtime library.
type Runtime struct {
	// File is where the library lies, and Version that of the Python package it is from, such as 12.9.79.
	File, Version string
}

// pinned finds the version in a line of runtimes.txt, and in that the one in the library's name.
var pinned = regexp.MustCompile(`(?m)^nvidia-cuda-runtime\S*==((\d+)\.\S+) `)

// Runtimes are those in a folder that hack/runtimes.sh filled.
func Runtimes(folder string) ([]Runtime, error) {
	list, err := os.ReadFile(filepath.Join(folder, ".complete"))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrRuntimes, err)
	}
	var found []Runtime
	for _, match := range pinned.FindAllStringSubmatch(string(list), -1) {
		files, err := filepath.Glob(filepath.Join(folder, "libcudart.so."+match[2]+"*"))
		if err != nil || len(files) != 1 {
			return nil, fmt.Errorf("%w: of %s there is %v", ErrRuntimes, match[1], files)
		}
		file, err := filepath.Abs(files[0])
		if err != nil {
			return nil, fmt.Errorf("look for runtime libraries: %w", err)
		}
		found = append(found, Runtime{File: file, Version: match[1]})
	}
	return found, nil
}

// compareRuntime has a runtime library say with the driver alone, and in shares, what it finds.
func (p *Pair) compareRuntime(ctx context.Context, r Runtime) (Comparison, error) {
	script, err := sources.ReadFile("ask/runtime.py")
	if err != nil {
		return Comparison{}, fmt.Errorf("read a program that asks: %w", err)
	}
	return p.compareSaid(ctx, Question{Name: "runtime " + r.Version, Least: 2_000}, "cudaDriverGetVersion 0", "python3", "-c", string(script), r.File)
}

// compareMonitor has nvidia-smi say that there is no driver.
func (p *Pair) compareMonitor(ctx context.Context) (Comparison, error) {
	return p.compareSaid(ctx, Question{Name: "nvidia-smi", Least: 1}, "NVIDIA driver", filepath.Join(p.Folder, "nvidia-smi"))
}

// compareSaid compares what a program prints, line by line, with the driver alone and in shares. How it ends is one more
// line. The text shows that it ran.
func (p *Pair) compareSaid(ctx context.Context, q Question, shows string, argv ...string) (Comparison, error) {
	result := Comparison{Question: q}
	say := func(place Place) []string {
		var said bytes.Buffer
		cmd := place.Command(ctx, nil, argv...)
		cmd.Stdout, cmd.Stderr = &said, &said
		err := cmd.Run()
		return append(strings.Split(strings.TrimSpace(said.String()), "\n"), fmt.Sprint("end: ", err))
	}
	native := say(p.Alone)
	if !strings.Contains(strings.Join(native, "\n"), shows) {
		return result, fmt.Errorf("%w: %s alone says no %q but %.300q", ErrAnswers, q.Name, shows, native)
	}
	for _, place := range []Place{p.Env, p.Covered} {
		one, err := compare(q, native, say(place))
		if err != nil {
			return result, err
		}
		result.add(one, place.Name+": ")
	}
	return result, nil
}
