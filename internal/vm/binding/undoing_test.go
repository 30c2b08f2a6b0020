package binding

import (
	"testing"

	"github.com/divvy-gpu/divvy/internal/pci"
)

// What undoes a step is named otherwise than the step.
func TestUndoingNamesTheOtherDirection(t *testing.T) {
	s := Step{Kind: Enable, Device: pci.Address{Bus: 0xc1}, Before: "0", After: "2"}
	if got := s.Undoing(); got != "disable 2 virtual functions of 0000:c1:00.0" {
		t.Error(got)
	}
	for _, kind := range []Kind{Unbind, Override, Probe, Withhold, Enable, Mediate, Back, Type} {
		if s.Kind = kind; s.Undoing() == s.String() {
			t.Errorf("%s: both are %q", kind, s)
		}
	}
}
