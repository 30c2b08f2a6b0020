package main

import (
	"os"
	"testing"
)

// The whole suite is measured although the make that measures was told the figure's id, which it hands on.
func TestMeasureSuite(t *testing.T) {
	t.Chdir(t.TempDir())
	t.Setenv("MAKEFLAGS", "-- ONLY="+kitID)
	t.Setenv("ONLY", kitID)
	if err := os.WriteFile("Makefile", []byte("vm-parts:\n\ttrue\ntest-vm:\n\ttest -z \"$$ONLY\" -a \"$$DIVVY_REQUIRE\" = vm\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if rows, err := measureSuite(t.Context(), false); err != nil || len(rows) != 1 || rows[0].ID != kitID {
		t.Errorf("%+v, %v", rows, err)
	}
}
