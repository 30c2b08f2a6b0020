package mps

import (
	"fmt"

	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/process"
)

// where names a GPU, or the MIG instance of one, for people.
func where(gpu backend.GPU) string {
	if gpu.Instance.UUID == "" {
		return fmt.Sprintf("GPU %d", gpu.Index)
	}
	return fmt.Sprintf("MIG instance %s at slice %d of GPU %d", gpu.Instance.Profile, gpu.Instance.Start, gpu.Index)
}

// noteOf is a remark about a GPU, with the process that it is about, if any.
func noteOf(gpu backend.GPU, by process.ID, text string) backend.Incident {
	return backend.Incident{UUID: gpu.UUID, Note: true, By: by, Text: text}
}

// setsModes reports whether the compute mode of a GPU is set for its daemon. A MIG instance has none of its own: the mode would
// be that of all instances.
func (b *Backend) setsModes(gpu backend.GPU) bool {
	return b.options.Modes != nil && gpu.Instance.UUID == ""
}
