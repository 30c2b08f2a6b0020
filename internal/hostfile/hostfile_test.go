package hostfile_test

import (
	"bytes"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/hostfile"
	"github.com/divvy-gpu/divvy/internal/vm/facts"
)

var update = flag.Bool("update", false, "rewrite golden files")

const hosts = "../../testdata/hosts"

func parse(t *testing.T, path string) *hostfile.Host {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	host, err := hostfile.Parse(file, filepath.Base(path))
	if err != nil {
		t.Fatal(err)
	}
	return host
}

// Every recorded host is printed in every form; the golden files are what the printers print.
func TestRecordedHosts(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(hosts, "*.host"))
	if err != nil || len(files) < 4 {
		t.Fatalf("recorded hosts: %v, %v", files, err)
	}
	for _, path := range files {
		recorded := parse(t, path)
		host, err := recorded.Topology()
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		for form, print := range map[string]func(io.Writer) error{
			"txt": host.PrintTable, "json": host.PrintJSON,
			"xml": func(w io.Writer) error { return host.PrintNCCL(w, "x86_64") },
		} {
			t.Run(filepath.Base(path)+"/"+form, func(t *testing.T) {
				var got bytes.Buffer
				if err := print(&got); err != nil {
					t.Fatal(err)
				}
				golden := strings.TrimSuffix(path, ".host") + "." + form + ".golden"
				if *update {
					if err := os.WriteFile(golden, got.Bytes(), 0o644); err != nil {
						t.Fatal(err)
					}
				}
				want, err := os.ReadFile(golden)
				if err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(got.Bytes(), want) {
					t.Errorf("differs from %s:\n%s", golden, got.String())
				}
			})
		}
		var again bytes.Buffer
		if err := recorded.Format(&again); err != nil {
			t.Fatal(err)
		}
		if _, err := hostfile.Parse(&again, "again"); err != nil {
			t.Errorf("%s does not survive being written: %v", path, err)
		}
	}
}

func TestFaultsNameFileLineAndField(t *testing.T) {
	const head = "divvy-host 1\n"
	for name, test := range map[string]struct{ text, want string }{
		"empty":          {"", "x.host:1: first line"},
		"other format":   {"divvy-host 3\n", "x.host:1: first line"},
		"unknown kind":   {head + "node 0\n", `x.host:2: kind: unknown "node"`},
		"no target":      {head + "link bus/pci\n", "x.host:2: target"},
		"absolute path":  {head + "file /etc/passwd \"x\"\n", "x.host:2: path"},
		"path upwards":   {head + "file ../x \"x\"\n", "x.host:2: path"},
		"not quoted":     {head + "file class x\n", "x.host:2: content"},
		"twice":          {head + "file a \"\"\nlink a b\n", "x.host:3: path: a is there twice"},
		"target's end":   {head + "link a b\r\r\n", "x.host:2: target"},
		"clique's end":   {head + "gpu 0 A 0000:00:00.0 \"\"\nclique 0 a\r\r\n", "x.host:3: clique"},
		"no UUID":        {head + "gpu 0  0000:00:00.0 \"\"\n", "x.host:2: uuid"},
		"negative index": {head + "gpu -1 GPU-a 0000:00:00.0 \"\"\n", "x.host:2: index"},
		"bad address":    {head + "gpu 0 GPU-a 0:0 \"\"\n", "x.host:2: pci"},
		"no size":        {head + "bytes a\n", "x.host:2: bytes"},
		"huge":           {head + "bytes a 99999999\n", "x.host:2: size"},
		"beyond its end": {head + "bytes a 64 3f:0102\n", "x.host:2: bytes"},
		"odd digits":     {head + "bytes a 64 0:123\n", "x.host:2: bytes"},
		"elsewhere up":   {head + "hostfile ../x \"\"\n", "x.host:2: path"},
		"elsewhere two":  {head + "hostlink a b\nhostfile a \"\"\n", "x.host:3: path"},
		"same GPU":       {head + "gpu 0 A 0000:00:00.0 \"\"\ngpu 0 B 0000:00:01.0 \"\"\n", "x.host:3: gpu"},
		"link of nobody": {head + "nvlink 0 0 gpu 0000:00:00.0\n", "x.host:2: gpu"},
		"link number":    {head + "gpu 0 A 0000:00:00.0 \"\"\nnvlink 0 256 gpu 0000:00:00.0\n", "x.host:3: link"},
		"link's end":     {head + "gpu 0 A 0000:00:00.0 \"\"\nnvlink 0 1 cpu 0000:00:00.0\n", "x.host:3: end"},
		"link twice":     {head + "gpu 0 A 0000:00:00.0 \"\"\nnvlink 0 1 gpu 0000:00:01.0\nnvlink 0 1 gpu 0000:00:01.0\n", "x.host:4: link"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := hostfile.Parse(strings.NewReader(test.text), "x.host")
			if !errors.Is(err, hostfile.ErrFormat) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want it to contain %q", err, test.want)
			}
		})
	}
}

// A line whose content takes more bytes once it is written is read back too.
func TestLongLinesAreReadBack(t *testing.T) {
	text := "divvy-host 1\nfile a \"" + strings.Repeat("\x01", 1<<20) + "\"\n"
	host, err := hostfile.Parse(strings.NewReader(text), "long")
	if err != nil {
		t.Fatal(err)
	}
	var written bytes.Buffer
	if err := host.Format(&written); err != nil {
		t.Fatal(err)
	}
	if _, err := hostfile.Parse(&written, "again"); err != nil {
		t.Error(err)
	}
	tooLong := "file a \"" + strings.Repeat("\x01", 17<<20) + "\"\n"
	if _, err := hostfile.Parse(strings.NewReader("divvy-host 1\n"+tooLong), "long"); !errors.Is(err, hostfile.ErrFormat) {
		t.Errorf("a recording that is too long once written: %v", err)
	}
}

// A device's link that leads in a circle, or out of the devices tree, is an error and ends.
func TestLoopsInLinks(t *testing.T) {
	for _, target := range []string{"0000:00:01.0", "../../../bus/pci/devices/0000:00:01.0", "../../..", "/devices/x"} {
		text := "divvy-host 1\nlink bus/pci/devices/0000:00:01.0 " + target + "\n"
		host, err := hostfile.Parse(strings.NewReader(text), "loop.host")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := host.Topology(); err == nil || !strings.HasPrefix(err.Error(), "loop.host:2: ") {
			t.Errorf("link to %s: %v, want an error with file and line", target, err)
		}
	}
}

func TestCapture(t *testing.T) {
	recorded := parse(t, filepath.Join(hosts, "a800x8.host"))
	captured, err := hostfile.Capture(recorded.Sysfs, recorded.GPUs)
	if err != nil {
		t.Fatal(err)
	}
	var before, after bytes.Buffer
	if err := errors.Join(recorded.Format(&before), captured.Format(&after)); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(before.Bytes(), after.Bytes()) {
		t.Error("capturing a recorded machine gives another recording")
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("divvy-host 1\nlink bus/pci/devices/0000:01:00.0 ../../../devices/pci0000:00/0000:01:00.0\n" +
		"file devices/pci0000:00/0000:01:00.0/class \"0x030200\"\ngpu 0 GPU-a 0000:01:00.0 \"A\"\nnvlink 0 1 gpu 0000:02:00.0\n"))
	for _, line := range []string{
		"link s \r\r", "link s\r t", "gpu 0 GPU-a\r 0000:01:00.0 \"A\"\r",
		"gpu 0 GPU-a 0000:01:00.0 \"A\"\nclique 0 a\r\r",
		"file a `x`", "file a '\\n'", "file a \"\xff\"",
		"hostlink proc/7/fd/4 /dev/nvidia0\nhostfile proc/7/comm \"a b\"", "bytes a 4096 0:0102 fff:7f", "bytes a 64 3f:ff",
	} {
		f.Add([]byte("divvy-host 1\n" + line))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		host, err := hostfile.Parse(bytes.NewReader(text), "fuzz")
		if err != nil {
			return
		}
		built, err := host.Topology()
		if err == nil {
			for _, print := range []func(io.Writer) error{built.PrintTable, built.PrintJSON} {
				if err := print(io.Discard); err != nil {
					t.Errorf("print: %v", err)
				}
			}
		}
		if _, err := facts.Read(host.Root()); err != nil {
			t.Logf("facts: %v", err) // it must end
		}
		var first, second bytes.Buffer
		if err := host.Format(&first); err != nil {
			t.Fatal(err)
		}
		again, err := hostfile.Parse(bytes.NewReader(first.Bytes()), "again")
		if err != nil {
			t.Fatalf("what Format wrote does not parse: %v\n%s", err, first.String())
		}
		if !reflect.DeepEqual(again.GPUs, host.GPUs) {
			t.Errorf("GPUs %v came back as %v", host.GPUs, again.GPUs)
		}
		if err := again.Format(&second); err != nil || !bytes.Equal(first.Bytes(), second.Bytes()) {
			t.Errorf("Format is not stable: %v", err)
		}
	})
}
