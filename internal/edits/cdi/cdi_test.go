package cdi

import (
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	oci "github.com/opencontainers/runtime-spec/specs-go"
	"tags.cncf.io/container-device-interface/pkg/cdi"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/edits"
)

var update = flag.Bool("update", false, "rewrite golden files")

func example() map[string]edits.Edits {
	return map[string]edits.Edits{
		"b": {Env: []edits.Env{{Name: "A", Value: "1"}}},
		"a": {
			Mounts: []edits.Mount{
				{Source: "/dev/shm/t", Target: edits.ShareDir, Options: edits.ReadOnly},
				{Source: "/dev/shm/t/state", Target: edits.ShareDir + "/state", Options: edits.ReadWrite},
			},
			Devices: []edits.Device{{Path: "/dev/nvidia0", Source: "/dev/nvidia0", Major: 195}},
			Hooks: []edits.Hook{
				{Path: "/dev/shm/t/cover", Args: []string{"cover", "x"}},
				{Path: "/dev/shm/t/cover", Args: []string{"cover", "y"}, Outside: true},
			},
			Env: []edits.Env{{Name: "NVIDIA_VISIBLE_DEVICES", Value: "void"}, {Name: "EMPTY", Value: ""}},
		},
	}
}

func TestSpecIsGolden(t *testing.T) {
	spec, err := Spec(v1alpha1.CDIKind, example())
	if err != nil {
		t.Fatal(err)
	}
	got, err := json.MarshalIndent(spec, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	got = append(got, '\n')
	path := filepath.Join("testdata", "share.json")
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != string(want) {
		t.Errorf("differs from %s (go test -update rewrites it):\n%s", path, got)
	}
}

// A runtime takes the written file up as it was meant.
func TestARuntimeInjectsIt(t *testing.T) {
	dir := t.TempDir()
	spec, err := Spec(v1alpha1.CDIKind, example())
	if err != nil {
		t.Fatal(err)
	}
	if err := Write(dir, "divvy.dev-1", spec); err != nil {
		t.Fatal(err)
	}
	cache, err := cdi.NewCache(cdi.WithSpecDirs(dir), cdi.WithAutoRefresh(false))
	if err != nil {
		t.Fatal(err)
	}
	container := &oci.Spec{
		Process: &oci.Process{Env: []string{"NVIDIA_VISIBLE_DEVICES=all"}},
		Mounts:  []oci.Mount{{Destination: "/run/divvy/share/state/deeper"}, {Destination: edits.ShareDir, Source: "/mine"}},
	}
	if missing, err := cache.InjectDevices(container, v1alpha1.CDIKind+"=a"); err != nil || len(missing) > 0 {
		t.Fatalf("%v, not found: %v", err, missing)
	}
	var order []string
	for _, m := range container.Mounts {
		order = append(order, m.Destination)
	}
	if want := []string{edits.ShareDir, edits.ShareDir + "/state", "/run/divvy/share/state/deeper"}; !slices.Equal(order, want) {
		t.Errorf("mounts %v, want %v", order, want)
	}
	if container.Mounts[0].Source != "/dev/shm/t" {
		t.Errorf("the container's own mount is left at %s: %+v", edits.ShareDir, container.Mounts[0])
	}
	if !slices.Contains(container.Process.Env, "NVIDIA_VISIBLE_DEVICES=void") || slices.Contains(container.Process.Env, "NVIDIA_VISIBLE_DEVICES=all") {
		t.Errorf("environment %q", container.Process.Env)
	}
	if len(container.Linux.Devices) != 1 || len(container.Linux.Resources.Devices) != 1 || container.Linux.Resources.Devices[0].Access != "rw" {
		t.Errorf("devices %+v", container.Linux)
	}
}

func TestSpecRefuses(t *testing.T) {
	one := func(e edits.Edits) map[string]edits.Edits { return map[string]edits.Edits{"a": e} }
	for name, c := range map[string]struct {
		kind    string
		devices map[string]edits.Edits
	}{
		"no devices":    {v1alpha1.CDIKind, nil},
		"no class":      {v1alpha1.Driver, example()},
		"odd vendor":    {"-/share", example()},
		"odd name":      {v1alpha1.CDIKind, map[string]edits.Edits{"a b": {}}},
		"binds":         {v1alpha1.CDIKind, one(edits.Edits{Binds: []edits.Bind{{Source: "/a", Target: "/b"}}})},
		"prepended":     {v1alpha1.CDIKind, one(edits.Edits{Env: []edits.Env{{Name: "A", Value: "1", Prepend: true}}})},
		"unnamed":       {v1alpha1.CDIKind, one(edits.Edits{Env: []edits.Env{{Value: "1"}}})},
		"two at once":   {v1alpha1.CDIKind, one(edits.Edits{Env: []edits.Env{{Name: "A=B", Value: "1"}}})},
		"relative path": {v1alpha1.CDIKind, one(edits.Edits{Mounts: []edits.Mount{{Source: "a", Target: "/b"}}})},
	} {
		if spec, err := Spec(c.kind, c.devices); !errors.Is(err, ErrSpec) {
			t.Errorf("%s: %+v, %v; want ErrSpec", name, spec, err)
		}
	}
}

func TestFilesOfSpecifications(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cdi")
	if names, err := List(dir, ""); err != nil || names != nil {
		t.Errorf("without a directory: %v, %v", names, err)
	}
	spec := &specs.Spec{Version: "0.3.0", Kind: v1alpha1.CDIKind}
	for _, name := range []string{"divvy.dev-2", "divvy.dev-1", "divvy.dev-1.json", "other"} {
		if err := Write(dir, name, spec); err != nil {
			t.Fatal(err)
		}
	}
	// What a Write leaves that was interrupted, and what is not ours.
	for _, file := range []string{"divvy.dev-3.json.new", "divvy.dev-1.json.new", "divvy.dev-4.yaml", "divvy.dev-5.new"} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte("{"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{"divvy.dev-1", "divvy.dev-2", "divvy.dev-3"}
	if names, err := List(dir, "divvy.dev-"); err != nil || !slices.Equal(names, want) {
		t.Errorf("%v, %v; want %v", names, err, want)
	}
	if info, err := os.Stat(filepath.Join(dir, "divvy.dev-1.json")); err != nil || info.Mode().Perm() != 0o644 {
		t.Errorf("%v, %v", info, err)
	}
	for range 2 {
		for _, name := range want {
			if err := Remove(dir, name); err != nil {
				t.Error(err)
			}
		}
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 3 {
		t.Errorf("left: %v, %v", left, err)
	}
	for _, name := range []string{"", "../x", ".hidden", "a/b", "a\x00"} {
		if err := errors.Join(Write(dir, name, spec)); !errors.Is(err, ErrSpec) {
			t.Errorf("write %q: %v", name, err)
		}
		if err := Remove(dir, name); !errors.Is(err, ErrSpec) {
			t.Errorf("remove %q: %v", name, err)
		}
	}
}

func TestFailedWriteLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "a.json"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "a.json", "x"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := Write(dir, "a", &specs.Spec{}); err == nil {
		t.Error("a directory was replaced")
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 || strings.HasSuffix(entries[0].Name(), ".new") {
		t.Errorf("left: %v, %v", entries, err)
	}
}
