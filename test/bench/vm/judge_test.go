package main

import (
	"errors"
	"testing"

	"github.com/divvy-gpu/divvy/test/bench/figure"
	"github.com/divvy-gpu/divvy/test/bench/measurement"
)

var stuck = source{rows: []row{
	{id: "vm.stuck_s", word: "named", unit: "s", goal: 2, better: measurement.Lower},
	{id: "vm.stuck_s", word: "others", unit: "s", goal: 0.1, better: measurement.Lower},
}}

func told(word string, values ...float64) figure.Figure {
	return figure.Figure{ID: "vm.stuck_s", Case: word, Values: values, Note: word + " is told"}
}

func TestJudge(t *testing.T) {
	failed := errors.New("exit status 1")
	for name, test := range map[string]struct {
		told   []figure.Figure
		failed error
		want   error
		values []float64
	}{
		"told":                 {[]figure.Figure{told("named", 1), told("others", 0.05)}, nil, nil, []float64{1, 0.05}},
		"added of two guests":  {[]figure.Figure{told("named", 1), told("named", 0.5), told("others", 0)}, nil, nil, []float64{1.5, 0}},
		"a missed goal stays":  {[]figure.Figure{told("named", 3), told("others", 0)}, failed, nil, []float64{3, 0}},
		"failed for no figure": {[]figure.Figure{told("named", 1), told("others", 0)}, failed, errFailed, nil},
		"untold":               {[]figure.Figure{told("named", 1)}, nil, errUntold, nil},
		"of no row":            {[]figure.Figure{told("named", 1), told("others", 0), told("third", 0)}, nil, errUnknown, nil},
	} {
		rows, err := stuck.judge(test.told, test.failed)
		if !errors.Is(err, test.want) {
			t.Errorf("%s: %v, want %v", name, err, test.want)
		}
		for i, want := range test.values {
			if i >= len(rows) || rows[i].Value != want || rows[i].Case != stuck.rows[i].word || rows[i].Note == "" {
				t.Errorf("%s: rows %+v, want %v", name, rows, test.values)
			}
		}
	}
	if ids := stuck.ids(); ids != "vm.stuck_s" {
		t.Errorf("its ids are %q", ids)
	}
}

// Each row is one of a benchmark's ids, no two are the same, and the rows of an id are of one source.
func TestSources(t *testing.T) {
	seen, owner := map[string]bool{}, map[string]int{}
	for i, s := range sources {
		if len(s.tests) == 0 || len(s.rows) == 0 {
			t.Errorf("%+v has no tests or no row", s)
		}
		for _, r := range s.rows {
			if seen[r.id+" "+r.word] || r.unit == "" || r.better == "" {
				t.Errorf("the row %+v is there twice, or lacks its unit or direction", r)
			}
			seen[r.id+" "+r.word] = true
			if first, is := owner[r.id]; is && first != i {
				t.Errorf("%s has rows of two sources, of which the second would overwrite the first", r.id)
			}
			owner[r.id] = i
		}
	}
}
