package checkpoint

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"testing"
)

type state struct {
	Names  []string          `json:"names"`
	Limits map[string]uint64 `json:"limits,omitempty"`
}

func file(t *testing.T) *File[state] {
	t.Helper()
	return NewFile[state](filepath.Join(t.TempDir(), "state.json"), "test", 2)
}

func TestRoundTrip(t *testing.T) {
	f := file(t)
	if got, err := f.Load(); err != nil || !reflect.DeepEqual(got, state{}) {
		t.Fatalf("no file: %+v, %v", got, err)
	}
	for _, want := range []state{
		{Names: []string{"a"}},
		{Names: []string{"<html> & ü \u2028", ""}, Limits: map[string]uint64{"GPU-a": 1<<64 - 1}},
		{},
	} {
		if err := f.Save(want); err != nil {
			t.Fatal(err)
		}
		if got, err := f.Load(); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("saved %+v, loaded %+v, %v", want, got, err)
		}
	}
	for range 2 {
		if err := f.Remove(); err != nil {
			t.Error(err)
		}
	}
}

func TestIndentedFileIsRead(t *testing.T) {
	f := file(t)
	if err := f.Save(state{Names: []string{"a"}}); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(f.path)
	if err != nil {
		t.Fatal(err)
	}
	var pretty bytes.Buffer
	if err := json.Indent(&pretty, data, "", "  "); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Decode(pretty.Bytes()); err != nil {
		t.Error(err)
	}
}

// Every truncation and every changed byte of the state is noticed.
func TestDamageIsNoticed(t *testing.T) {
	f := file(t)
	data, err := f.Encode(state{Names: []string{"abc"}, Limits: map[string]uint64{"x": 123}})
	if err != nil {
		t.Fatal(err)
	}
	for n := range len(data) - 1 { // the last byte is the line's end
		if _, err := f.Decode(data[:n]); err == nil {
			t.Errorf("%d of %d bytes were accepted", n, len(data))
		}
	}
	for i := bytes.Index(data, []byte(`"state"`)) + 8; i < len(data)-2; i++ {
		changed := bytes.Clone(data)
		changed[i] ^= 1
		if _, err := f.Decode(changed); err == nil {
			t.Errorf("a change of byte %d was accepted: %s", i, changed)
		}
	}
}

func TestOtherVersionsAreToldApart(t *testing.T) {
	f := file(t)
	if err := NewFile[state](f.path, "test", 1).Save(state{}); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Load(); !errors.Is(err, ErrVersion) {
		t.Errorf("older version: %v", err)
	}
	if err := NewFile[state](f.path, "other", 2).Save(state{}); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Load(); !errors.Is(err, ErrVersion) {
		t.Errorf("other kind: %v", err)
	}
	aside, err := f.SetAside()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(aside); err != nil {
		t.Error(err)
	}
	if _, err := f.Load(); err != nil {
		t.Errorf("after setting aside: %v", err)
	}
}

func TestFailedSaveKeepsTheOldState(t *testing.T) {
	f := file(t)
	want := state{Names: []string{"old"}}
	if err := f.Save(want); err != nil {
		t.Fatal(err)
	}
	// A folder in the temporary file's place makes every write fail.
	if err := os.Mkdir(f.path+".new", 0o700); err != nil {
		t.Fatal(err)
	}
	if err := f.Save(state{Names: []string{"new"}}); err == nil {
		t.Fatal("the save succeeded")
	}
	if got, err := f.Load(); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("loaded %+v, %v", got, err)
	}
}

func FuzzDecode(f *testing.F) {
	c := NewFile[state]("state.json", "test", 2)
	good, err := c.Encode(state{Names: []string{"a"}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte(`{"kind":"test","version":2,"sha256":"","state":{}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := c.Decode(data)
		if err != nil {
			return
		}
		written, err := c.Encode(got)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := c.Decode(written); err != nil || !reflect.DeepEqual(again, got) {
			t.Fatalf("%+v came back as %+v, %v", got, again, err)
		}
	})
}

func TestOlderVersionsAreRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.json")
	type first struct {
		Name string `json:"name"`
	}
	if err := NewFile[first](path, "test", 1).Save(first{Name: "a"}); err != nil {
		t.Fatal(err)
	}
	older := Older[state]{Version: 1, Decode: func(data []byte) (state, error) {
		old, err := Strict[first](data)
		return state{Names: []string{old.Name}}, err
	}}
	f := NewFile(path, "test", 2, older)
	if got, err := f.Load(); err != nil || !reflect.DeepEqual(got, state{Names: []string{"a"}}) {
		t.Fatalf("loaded %+v, %v", got, err)
	}
	if err := NewFile[map[string]string](path, "test", 1).Save(map[string]string{"title": "a"}); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Load(); !errors.Is(err, ErrDamaged) {
		t.Errorf("a field that the version did not have: %v", err)
	}
	if err := f.Save(state{Names: []string{"b"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := NewFile[first](path, "test", 1).Load(); !errors.Is(err, ErrVersion) {
		t.Errorf("the newer version in an older program: %v", err)
	}
}
