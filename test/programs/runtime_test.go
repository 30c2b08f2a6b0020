package programs

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A program on the CUDA runtime library can run neither on the simulated driver nor away from the driver. It hears why in one
// line, natively and in a share, beside the error that the runtime library makes of it.
func TestRuntimeLibraryEndsClearly(t *testing.T) {
	s := setting(t)
	libraries, err := filepath.Glob(filepath.Join(s.Folder, "cuda/nvidia/*/lib/libcudart.so.*"))
	if err != nil || len(libraries) != 3 {
		t.Fatalf("runtime libraries: %v, %v, want those of CUDA 11, 12 and 13", libraries, err)
	}
	for _, library := range libraries {
		for _, way := range Ways {
			t.Run(filepath.Base(library)+"/"+way, func(t *testing.T) {
				skipUnable(t, s, way)
				p, err := s.open(t.Context(), "a100-80g", way, 0, 2<<30)
				if err != nil {
					t.Fatal(err)
				}
				defer func() {
					if err := p.close(t.Context()); err != nil {
						t.Error(err)
					}
				}()
				cmd := p.command(t.Context(), p.python("cuda", p.script("runtime.py"), library)...)
				var said strings.Builder
				cmd.Stderr = &said
				text, err := cmd.Output()
				if err != nil {
					t.Fatalf("%v: %s", err, said.String())
				}
				lines, want := strings.Split(strings.TrimSpace(said.String()), "\n"), "simgpu: this program uses the CUDA runtime library"
				lines = slices.DeleteFunc(lines, func(line string) bool { // which is said where it has no processor
					return strings.HasPrefix(line, "divvy: the agent does not answer") && strings.HasSuffix(line, ": waiting for it")
				})
				if isAway(way) {
					want = "divvy: this program needs tables of the driver"
				}
				if len(lines) != 1 || !strings.HasPrefix(lines[0], want) {
					t.Errorf("it hears %q, want one line that begins with %q", lines, want)
				}
				if strings.Contains(string(text), "0") {
					t.Errorf("calls succeed: %s", text)
				}
			})
		}
	}
}
