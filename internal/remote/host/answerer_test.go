package host

import (
	"testing"

	"github.com/divvy-gpu/divvy/internal/remote/line"
	"github.com/divvy-gpu/divvy/internal/remote/wire"
)

// A client that waits for a share goes, and with it the server's end of the line: nobody is there to be told, which is no fault.
func TestHolderWithoutServer(t *testing.T) {
	ours, theirs, err := line.Pair(maxOrder)
	if err != nil {
		t.Fatal(err)
	}
	if err := ours.Say(order{Spec: &Spec{}}, nil); err != nil {
		t.Fatal(err)
	}
	h, _, err := Hold(theirs)
	if err != nil {
		t.Fatal(err)
	}
	if err := ours.Close(); err != nil {
		t.Fatal(err)
	}
	for name, err := range map[string]error{"refuse": h.Refuse(wire.Refused{Text: "why"}), "grant": h.Grant(wire.Granted{}), "end": h.End("why")} {
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := h.End(string(make([]byte, maxOrder))); err == nil {
		t.Error("what is too long to be told is told")
	}
}
