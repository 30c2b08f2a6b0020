package programs

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

// suspended is what the script prints.
type suspended struct {
	States []string `json:"states"`
	// Early and Gone are the refusals of a checkpoint before the lock, and of a lock when the process has ended.
	Early string `json:"early"`
	Gone  string `json:"gone"`
	// Memory is what the program says of its memory afterwards.
	Memory string `json:"memory"`
	Thread int    `json:"thread"`
}

// NVIDIA's own module for checkpoints takes a process off its GPU and brings it back: natively, and in a share, whose
// library stands between both programs and the driver.
func TestModuleForCheckpointsSuspendsAProcess(t *testing.T) {
	s := setting(t)
	for _, way := range []string{Natively, "namespace", "env"} {
		t.Run(way, func(t *testing.T) {
			skipUnable(t, s, way)
			told, err := suspend(t.Context(), s, way)
			if err != nil {
				t.Fatal(err)
			}
			if want := []string{"running", "locked", "checkpointed", "locked", "running"}; !slices.Equal(told.States, want) {
				t.Errorf("states are %q, want %q", told.States, want)
			}
			if told.Memory != "same" || told.Thread == 0 {
				t.Errorf("memory is %q afterwards, the restore thread is %d", told.Memory, told.Thread)
			}
			if !strings.Contains(told.Early, "CUDA_ERROR_ILLEGAL_STATE") || !strings.Contains(told.Gone, "CUDA_ERROR_INVALID_VALUE") {
				t.Errorf("refusals are %q before the lock, %q after the end", told.Early, told.Gone)
			}
		})
	}
}

// suspend has the script do it on a machine of its own, whose driver has checkpoints.
func suspend(ctx context.Context, s Setting, way string) (told suspended, err error) {
	p, err := s.open(ctx, "b200x8", way, 0, 4<<30)
	if err != nil {
		return told, err
	}
	text, err := output(p.command(ctx, p.python("checkpoint", p.script("checkpoint.py"))...))
	if err == nil {
		err = json.Unmarshal([]byte(text), &told)
	}
	if ended := p.close(ctx); err == nil {
		err = ended
	}
	return told, err
}
