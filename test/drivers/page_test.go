package drivers

import (
	"errors"
	"slices"
	"testing"
)

func TestTable(t *testing.T) {
	rows := []Row{{
		Driver: Driver{Version: "550.163.01", Release: "550.163.01-2"}, CUDA: 12040,
		Answers: map[string]int{"names": 999, "look-ups": 1540145}, Differences: 3,
	}}
	want := `| driver | Debian's package | CUDA | names | look-ups | differences |
|---|---|---|---|---|---|
| 550.163.01 | 550.163.01-2 | 12.4 | 999 | 1,540,145 | 3 |
`
	if got := table(rows, []string{"names", "look-ups"}); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestBetween(t *testing.T) {
	text := "prose\n<!-- a: generated -->\nold\n<!-- end of a -->\nmore\n"
	changed, old, err := between(text, "a", "new\n")
	must(t, err)
	if want := "prose\n<!-- a: generated -->\nnew\n<!-- end of a -->\nmore\n"; changed != want || old != "old\n" {
		t.Errorf("%q, before %q; want %q", changed, old, want)
	}
	if _, _, err := between(text, "b", ""); !errors.Is(err, ErrPage) {
		t.Errorf("without its lines: %v, want %v", err, ErrPage)
	}
}

func TestStale(t *testing.T) {
	old := "| 1.0 | a |\n| 2.0 | b |\n* way\n"
	for name, c := range map[string]struct {
		text     string
		versions []string
		want     []string
	}{
		"the same":             {old, []string{"1.0", "2.0"}, nil},
		"a driver is not here": {"| 1.0 | a |\n* way\n", []string{"1.0"}, nil},
		"another figure":       {"| 1.0 | a |\n| 2.0 | c |\n* way\n", []string{"1.0", "2.0"}, []string{"lacks | 2.0 | c |", "has | 2.0 | b |"}},
		"one way less":         {"| 1.0 | a |\n| 2.0 | b |\n", []string{"1.0", "2.0"}, []string{"has * way"}},
		"a driver that is new": {"| 3.0 | a |\n" + old, []string{"1.0", "2.0", "3.0"}, []string{"lacks | 3.0 | a |"}},
	} {
		if got := stale(old, c.text, c.versions); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
