package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/divvy-gpu/divvy/internal/cli"
	"github.com/divvy-gpu/divvy/internal/cli/cluster"
)

var update = flag.Bool("update", false, "rewrite the goldens")

var made = time.Unix(1700000000, 0).UTC()

// sample has of each kind what a manual page shows.
func sample() *cobra.Command {
	root := &cobra.Command{Use: "divvy", Short: "Divide GPUs"}
	run := &cobra.Command{
		Use: "run [flags] -- COMMAND...", Short: "Run a command in a share", Run: func(*cobra.Command, []string) {},
		Long:    "Run a command. `divvy ls` shows\n.hidden-lines and 'quotes' and C:\\paths.\n\nSecond paragraph.\n\n  set in\n    deeper",
		Example: "  divvy run -- true\n  divvy run --memory 1Gi -- sh -c 'a\\b'",
	}
	run.Flags().StringP("memory", "m", "", "limit, an `AMOUNT`")
	run.Flags().Int("cores", 100, "percent")
	run.Flags().Bool("quiet", false, "say nothing")
	run.Flags().String("secret", "", "not shown")
	run.Flags().Lookup("secret").Hidden = true
	root.AddCommand(run, &cobra.Command{Use: "inner", Hidden: true, Run: run.Run})
	return root
}

func TestManual(t *testing.T) {
	pages := manuals(made, "1.2.3", sample())
	if len(pages) != 2 {
		t.Fatalf("%d pages, want those of divvy and divvy run", len(pages))
	}
	golden := filepath.Join("testdata", "divvy-run.1")
	if *update {
		if err := os.WriteFile(golden, pages["divvy-run.1"], 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if got := pages["divvy-run.1"]; !bytes.Equal(got, want) {
		t.Errorf("the page is\n%s", got)
	}
}

// No line of a text is taken for a request of roff's, and every command that people run has a page.
func TestManualsOfAllCommands(t *testing.T) {
	requests := []string{".TH", ".SH", ".PP", ".TP", ".RS", ".RE", ".nf", ".fi", ".BR"}
	pages := manuals(made, "1.2.3", cli.Commands(), cluster.Commands())
	for name, page := range pages {
		for line := range strings.SplitSeq(string(page), "\n") {
			if request, _, _ := strings.Cut(line, " "); strings.HasPrefix(line, ".") && !slices.Contains(requests, request) || strings.HasPrefix(line, "'") {
				t.Errorf("%s: roff takes this line for a request: %s", name, line)
			}
		}
	}
	for _, name := range []string{"divvy.1", "divvy-run.1", "divvy-gpu-set.1", "divvy-agent.1", "divvy-queues.1", "divvy-explain-pod.1"} {
		if pages[name] == nil {
			t.Errorf("there is no %s", name)
		}
	}
}

func TestSameTreeMakesTheSameArchive(t *testing.T) {
	dir := t.TempDir()
	var archives [][]byte
	for _, name := range []string{"one", "two"} {
		from := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Join(from, "lib"), 0o700); err != nil {
			t.Fatal(err)
		}
		for _, file := range []string{"lib/b", "a"} {
			if err := os.WriteFile(filepath.Join(from, file), []byte(file), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		files := tree{"bin/link": {target: "a"}}
		if err := files.add(from, ""); err != nil {
			t.Fatal(err)
		}
		out := filepath.Join(dir, name+".tar.gz")
		if err := files.pack(out, "divvy-1", made); err != nil {
			t.Fatal(err)
		}
		archive, err := os.ReadFile(out)
		if err != nil {
			t.Fatal(err)
		}
		archives = append(archives, archive)
	}
	if !bytes.Equal(archives[0], archives[1]) {
		t.Error("they differ")
	}
	want := []string{"divvy-1/ 755", "divvy-1/a 755", "divvy-1/bin/ 755", "divvy-1/bin/link 777", "divvy-1/lib/ 755", "divvy-1/lib/b 755"}
	if got := entries(t, archives[0]); !slices.Equal(got, want) {
		t.Errorf("the archive has %q, want %q", got, want)
	}
}

func TestCompressedTextIsWhole(t *testing.T) {
	text := []byte("divides GPUs")
	packed, err := compressed(text)
	if err != nil {
		t.Fatal(err)
	}
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(z); err != nil || !bytes.Equal(got, text) {
		t.Errorf("it is %q, %v; want %q", got, err, text)
	}
}

// entries are the names and modes in an archive, which must have the time of made.
func entries(t *testing.T, archive []byte) (names []string) {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		t.Fatal(err)
	}
	for r := tar.NewReader(z); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return names
		}
		if err != nil {
			t.Fatal(err)
		}
		if !header.ModTime.Equal(made) || header.Uid != 0 || header.Uname != "root" {
			t.Errorf("%s is of %s and %s", header.Name, header.Uname, header.ModTime)
		}
		names = append(names, header.Name+" "+mode(header.Mode))
	}
}

func mode(m int64) string {
	return string([]byte{byte('0' + m>>6&7), byte('0' + m>>3&7), byte('0' + m&7)})
}
