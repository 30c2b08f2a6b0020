package cdi

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"tags.cncf.io/container-device-interface/pkg/cdi"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/edits"
)

// shareAt is a share whose directory is there.
func shareAt(t *testing.T) edits.Edits {
	t.Helper()
	return edits.Edits{Mounts: []edits.Mount{{Source: t.TempDir(), Target: edits.ShareDir, Options: edits.ReadOnly}}}
}

func TestShares(t *testing.T) {
	s := Shares{Dir: filepath.Join(t.TempDir(), "cdi"), Kind: v1alpha1.CDIKind}
	train, gone := shareAt(t), shareAt(t)
	for name, e := range map[string]edits.Edits{"train": train, "gone": gone} {
		if err := s.Write(name, e); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Write("train", train); err != nil {
		t.Errorf("the same again: %v", err)
	}
	if err := s.Write("train", shareAt(t)); !errors.Is(err, ErrTaken) || strings.Contains(err.Error(), "\n") {
		t.Errorf("another share by that name: %v", err)
	}
	cache, err := cdi.NewCache(cdi.WithSpecDirs(s.Dir), cdi.WithAutoRefresh(false))
	if err != nil {
		t.Fatal(err)
	}
	if found := cache.ListDevices(); strings.Join(found, " ") != "divvy.dev/share=gone divvy.dev/share=train" {
		t.Errorf("runtimes find %v", found)
	}
	if err := os.Remove(gone.Mounts[0].Source); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(s.Dir, "divvy-share-cut.json"), []byte(`{"kind`), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(s.Dir, "nvidia.json"), []byte(`{"kind`), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := s.Sweep(); err != nil {
		t.Error(err)
	}
	left, _ := filepath.Glob(filepath.Join(s.Dir, "*"))
	if len(left) != 2 || filepath.Base(left[0]) != "divvy-share-train.json" || filepath.Base(left[1]) != "nvidia.json" {
		t.Errorf("after a sweep there are %v", left)
	}
	for range 2 {
		if err := s.Remove("train"); err != nil {
			t.Error(err)
		}
	}
}

// What is read of a device is what was written.
func TestReadShare(t *testing.T) {
	s := Shares{Dir: t.TempDir(), Kind: v1alpha1.CDIKind}
	for name, e := range example() {
		if err := s.Write(name, e); err != nil {
			t.Fatal(err)
		}
		if got, err := s.Read(name); err != nil || !reflect.DeepEqual(got, e) {
			t.Errorf("%s: %v, and\n%+v, want\n%+v", name, err, got, e)
		}
	}
	if _, err := s.Read("none"); !errors.Is(err, ErrNone) {
		t.Errorf("no such share: %v", err)
	}
	for name, text := range map[string]string{
		"cut":      `{"kind`,
		"other":    `{"devices": [{"name": "train"}]}`,
		"variable": `{"devices": [{"name": "variable", "containerEdits": {"env": ["A"]}}]}`,
		"block":    `{"devices": [{"name": "block", "containerEdits": {"deviceNodes": [{"path": "/dev/a", "type": "b"}]}}]}`,
		"number":   `{"devices": [{"name": "number", "containerEdits": {"deviceNodes": [{"path": "/dev/a", "type": "c", "major": -1}]}}]}`,
		"null":     `{"devices": [{"name": "null", "containerEdits": {"mounts": [null]}}]}`,
		"hook":     `{"devices": [{"name": "hook", "containerEdits": {"hooks": [{"hookName": "poststop"}]}}]}`,
	} {
		if err := os.WriteFile(filepath.Join(s.Dir, sharesPrefix+name+suffix), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if e, err := s.Read(name); err == nil || errors.Is(err, ErrNone) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, %+v", name, err, e)
		}
	}
}

// Where the directory cannot be made, one line says so.
func TestSharesWithoutADirectory(t *testing.T) {
	file := filepath.Join(t.TempDir(), "cdi")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	s := Shares{Dir: file, Kind: v1alpha1.CDIKind}
	if err := s.Write("train", shareAt(t)); err == nil || !strings.Contains(err.Error(), file) || strings.Contains(err.Error(), "\n") {
		t.Errorf("written: %v", err)
	}
}

func TestNamesOfShares(t *testing.T) {
	for name, fine := range map[string]bool{"train": true, "a": true, "a.b_c-1": true, "": false, "a-": false, "a.": false, "a b": false, "ä": false, "a=b": false} {
		if err := (Shares{}).Check(name); (err == nil) != fine {
			t.Errorf("%q: %v", name, err)
		}
	}
}
