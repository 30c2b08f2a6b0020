package examples

import "testing"

// least is how many examples there are at least, of each of the systems that must be among them.
var least = map[string]int{"hami": 20, "volcano": 15, "kai": 15, "runai": 8, "koordinator": 15, "plugin": 3, "dra": 20, "gpushare": 5, "vgpu-manager": 15,
	"kai-queues": 8, "volcano-queues": 4, "kueue-queues": 2, "koordinator-queues": 3}

func TestExamples(t *testing.T) {
	all, _, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	seen, count := make(map[string]bool), make(map[string]int)
	for _, e := range all {
		name := e.Source + " " + e.Path
		if seen[name] {
			t.Errorf("%s stands twice", name)
		}
		seen[name] = true
		count[e.Source]++
		right, got, err := e.Right()
		switch {
		case err != nil:
			t.Error(err)
		case !right:
			t.Errorf("%s\ngot  %s\nwant %s", name, got, e.Want)
		}
	}
	if len(all) < 150 {
		t.Errorf("there are %d examples", len(all))
	}
	for source, n := range least {
		if count[source] < n {
			t.Errorf("%d examples are of %s", count[source], source)
		}
	}
}

func TestSources(t *testing.T) {
	_, sources, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	for name, source := range sources {
		if source.Repository == "" || source.Read == "" || source.Dialects == "" || source.Known == "" {
			t.Errorf("source %s leaves something out: %+v", name, source)
		}
	}
}

// TestWrongIsSeen makes sure that an outcome other than the wanted one counts as wrong.
func TestWrongIsSeen(t *testing.T) {
	whole := Example{Source: "x", Path: "y", Dialects: "{nvidia: {}}", Containers: []Container{{Name: "main", Limits: map[string]amount{"nvidia.com/gpu": "1"}}}}
	for want, is := range map[string]bool{"main: 1 gpu": true, "main: 2 gpu": false, "left alone": false, "refused: MIG": false} {
		whole.Want = want
		right, got, err := whole.Right()
		if err != nil || right != is {
			t.Errorf("wanted %q, got %q, %v, %v", want, got, right, err)
		}
	}
}
