package cli

import (
	"slices"
	"testing"

	"github.com/divvy-gpu/divvy/internal/agent/control"
)

// A GPU that claims have without a share says so.
func TestOpenGPUs(t *testing.T) {
	var l listing
	l.GPUs = []control.GPU{{Index: 0}, {Index: 1, Open: []string{"monitoring/exporter", "monitoring/other"}}}
	if notes := gpuNotes(l); !slices.Equal(notes, []string{"GPU 1: open without a share to monitoring/exporter, monitoring/other, by admin access"}) {
		t.Errorf("%q", notes)
	}
}
