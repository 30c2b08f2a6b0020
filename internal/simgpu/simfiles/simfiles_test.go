package simfiles

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestShared(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"memory-1", "memory-0", "state", "info.json", "agent.sock"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Shared(dir); err == nil || !strings.Contains(err.Error(), "divvy simgpu start") {
		t.Errorf("without exports: have %v, want what to do", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "exports"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	files, err := Shared(dir)
	if err != nil {
		t.Fatal(err)
	}
	for i := range files {
		files[i] = filepath.Base(files[i])
	}
	if want := []string{"memory-0", "memory-1", "state", "exports"}; !slices.Equal(files, want) {
		t.Errorf("have %q, want %q", files, want)
	}
}

func TestInstance(t *testing.T) {
	for _, instance := range []string{"lab", "/dev/shm/divvy-0/simgpu/lab"} {
		if have := Instance("/run/divvy", instance); have != "/run/divvy/simgpu/lab" {
			t.Errorf("%s: have %s", instance, have)
		}
	}
}
