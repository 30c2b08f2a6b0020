// Package figure is how a test tells a benchmark what it measured: one line of JSON among what the test logs. The same line
// comes from a test on this machine and from one in a guest.
package figure

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
)

// Figure is what one test tells. Unit, goal and direction are the benchmark's.
type Figure struct {
	// ID names the figure, such as vm.bind_s. Case tells rows of one id apart, "" where there is one alone.
	ID   string `json:"id"`
	Case string `json:"case,omitempty"`
	// Values are one for each run.
	Values []float64 `json:"values"`
	// Note says what was counted, for people.
	Note string `json:"note,omitempty"`
}

// mark stands before a figure in its line.
const mark = "figure "

// ErrFigure tells that a line begins as a figure and is none.
var ErrFigure = errors.New("not a figure")

// Tell logs a figure, which go test shows with -v.
func Tell(t testing.TB, f Figure) {
	t.Helper()
	text, err := line(f)
	if err != nil {
		t.Fatal(err)
	}
	t.Log(text)
}

func line(f Figure) (string, error) {
	if err := f.check(); err != nil {
		return "", err
	}
	text, err := json.Marshal(f)
	if err != nil {
		return "", fmt.Errorf("tell %s: %w: %w", f.ID, ErrFigure, err)
	}
	return mark + string(text), nil
}

func (f Figure) check() error {
	if f.ID == "" || len(f.Values) == 0 {
		return fmt.Errorf("%w: it needs an id and values, and has %q and %d", ErrFigure, f.ID, len(f.Values))
	}
	return nil
}

// Read returns the figures in what tests write. It returns ErrFigure where a line begins as one and goes on otherwise.
func Read(from io.Reader) ([]Figure, error) {
	var found []Figure
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		_, text, is := strings.Cut(lines.Text(), mark+"{")
		if !is {
			continue
		}
		decoder := json.NewDecoder(bytes.NewReader([]byte("{" + text)))
		decoder.DisallowUnknownFields()
		var f Figure
		err := decoder.Decode(&f)
		if err == nil {
			err = f.check()
		}
		if err != nil {
			return nil, fmt.Errorf("read %.100q: %w: %w", lines.Text(), ErrFigure, err)
		}
		found = append(found, f)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read figures: %w", err)
	}
	return found, nil
}
