package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/history"
)

var noon = time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)

func one(name string, at time.Time) history.Record {
	return history.Record{Kind: history.KindEnd, Node: "lab1", ID: name, Name: name, UUID: "GPU-1", Began: at.Add(-time.Minute), From: at.Add(-time.Minute), At: at}
}

// open is a history whose writer runs until the test ends.
type open struct {
	*Store
	dir string

	mu   sync.Mutex
	told []string
}

func start(t *testing.T, dir string, limits Limits) *open {
	t.Helper()
	o := &open{dir: dir, Store: New(Config{Dir: dir, Limits: limits, Now: func() time.Time { return noon }, Retry: time.Millisecond})}
	o.Start(func(text string, _ bool) {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.told = append(o.told, text)
	})
	t.Cleanup(o.Close)
	return o
}

func (o *open) said() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return strings.Join(o.told, "\n")
}

// names are those of all records, read page by page.
func names(t *testing.T, dir string) (all, faults []string) {
	t.Helper()
	for at := (&Cursor{}); at != nil; {
		page, err := ReadDir(dir, *at)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range page.Records {
			all = append(all, r.Name)
		}
		faults, at = append(faults, page.Faults...), page.Next
	}
	return all, faults
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	deadline := time.After(5 * time.Minute)
	for !holds() {
		select {
		case <-deadline:
			t.Fatalf("it did not happen that %s", what)
		case <-time.After(time.Millisecond):
		}
	}
}

func TestRecordsSurvive(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state", "history")
	o := start(t, dir, Usual)
	o.Add(one("a", noon), one("b", noon.AddDate(0, 0, -1)), one("c", noon))
	o.Close()
	if all, faults := names(t, dir); strings.Join(all, "") != "bac" || faults != nil {
		t.Errorf("%q, %q", all, faults)
	}
	for _, path := range []string{dir, filepath.Join(dir, "2026-11-24.jsonl")} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s: %v, %v", path, info.Mode(), err)
		}
	}
	next := start(t, dir, Usual)
	next.Add(one("d", noon))
	next.Close()
	if all, _ := names(t, dir); strings.Join(all, "") != "bacd" {
		t.Errorf("%q", all)
	}
}

// The last records of an agent do not bring back a machine that was stopped.
func TestWhatHeldItIsGone(t *testing.T) {
	machine := filepath.Join(t.TempDir(), "machine")
	o := New(Config{Dir: filepath.Join(machine, "history"), Inside: machine, Limits: Usual, Now: time.Now})
	o.Start(func(text string, _ bool) { t.Error(text) })
	o.Add(one("a", noon))
	o.Close()
	if _, err := os.Stat(machine); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the machine's directory: %v", err)
	}
}

// A folder that was opened to others is closed again before anything is written or read there.
func TestOthersCannotRead(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "2026-11-24.jsonl"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	o := start(t, dir, Usual)
	o.Add(one("a", noon))
	o.Close()
	for _, path := range []string{dir, filepath.Join(dir, "2026-11-24.jsonl")} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s: %v, %v", path, info.Mode(), err)
		}
	}
}

// The end of a machine may leave half a line. It is told, and costs no other record.
func TestTornLine(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "2026-11-24.jsonl")
	o := start(t, dir, Usual)
	o.Add(one("a", noon))
	o.Close()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, append(text, text[:len(text)/2]...), 0o600); err != nil {
		t.Fatal(err)
	}
	if all, faults := names(t, dir); strings.Join(all, "") != "a" || len(faults) != 1 || !strings.Contains(faults[0], "is not complete") {
		t.Errorf("%q, %q", all, faults)
	}
	next := start(t, dir, Usual)
	next.Add(one("b", noon))
	next.Close()
	if all, faults := names(t, dir); strings.Join(all, "") != "ab" || len(faults) != 1 || !strings.Contains(faults[0], "1 lines that are no records") {
		t.Errorf("%q, %q", all, faults)
	}
}

// What is no record is left out: lines of a megabyte, bytes that are no text, other versions, and files of nothing else.
func TestNonsense(t *testing.T) {
	dir := t.TempDir()
	r := one("a", noon)
	good, err := r.Encode()
	if err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf("%s%s\n\xff\xfe\n{\"v\":9}\n\n%s", good, strings.Repeat("x", 1<<20), good)
	if err := os.WriteFile(filepath.Join(dir, "2026-11-24.jsonl"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	huge, err := os.Create(filepath.Join(dir, "2026-11-23.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	if err := huge.Truncate(10 << 30); err != nil { // no byte of it lies on the disk
		t.Fatal(err)
	}
	if err := huge.Close(); err != nil {
		t.Fatal(err)
	}
	all, faults := names(t, dir)
	if strings.Join(all, "") != "aa" {
		t.Errorf("%q", all)
	}
	if said := strings.Join(faults, "\n"); !strings.Contains(said, "2026-11-23.jsonl has 10240 MiB") || !strings.Contains(said, "2026-11-24.jsonl has 3 lines that are no records") || len(faults) > 4 {
		t.Errorf("%q", faults)
	}
}

// What is in the folder's place, or in a file's, is not followed and not waited for.
func TestWhatIsInThePlace(t *testing.T) {
	elsewhere := filepath.Join(t.TempDir(), "elsewhere")
	for name, make := range map[string]func(dir string) error{
		"link to a folder": func(dir string) error { return os.Symlink(filepath.Dir(elsewhere), dir) },
		"link to nothing":  func(dir string) error { return os.Symlink(elsewhere, dir) },
		"file":             func(dir string) error { return os.WriteFile(dir, nil, 0o600) },
		"link to a file": func(dir string) error {
			return joined(os.Mkdir(dir, 0o700), os.WriteFile(elsewhere, []byte("kept"), 0o600), os.Symlink(elsewhere, filepath.Join(dir, "2026-11-24.jsonl")))
		},
		"second name of a file": func(dir string) error {
			return joined(os.Mkdir(dir, 0o700), os.Link(elsewhere, filepath.Join(dir, "2026-11-24.jsonl")))
		},
		"folder": func(dir string) error { return os.MkdirAll(filepath.Join(dir, "2026-11-24.jsonl"), 0o700) },
	} {
		_ = os.WriteFile(elsewhere, []byte("kept"), 0o600)
		if name == "link to nothing" {
			_ = os.Remove(elsewhere)
		}
		dir := filepath.Join(t.TempDir(), "history")
		if err := make(dir); err != nil {
			t.Fatal(err)
		}
		o := start(t, dir, Usual)
		o.Add(one("a", noon))
		eventually(t, name+" is told", func() bool { return strings.Contains(o.said(), "the history is not written") })
		if text, err := os.ReadFile(elsewhere); err == nil && string(text) != "kept" {
			t.Errorf("%s: written to %q", name, text)
		}
		// In one step: the writer makes a new folder as soon as it can.
		if err := os.Rename(dir, filepath.Join(t.TempDir(), "aside")); err != nil {
			t.Fatal(err)
		}
		eventually(t, name+" is gone and the history written", func() bool { return strings.Contains(o.said(), "is written again; nothing of it is lost") })
		if strings.Count(o.said(), "\n") != 1 {
			t.Errorf("%s: told %q", name, o.said())
		}
		o.Add(one("b", noon))
		o.Close()
		if all, _ := names(t, dir); !strings.HasSuffix(strings.Join(all, ""), "b") {
			t.Errorf("%s: %q", name, all)
		}
	}
}

func joined(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// What is too old goes, a little at once; and of what is too much the oldest.
func TestLimits(t *testing.T) {
	dir := t.TempDir()
	for day := range 8 {
		r := one("old", noon.AddDate(0, 0, -10*day-10))
		line, err := r.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, nameOf(&r)), line, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	files := func() int {
		found, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		return len(found)
	}
	o := start(t, dir, Limits{Days: 45, Bytes: 1 << 20})
	o.Add(one("a", noon))
	o.Close()
	if files() != 8-mostAged+1 {
		t.Errorf("%d files are left", files())
	}
	o = start(t, dir, Limits{Days: 400, Bytes: 1000})
	o.Add(one("b", noon))
	o.Close()
	if left := files(); left != 2 {
		t.Errorf("%d files are left of 1000 bytes", left)
	}
	o = start(t, dir, Limits{Days: 400, Bytes: 100})
	o.Add(one("c", noon))
	eventually(t, "a day that is too large is told", func() bool { return strings.Contains(o.said(), "may have") })
	if all, _ := names(t, dir); strings.Join(all, "") != "ab" {
		t.Errorf("%q", all)
	}
}

// While nothing can be written, as many records wait as there is room for.
func TestLost(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "history")
	if err := os.WriteFile(dir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	o := start(t, dir, Usual)
	for range mostWaiting + 5 {
		o.Add(one("a", noon))
	}
	eventually(t, "what is beyond the bound is lost", func() bool {
		o.Store.mu.Lock()
		defer o.Store.mu.Unlock()
		return o.lost == 5
	})
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is written again", func() bool { return strings.Contains(o.said(), "again; 5 records are lost") })
}

// The last record of a living share is found, however much lies behind and before it.
func TestLast(t *testing.T) {
	dir := t.TempDir()
	o := start(t, dir, Usual)
	for hour := range 100 {
		for _, name := range []string{"a", "b"} {
			r := one(name, noon)
			r.Kind, r.From, r.At, r.Total.Used = history.KindHour, noon.Add(time.Duration(hour-100)*time.Hour), noon.Add(time.Duration(hour-99)*time.Hour), uint64(hour)
			r.Began = noon.Add(-200 * time.Hour)
			o.Add(r)
		}
	}
	o.Close()
	r := one("a", noon)
	r.Began = noon.Add(-200 * time.Hour)
	last, err := o.Last(map[history.Key]bool{r.Key(): true}, r.Began)
	if err != nil || len(last) != 1 || last[r.Key()].Total.Used != 99 {
		t.Errorf("%v, %+v", err, last)
	}
}

// What a clock in the future has left does not stay for years. What is of tomorrow may be right.
func TestFutureGoes(t *testing.T) {
	dir := t.TempDir()
	for _, day := range []string{"2026-11-25", "2026-11-26", "2099-01-01"} {
		if err := os.WriteFile(filepath.Join(dir, day+suffix), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	o := start(t, dir, Usual)
	o.Add(one("a", noon))
	o.Close()
	for day, stays := range map[string]bool{"2026-11-24": true, "2026-11-25": true, "2026-11-26": false, "2099-01-01": false} {
		if _, err := os.Stat(filepath.Join(dir, day+suffix)); (err == nil) != stays {
			t.Errorf("%s: %v", day, err)
		}
	}
}
