package overview

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"
)

func TestTotalsAddWhatIsKnown(t *testing.T) {
	used, busy, idle := uint64(3), 80, 0
	o := New(time.Unix(0, 0))
	o.Nodes = []Node{
		{Name: "a", GPUs: []GPU{{Capacity: 10, Granted: 4, Used: &used, Cores: 30, Utilisation: &busy, Count: 2}, {Capacity: 10, Fault: "lost"}}},
		{Name: "b", GPUs: []GPU{{Capacity: 5, Granted: 6, Cores: 100, Utilisation: &idle, Count: 1}}},
	}
	want := Totals{Nodes: 2, GPUs: 3, Faulty: 1, Shares: 3, Capacity: 25, Granted: 10, Used: 3, Known: 1, Cores: 130, Utilisation: 40, Measured: 2}
	if got := o.Totals(); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if o.Node("b") != &o.Nodes[1] || o.Node("c") != nil {
		t.Error("nodes are not found by their names")
	}
}

func TestCheckRefusesOtherVersions(t *testing.T) {
	text, err := json.Marshal(New(time.Unix(0, 0)))
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"apiVersion":"divvy.dev/v1alpha1","kind":"Overview","time":`; !strings.HasPrefix(string(text), want) || !strings.HasSuffix(string(text), `"nodes":[],"waiting":[]}`) {
		t.Errorf("got %s", text)
	}
	var o Overview
	if err := json.Unmarshal(text, &o); err != nil || o.Check() != nil {
		t.Errorf("what was written is not read: %v, %v", err, o.Check())
	}
	if o.Kind = "List"; !errors.Is(o.Check(), ErrVersion) {
		t.Error("another kind is read")
	}
}
