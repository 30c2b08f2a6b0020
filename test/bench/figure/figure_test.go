package figure

import (
	"errors"
	"reflect"
	"strings"
	"testing"
)

// What one test tells, a benchmark reads out of what go test shows.
func TestToldAndRead(t *testing.T) {
	told := []Figure{
		{ID: "vm.bind_s", Values: []float64{0.25}},
		{ID: "vm.stuck_s", Case: "other \"requests\"\n", Values: []float64{0, 1e-3}, Note: "of {1} holder"},
	}
	shown := "=== RUN   TestBind\n"
	for _, f := range told {
		text, err := line(f)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(text, "\n") {
			t.Errorf("%q has more than one line", text)
		}
		shown += "    bind_test.go:12: " + text + "\n    other words\n"
	}
	if got, err := Read(strings.NewReader(shown + "PASS\n")); err != nil || !reflect.DeepEqual(got, told) {
		t.Errorf("read %+v, %v; want %+v", got, err, told)
	}
}

func TestBrokenFiguresAreErrors(t *testing.T) {
	for _, text := range []string{
		`figure {"id":"vm.bind_s","values":[1]`, `figure {"id":"vm.bind_s","valeus":[1]}`, `figure {"id":"vm.bind_s"}`, `figure {"values":[1]}`,
	} {
		if got, err := Read(strings.NewReader(text + "\n")); !errors.Is(err, ErrFigure) {
			t.Errorf("%s is read as %v, %v", text, got, err)
		}
	}
	for _, f := range []Figure{{ID: "vm.bind_s"}, {Values: []float64{1}}} {
		if text, err := line(f); !errors.Is(err, ErrFigure) {
			t.Errorf("%+v is told as %s, %v", f, text, err)
		}
	}
}
