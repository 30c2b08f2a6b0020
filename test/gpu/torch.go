package main

import (
	_ "embed" // for the programs in Python
	"fmt"
	"path/filepath"
	"time"
)

//go:embed torch_cases.py
var torchProgram string

//go:embed torch_load.py
var torchLoad string

func torchCases() []testCase {
	of := func(name, asks string) testCase {
		return testCase{name: "torch_" + name, asks: asks, needs: needs{share: true}, expected: "it does",
			means: "PyTorch meets Divvy differently from a GPU of that size", limit: 2 * time.Minute,
			run: func(t *trial) error { return torch(t, name) }}
	}
	return []testCase{
		of("matmul", "Does a matrix product in a share equal the processor's?"),
		of("allocator", "Does PyTorch's caching allocator meet the limit, raise OutOfMemoryError and recover?"),
		of("async", "Does PyTorch on cudaMallocAsync do so?"),
		of("expandable", "Do PyTorch's expandable segments (virtual memory management) do so?"),
		of("graphs", "Do CUDA graphs captured by PyTorch replay in a share?"),
		{name: "torch_online", asks: "Does a PyTorch training loop of class offline slow down a PyTorch inference loop?",
			needs: needs{share: true, quiet: true, together: true}, expected: "its 99th percentile at most doubles",
			means: "class offline does not yield fast enough to PyTorch", limit: 3 * time.Minute, run: torchOnline},
	}
}

// python finds an interpreter whose PyTorch has CUDA, or skips the case. The caller's own comes first, so that a virtual
// environment serves.
func (t *trial) python() (string, error) {
	program := findProgram("python3", "/usr/bin", "/usr/local/bin", "/opt/conda/bin")
	if program == "" {
		return "", skip("Python 3 is not here")
	}
	o, err := t.call(t.natively(), program, "-c", "import torch; assert torch.cuda.is_available()")
	if err != nil {
		return "", err
	}
	if o.status != 0 {
		return "", skip("PyTorch with CUDA is not here")
	}
	return program, nil
}

func torch(t *trial, name string) error {
	python, err := t.python()
	if err != nil {
		return err
	}
	if t.size() < 3*gib {
		return skip("PyTorch needs a larger share than %s", bytesText(t.size()))
	}
	var report struct{ Reserved, Usable float64 }
	if err := t.ask(&report, t.share(flags{memory: t.size()}), python, "-c", torchProgram, name); err != nil {
		return differ("%s", err)
	}
	if report.Usable > 0 {
		t.gained("gpu.torch_usable_percent", "%", goal(99), []float64{100 * report.Reserved / report.Usable})
	}
	return nil
}

func torchOnline(t *trial) error {
	python, err := t.python()
	if err != nil {
		return err
	}
	if t.size() < 4*gib {
		return skip("two PyTorch programs need more than %s", bytesText(t.size()))
	}
	seconds := "10"
	if t.thorough {
		seconds = "60"
	}
	train := []string{python, "-c", torchLoad, "train"}
	whole, err := t.alone(train)
	if err != nil {
		return fmt.Errorf("train with %s: %w", filepath.Base(python), err)
	}
	return t.beside("gpu.time.torch_online", []string{python, "-c", torchLoad, "serve", "--rate", "25", "--seconds", seconds}, train, whole)
}
