package bundle

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
)

// files are those of an archive.
func files(t *testing.T, archive []byte) (names []string, texts map[string]string) {
	t.Helper()
	compressed, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		t.Fatal(err)
	}
	texts = map[string]string{}
	for in := tar.NewReader(compressed); ; {
		header, err := in.Next()
		if errors.Is(err, io.EOF) {
			return names, texts
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(in)
		if err != nil || header.Mode != 0o600 {
			t.Fatalf("%+v, %v", header, err)
		}
		names, texts[header.Name] = append(names, header.Name), string(text)
	}
}

func TestCollect(t *testing.T) {
	long := strings.Repeat("a line of a log\n", Most/8)
	items := []Item{
		Text("b.txt", "password=hunter2 and more"),
		Text("a.txt", "plain\n"),
		Text("long.txt", "token: cut off at its beginning\n"+long+"the end\n"),
		Text("wide.txt", strings.Repeat("x", 2*Most)),
		{"fault.txt", func(context.Context) ([]byte, error) { return []byte("some"), errors.New("no more, --token=abc") }},
		File("none.txt", filepath.Join(t.TempDir(), "none")), File("folder.txt", t.TempDir()),
		Program("program.txt", "sh", "-c", "echo said; exit 3"), Program("absent.txt", "/no/such/program"),
	}
	archive, listed, err := Collect(t.Context(), items)
	if err != nil {
		t.Fatal(err)
	}
	names, texts := files(t, archive)
	if want := "a absent b fault folder long none program wide"; len(listed) != len(items) || len(names) != len(items) ||
		strings.Join(names, " ") != Folder+"/"+strings.ReplaceAll(want, " ", ".txt "+Folder+"/")+".txt" {
		t.Errorf("%q, %+v", names, listed)
	}
	for name, want := range map[string]string{
		"a.txt": "plain\n", "b.txt": "password=[redacted]", "fault.txt": "some\nnot collected: no more, --token=[redacted]\n",
		"program.txt": "said\n\nnot collected: exit status 3\n", "wide.txt": "(its beginning is left out)\n",
	} {
		if got := texts[Folder+"/"+name]; got != want {
			t.Errorf("%s: %q", name, got)
		}
	}
	for name, says := range map[string]string{"none.txt": "no such file", "folder.txt": "no plain file", "absent.txt": "no program here", "long.txt": "the end\n"} {
		if got := texts[Folder+"/"+name]; !strings.Contains(got, says) || len(got) > Most+100 {
			t.Errorf("%s: %d bytes, %q", name, len(got), got[:min(len(got), 100)])
		}
	}
	again, _, err := Collect(t.Context(), items)
	if err != nil || !bytes.Equal(archive, again) {
		t.Errorf("the same again is another archive, %v", err)
	}
}

// What never answers is not waited for.
func TestCollectEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stuck := make(chan struct{})
		archive, listed, err := Collect(t.Context(), []Item{{"stuck.txt", func(context.Context) ([]byte, error) { <-stuck; return nil, nil }}, Text("well.txt", "x")})
		close(stuck)
		if err != nil || listed[0].Missing != "no answer within "+Time.String() {
			t.Errorf("%+v, %v", listed, err)
		}
		if _, texts := files(t, archive); texts[Folder+"/well.txt"] != "x" {
			t.Errorf("%q", texts)
		}
	})
}

func TestSave(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "a.tar.gz")
	if err := Save(name, []byte("archive")); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(name); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	target, link := filepath.Join(dir, "target"), filepath.Join(dir, "link")
	if err := os.Symlink(target, link); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{name, link} {
		if err := Save(path, []byte("other")); err == nil || !strings.Contains(err.Error(), "exists") {
			t.Errorf("%s: %v", path, err)
		}
	}
	if text, err := os.ReadFile(name); err != nil || string(text) != "archive" {
		t.Errorf("%q, %v", text, err)
	}
	if _, err := os.Lstat(target); err == nil {
		t.Error("a link was followed")
	}
}

// Where there is no room nothing is left of a bundle.
func TestSaveWithoutRoom(t *testing.T) {
	if err := Save("/dev/full", []byte("archive")); err == nil {
		t.Error("a device was written to")
	}
	name := filepath.Join(t.TempDir(), "none", "a.tar.gz")
	if err := Save(name, nil); err == nil || strings.Contains(err.Error(), "\n") {
		t.Errorf("%v", err)
	}
}
