package mig

import (
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/backend"
)

// An error says why, and leaves what was asked for to who asked.
func TestErrorsNameNothingTwice(t *testing.T) {
	b := newBench(t, "h100x8", "gpus[0].migMode=true")
	a := b.agent()
	made, err := a.Create(t.Context(), b.gpu, "1g.10gb", 0, backend.OriginShare)
	if err != nil {
		t.Fatal(err)
	}
	_, again := a.Create(t.Context(), b.gpu, "1g.10gb", 0, backend.OriginShare)
	_, nowhere := a.Create(t.Context(), b.gpu, "1g.10gb", 9, backend.OriginShare)
	gone := a.Destroy(t.Context(), b.gpu, strings.Replace(made.UUID, "MIG-", "MIG-f", 1))
	for what, err := range map[string]error{"taken": again, "no such place": nowhere, "unknown": gone} {
		if err == nil || strings.Contains(err.Error(), "GPU 0") || strings.Contains(err.Error(), "make a MIG instance") || strings.Contains(err.Error(), b.gpu.UUID) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
