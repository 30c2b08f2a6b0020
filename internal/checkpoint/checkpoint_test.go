package checkpoint

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"syscall"
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

// Every truncation and every changed byte is noticed, or changes nothing.
func TestDamageIsNoticed(t *testing.T) {
	f := file(t)
	want := state{Names: []string{"abc"}, Limits: map[string]uint64{"x": 123}}
	data, err := f.Encode(want)
	if err != nil {
		t.Fatal(err)
	}
	for n := range len(data) - 1 { // the last byte is the line's end
		if _, err := f.Decode(data[:n]); !errors.Is(err, ErrDamaged) {
			t.Errorf("%d of %d bytes: %v", n, len(data), err)
		}
	}
	for i := range data {
		for change := range 256 {
			changed := bytes.Clone(data)
			changed[i] ^= byte(change)
			got, err := f.Decode(changed)
			if err == nil && !reflect.DeepEqual(got, want) || err != nil && !errors.Is(err, ErrDamaged) && !errors.Is(err, ErrVersion) {
				t.Fatalf("byte %d changed: %+v, %v: %s", i, got, err, changed)
			}
		}
	}
}

// What stands in a checkpoint's place and is none is damage too: it is neither waited
// for, nor followed, nor read without end. Setting it aside makes room for the next.
func TestWhatIsNoCheckpoint(t *testing.T) {
	for name, put := range map[string]func(path string) error{
		"a folder":            func(path string) error { return os.Mkdir(path, 0o700) },
		"a folder with files": func(path string) error { return os.MkdirAll(filepath.Join(path, "x"), 0o700) },
		"a pipe":              func(path string) error { return syscall.Mkfifo(path, 0o600) },
		"a link":              func(path string) error { return os.Symlink("/dev/zero", path) },
		"a link to nothing":   func(path string) error { return os.Symlink("nothing", path) },
		"endless": func(path string) error {
			return errors.Join(os.WriteFile(path, nil, 0o600), os.Truncate(path, 1<<40))
		},
		"empty": func(path string) error { return os.WriteFile(path, nil, 0o600) },
	} {
		t.Run(name, func(t *testing.T) {
			f := file(t)
			for range 3 { // what was set aside before is in nobody's way
				if err := put(f.path); err != nil {
					t.Fatal(err)
				}
				if _, err := f.Load(); !errors.Is(err, ErrDamaged) {
					t.Fatalf("loaded: %v", err)
				}
				aside, err := f.SetAside()
				if err != nil {
					t.Fatal(err)
				}
				if _, err := os.Lstat(aside); err != nil {
					t.Error(err)
				}
			}
			if err := f.Save(state{Names: []string{"a"}}); err != nil {
				t.Fatal(err)
			}
			if got, err := f.Load(); err != nil || len(got.Names) != 1 {
				t.Errorf("then loaded %+v, %v", got, err)
			}
		})
	}
}

// Another user's file is not what this program saved.
func TestForeignCheckpoint(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root gives files away")
	}
	f := file(t)
	if err := errors.Join(f.Save(state{Names: []string{"a"}}), os.Chown(f.path, 1, 1)); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Load(); !errors.Is(err, ErrDamaged) {
		t.Errorf("loaded: %v", err)
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
