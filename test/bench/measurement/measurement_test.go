package measurement

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestSummary(t *testing.T) {
	for _, test := range []struct {
		name          string
		runs          []float64
		better        Direction
		median, worst float64
	}{
		{"odd, lower", []float64{3, 1, 2}, Lower, 2, 3},
		{"even, higher", []float64{4, 1, 2, 3}, Higher, 2.5, 1},
		{"one", []float64{7}, Lower, 7, 7},
	} {
		t.Run(test.name, func(t *testing.T) {
			median, worst := Summary(test.runs, test.better)
			if median != test.median || worst != test.worst {
				t.Errorf("got %v, %v; want %v, %v", median, worst, test.median, test.worst)
			}
		})
	}
}

func TestWanted(t *testing.T) {
	const ids = "time.cap_mae_points time.cap_throughput_percent"
	for prefix, want := range map[string]bool{"": true, "time.cap": true, "time.cap_through": true, "cap": false, "mem": false} {
		if got := wanted(ids, prefix); got != want {
			t.Errorf("wanted(%q) is %v", prefix, got)
		}
	}
}

func TestTakeMeasuresWhatIsAskedFor(t *testing.T) {
	measured := ""
	figure := func(id string) Figure {
		return Figure{id, func() ([]Row, error) {
			measured += " " + id
			return []Row{Of(id, "ns", 10, Lower, "make", 5)}, nil
		}}
	}
	out := filepath.Join(t.TempDir(), "mem.json")
	for prefix, want := range map[string]string{"": " a.one b.two", "b": " b.two", "a.one$": "", "c": ""} {
		measured = ""
		err := Take([]Figure{figure("a.one"), figure("b.two")}, prefix, out, io.Discard)
		if measured != want || errors.Is(err, ErrNone) != (want == "") {
			t.Errorf("%q measures%s: %v", prefix, measured, err)
		}
	}
	if rows, err := Read(out); err != nil || len(rows) != 2 {
		t.Errorf("kept %v: %v", rows, err)
	}
}

func TestMergeReplacesTheSameID(t *testing.T) {
	path := filepath.Join(t.TempDir(), "mem.json")
	first := Of("a", "ns", 10, Lower, "make a", 5, 6, 7)
	other := Of("b", "%", 99, Higher, "make b", 98)
	if err := Merge(path, []Row{first, other}); err != nil {
		t.Fatal(err)
	}
	again := Of("a", "ns", 10, Lower, "make a", 12)
	again.Case = "loaded"
	if err := Merge(path, []Row{again}); err != nil {
		t.Fatal(err)
	}
	rows, err := Read(path)
	if err != nil {
		t.Fatal(err)
	}
	if len(rows) != 2 || rows[0].Case != "loaded" || rows[0].Reached() || rows[1].ID != "b" || rows[1].Reached() {
		t.Errorf("rows after merge: %+v", rows)
	}
	page, err := Table(filepath.Dir(path))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"## mem", "| `a` loaded | 12 ns | ≤ 10 | 12 | 1 | **no** |", "make b"} {
		if !strings.Contains(page, want) {
			t.Errorf("page lacks %q:\n%s", want, page)
		}
	}
}

func TestReadRefusesUnknownFields(t *testing.T) {
	path := filepath.Join(t.TempDir(), "mem.json")
	if err := os.WriteFile(path, []byte(`[{"id":"a","valeu":1}]`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(path); err == nil {
		t.Error("a misspelt field was accepted")
	}
}
