package abi

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestLayoutsAreTheDrivers compares the sizes and offsets in the descriptions with the headers of the driver's makers,
// where there are some: NVML's comes with the Go module that calls it, and hack/runtimes.sh unpacks those of CUDA.
func TestLayoutsAreTheDrivers(t *testing.T) {
	module, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/NVIDIA/go-nvml").Output()
	if err != nil {
		t.Fatalf("find NVML's header: %v", err)
	}
	compareWithHeader(t, NVML, filepath.Join(strings.TrimSpace(string(module)), "pkg/nvml/nvml.h"), 100)
	headers, err := filepath.Glob("../.cache/runtimes/cuda-*.h")
	if err != nil {
		t.Fatal(err)
	}
	if len(headers) == 0 {
		if slices.Contains(strings.Split(os.Getenv("DIVVY_REQUIRE"), ","), "drivers") {
			t.Fatal("drivers is promised by DIVVY_REQUIRE, and there is no header of CUDA")
		}
		t.Skip("no header of CUDA is there: make test-drivers unpacks some")
	}
	for _, header := range headers {
		compareWithHeader(t, CUDA, header, 70)
	}
}

// compareWithHeader has the compiler judge a type if the header knows it, which at least so many have to be.
func compareWithHeader(t *testing.T, l Library, header string, least int) {
	t.Helper()
	text, err := os.ReadFile(header)
	if err != nil {
		t.Fatal(err)
	}
	r := newRemoteLibrary(l, parsedInterface(t, l))
	var b strings.Builder
	fmt.Fprintf(&b, "#include \"%s\"\n", header)
	judged := 0
	judge := func(ctype, is string) {
		if regexp.MustCompile(`\b`+strings.Fields(ctype)[0]+`\b`).Match(text) || strings.Contains("char int unsigned float size_t", strings.Fields(ctype)[0]) {
			fmt.Fprintf(&b, "_Static_assert(%s, \"%s\");\n", is, strings.ReplaceAll(is, `"`, ""))
			judged++
		}
	}
	for _, v := range r.d.Values {
		for _, ctype := range v.Types {
			judge(ctype, fmt.Sprintf("sizeof(%s) == %d", ctype, v.Size))
		}
	}
	for _, h := range r.d.Handles {
		judge(h.Name, fmt.Sprintf("sizeof(%s) == 8", h.Name))
	}
	for _, s := range r.d.Structures {
		relation := "=="
		if r.versioned(s.Name) {
			relation = "<="
		}
		judge(s.Name, fmt.Sprintf("sizeof(%s) %s %d", s.Name, relation, s.Size))
		for _, h := range r.types.holds(s.Name) {
			judge(s.Name, fmt.Sprintf("__builtin_offsetof(%s, %s) == %d", s.Name, h.Field, h.At))
		}
	}
	source := filepath.Join(t.TempDir(), "layout.c")
	if err := os.WriteFile(source, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	absolute, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("gcc", "-w", "-fsyntax-only", "-I"+absolute, source).CombinedOutput(); err != nil {
		t.Errorf("%s: %v\n%s", header, err, out)
	}
	if judged < least {
		t.Errorf("%s knows %d of what is described, want at least %d", header, judged, least)
	}
}
