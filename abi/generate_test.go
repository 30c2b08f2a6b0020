package abi

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Descriptions of few functions.
const (
	fewOfCUDA = `reasons:
  - {name: narrow, result: CUDA_ERROR_NOT_SUPPORTED, because: "addresses have 64 bits"}
values:
  - {size: 8, types: [CUdeviceptr, size_t]}
functions:
  - {name: cuMemAlloc, since: 2000, kind: allocate, remote: refused narrow, takes: [CUdeviceptr_v1 *, unsigned int]}
  - {name: cuMemAlloc_v2, since: 3020, kind: allocate, remote: waiting, takes: [CUdeviceptr * out, size_t]}
`
	fewOfNVML = `reasons:
  - {name: session, because: "it begins the connection"}
functions:
  - {name: nvmlInit_v2, since: 10000, kind: session, remote: hand session, takes: []}
`
)

// repository makes a root that holds only the descriptions.
func repository(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	if err := os.Mkdir(filepath.Join(root, "abi"), 0o755); err != nil {
		t.Fatal(err)
	}
	layout, err := os.ReadFile("testdata/layout.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"cuda.yaml":   fewOfCUDA,
		"nvml.yaml":   fewOfNVML,
		"pages.yaml":  string(layout),
		"simgpu.yaml": string(layout),
	} {
		if err := os.WriteFile(filepath.Join(root, "abi", name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestGenerate(t *testing.T) {
	root := repository(t)
	var log bytes.Buffer
	if err := Generate(root, true, &log); !errors.Is(err, ErrStale) {
		t.Fatalf("check of an empty tree: have %v, want ErrStale", err)
	}
	if _, err := os.Stat(filepath.Join(root, "lib")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("check wrote something: %v", err)
	}
	if err := Generate(root, false, &log); err != nil {
		t.Fatal(err)
	}
	log.Reset()
	if err := Generate(root, true, &log); err != nil || log.Len() != 0 {
		t.Errorf("check of a current tree: have %v and %q", err, log.String())
	}
}

func TestGenerateTellsWhatIsStale(t *testing.T) {
	root := repository(t)
	if err := Generate(root, false, &bytes.Buffer{}); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(root, "lib/abi/generated/cuda_exports.txt")
	if err := os.WriteFile(path, []byte("cuMemAlloc\ncuOther\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	if err := Generate(root, true, &log); !errors.Is(err, ErrStale) {
		t.Fatalf("have %v, want ErrStale", err)
	}
	want := `lib/abi/generated/cuda_exports.txt: line 2: "cuOther" becomes "cuMemAlloc_v2"`
	if strings.TrimSpace(log.String()) != want {
		t.Errorf("have %q, want %q", log.String(), want)
	}
}

func TestGenerateReportsEveryDescription(t *testing.T) {
	root := repository(t)
	for _, name := range []string{"cuda.yaml", "pages.yaml"} {
		if err := os.WriteFile(filepath.Join(root, "abi", name), []byte("x\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Remove(filepath.Join(root, "abi/nvml.yaml")); err != nil {
		t.Fatal(err)
	}
	err := Generate(root, false, &bytes.Buffer{})
	for _, want := range []string{"abi/cuda.yaml:1:", "abi/pages.yaml:", "abi/nvml.yaml"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("have %v, want %q in it", err, want)
		}
	}
}
