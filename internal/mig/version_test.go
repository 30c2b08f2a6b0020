package mig

import (
	"os"
	"slices"
	"testing"

	"github.com/divvy-gpu/divvy/internal/nvml"
)

// A book of version 1 is read as it was written, and kept as one of today's from the next change on. The file in testdata was
// written by the code of that version.
func TestBookOfVersion1(t *testing.T) {
	text, err := os.ReadFile("testdata/book-1.json")
	if err != nil {
		t.Fatal(err)
	}
	file := path(t)
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	const first, second = "GPU-0a000000-0000-4000-8000-000000000000", "GPU-0a000000-0000-4000-8000-000000000001"
	want := []Entry{
		{GPU: first, Profile: 19, Name: "1g.10gb", Placement: nvml.MIGPlacement{Start: 0, Size: 1}, State: Whole, ID: 7, UUID: "MIG-0b000000-0000-5000-8000-000000000007"},
		{GPU: first, Profile: 9, Name: "3g.40gb", Placement: nvml.MIGPlacement{Start: 4, Size: 4}, State: Ending, ID: 2, Compute: 1, UUID: "MIG-0b000000-0000-5000-8000-000000000002"},
		{GPU: second, Profile: 19, Name: "1g.10gb", Placement: nvml.MIGPlacement{Start: 6, Size: 1}, State: Half, ID: 13},
		{GPU: second, Profile: 14, Name: "2g.20gb", Placement: nvml.MIGPlacement{Start: 2, Size: 2}, State: Making},
	}
	b := open(t, file, newGPU())
	if got := b.Entries(); !slices.Equal(got, want) {
		t.Fatalf("read %+v, want %+v", got, want)
	}
	if err := b.Claim(t.Context(), want[0].UUID, "layout"); err != nil {
		t.Fatal(err)
	}
	want[0].Origin = "layout"
	if got := open(t, file, newGPU()).Entries(); !slices.Equal(got, want) {
		t.Errorf("kept %+v, want %+v", got, want)
	}
}
