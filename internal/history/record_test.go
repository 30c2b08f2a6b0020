package history

import (
	"bytes"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

var noon = time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)

func example() Record {
	return Record{
		Version: Version, Kind: KindEnd, Node: "lab1", From: noon, At: noon.Add(30 * time.Minute), ID: "t7", Name: "train", UID: 1001, User: "ada",
		Command: []string{"python", "train.py", "--lr", "1"}, Began: noon.Add(-time.Hour), GPU: 1, UUID: "GPU-1", Backend: "slice", Policy: "fixed", Granted: 8 << 30, Cores: 30,
		Peak: 5 << 30, Figures: Figures{Used: 6e11, Entitled: 5e11, Held: 1e9, Refused: 2}, Total: Figures{Used: 9e11}, Ended: "its last process is gone",
	}
}

func TestRecordIsReadAsWritten(t *testing.T) {
	want := example()
	line, err := want.Encode()
	if err != nil {
		t.Fatal(err)
	}
	got, err := Decode(line)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v\n%+v\n%+v", err, got, want)
	}
}

// Whatever a line holds, what is read of it is bounded and can be shown and added up.
func TestNonsenseIsBounded(t *testing.T) {
	r := example()
	r.From, r.At, r.Began = noon.Add(time.Hour), noon, noon.AddDate(9000, 0, 0)
	r.Name, r.User = strings.Repeat("é", 1e6), "\xff\xfe=cmd()"
	r.Command = []string{strings.Repeat("x", 1e6), "never kept"}
	r.Used, r.Held, r.Refused, r.Peak, r.Granted = math.MaxUint64, math.MaxUint64, math.MaxUint64, math.MaxUint64, math.MaxUint64
	r.Cores, r.GPU, r.UID = -5, math.MaxInt, -1
	line, err := r.Encode()
	if err != nil {
		t.Fatal(err)
	}
	got, err := Decode(line)
	if err != nil {
		t.Fatal(err)
	}
	if got.From.After(got.At) || got.Began.After(got.From) || got.Used > got.Wall() || got.Peak > mostBytes || got.Cores != 0 || got.GPU > math.MaxUint16 || got.UID != 0 {
		t.Errorf("%+v", got)
	}
	if len(got.Name) > mostText || len(got.Command) != 1 || len(got.Command[0]) > mostCommand || !utf8.ValidString(got.User) || !utf8.ValidString(got.Name) {
		t.Errorf("%d bytes of name, %d arguments, user %q", len(got.Name), len(got.Command), got.User)
	}
}

func TestWhatIsNoRecord(t *testing.T) {
	for line, want := range map[string]error{
		"": ErrLine, "{": ErrLine, "null": ErrVersion, "[]": ErrLine, `{"v":2,"kind":"end"}`: ErrVersion, `{"v":1,"kind":"x"}`: ErrLine, `{"v":1,"kind":"end","peak":-1}`: ErrLine,
		`{"v":1,"kind":"end","peak":1e400}`: ErrLine, `{"v":1,"kind":"end","at":"yesterday"}`: ErrLine, `{"v":1} {"v":1}`: ErrLine, strings.Repeat(" ", MostLine+1): ErrLine,
	} {
		if _, err := Decode([]byte(line)); !errors.Is(err, want) {
			t.Errorf("%.40q: %v, want %v", line, err, want)
		}
	}
}

func FuzzDecode(f *testing.F) {
	r := example()
	line, err := r.Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(line)
	f.Add([]byte(`{"v":1,"kind":"node","at":"9999-12-31T23:59:59.999999999+23:59","gpus":[{"index":-1}]}`))
	f.Add([]byte(`{"v":1,"kind":"many","wallNanoseconds":18446744073709551615,"name":"\ud800\u0000\n"}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		r, err := Decode(line)
		if err != nil {
			return
		}
		once, err := r.Encode()
		if err != nil || len(once) > MostLine || bytes.IndexByte(once, '\n') != len(once)-1 || !utf8.Valid(once) {
			t.Fatalf("%v: %q", err, once)
		}
		again, err := Decode(once)
		if err != nil || !reflect.DeepEqual(r, again) {
			t.Fatalf("%v\n%+v\n%+v", err, r, again)
		}
		Sum([]Record{r, again}, Columns, time.UTC)
	})
}

func TestSumsThatBeganAnew(t *testing.T) {
	before := Figures{Used: 10, Entitled: 20, Held: 30, Refused: 4}
	if got := (Figures{Used: 15, Entitled: 5, Held: 30, Refused: 5}).Since(before); got != (Figures{Used: 5, Entitled: 5, Held: 0, Refused: 1}) {
		t.Errorf("%+v", got)
	}
}

// A command is measured as it is written: what is escaped costs its place.
func TestCommandIsMeasuredAsWritten(t *testing.T) {
	for _, of := range []string{"\x01", "\"", "\u2028", "x", "é"} {
		r := example()
		r.Command = nil
		bare, err := r.Encode()
		if err != nil {
			t.Fatal(err)
		}
		r.Command = []string{strings.Repeat(of, 1000), "more"}
		line, err := r.Encode()
		if err != nil || len(line)-len(bare) > mostCommand+len(`"command":["",""],`) {
			t.Errorf("%q: %d bytes of a command, %v", of, len(line)-len(bare), err)
		}
		if got, err := Decode(line); err != nil || !reflect.DeepEqual(got.Command, r.Command) {
			t.Errorf("%q: %v", of, err)
		}
	}
}
