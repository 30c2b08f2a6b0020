// Package backendtest holds backends' plans against golden files, in tests.
package backendtest

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/divvy-gpu/divvy/internal/backend"
)

// Golden compares a plan with testdata/NAME.json, or with update writes that.
func Golden(t *testing.T, name string, plan *backend.Plan, update bool) {
	t.Helper()
	var got bytes.Buffer
	encoder := json.NewEncoder(&got)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(plan); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join("testdata", name+".json")
	if update {
		if err := os.WriteFile(path, got.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got.String() != string(want) {
		t.Errorf("plan differs from %s (go test -update rewrites it):\n%s", path, got.String())
	}
}
