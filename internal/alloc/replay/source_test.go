package replay

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
)

// compress returns text compressed with gzip.
func compress(t testing.TB, text string) string {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := io.WriteString(w, text); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestCompressedFilesAreReadLikePlainOnes(t *testing.T) {
	nodes := readNodes(t, nodeFile)
	want, err := ReadPods("pods.csv", strings.NewReader(podFile), nodes)
	if err != nil {
		t.Fatal(err)
	}
	header, rows, _ := strings.Cut(podFile, "\n")
	for name, text := range map[string]string{
		"one member":  compress(t, podFile),
		"two members": compress(t, header+"\n") + compress(t, rows),
	} {
		// The name says nothing of compression: the content decides.
		pods, err := ReadPods("pods.csv", strings.NewReader(text), nodes)
		if err != nil || !reflect.DeepEqual(pods, want) {
			t.Errorf("%s: pods %+v, %v", name, pods, err)
		}
	}
}

func TestDamagedCompressedFiles(t *testing.T) {
	nodes := readNodes(t, nodeFile)
	whole := compress(t, podFile)
	wrongSum := []byte(whole)
	wrongSum[len(wrongSum)-5] ^= 1
	for _, test := range []struct{ name, text, want string }{
		{"header alone", whole[:2], "decompress"},
		{"cut in the header", whole[:8], "decompress"},
		{"cut in the data", whole[:len(whole)/2], "the file is cut off"},
		{"cut in the checksum", whole[:len(whole)-1], "the file is cut off"},
		{"garbage behind it", whole + "name,cpu_milli,memory_mib\n", "something other than gzip follows"},
		{"zeros behind it", whole + strings.Repeat("\x00", 512), "something other than gzip follows"},
		{"wrong checksum", string(wrongSum), "decompress: gzip: invalid checksum"},
		{"empty", compress(t, ""), "the file is empty"},
		{"compressed twice", compress(t, whole), "no known format"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := ReadPods("pods.csv", strings.NewReader(test.text), nodes)
			var fault *FieldError
			if !errors.As(err, &fault) || fault.File != "pods.csv" || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v; want one of the file, with %q", err, test.want)
			}
		})
	}
}

// A file of 16 kB that expands to 16 MiB is refused long before it is expanded.
func TestHugeExpansionIsRefused(t *testing.T) {
	nodes := readNodes(t, nodeFile)
	header, _, _ := strings.Cut(podFile, "\n")
	const huge = 16 << 20
	for name, text := range map[string]string{
		"header":      strings.Repeat("n", huge),
		"one row":     header + "\n" + strings.Repeat("p", huge),
		"empty lines": header + "\n" + strings.Repeat("\n", huge),
		"quoted":      header + "\n\"" + strings.Repeat("p\n", huge/2),
	} {
		t.Run(name, func(t *testing.T) {
			file := &counting{from: strings.NewReader(compress(t, text))}
			_, err := ReadPods("pods.csv", file, nodes)
			if !errors.Is(err, ErrTooLarge) || !strings.Contains(err.Error(), "a row of more than 65536 bytes") {
				t.Errorf("error %v", err)
			}
			if file.read > 10_000 {
				t.Errorf("%d bytes of the file were read", file.read)
			}
		})
	}
}

// counting counts what is read through it.
type counting struct {
	from io.Reader
	read int
}

func (c *counting) Read(p []byte) (int, error) {
	n, err := c.from.Read(p)
	c.read += n
	return n, err
}

func TestDecompressedBytesAreLimited(t *testing.T) {
	s, err := newSource(strings.NewReader(compress(t, strings.Repeat("p,1\n", 1000))))
	if err != nil {
		t.Fatal(err)
	}
	s.left = 100
	text, err := io.ReadAll(s)
	if len(text) != 100 || !errors.Is(err, ErrTooLarge) {
		t.Errorf("read %d bytes, %v; want 100 and %v", len(text), err, ErrTooLarge)
	}
}
