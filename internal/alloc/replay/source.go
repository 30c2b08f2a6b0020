package replay

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
)

// Limits on what is read. A file that exceeds one is refused with ErrTooLarge.
// They count decompressed bytes: a small compressed file can expand a thousandfold.
const (
	maxBytes = 1 << 30
	maxRow   = 1 << 16
	maxRows  = 5_000_000
	maxField = 4096
)

// ErrTooLarge marks a file that exceeds a limit.
var ErrTooLarge = errors.New("file is too large")

// source reads a file, decompressed if it is compressed with gzip, and enforces
// maxBytes and maxRow.
type source struct {
	from       io.Reader
	compressed bool
	left       int64 // of maxBytes
	row        int   // bytes read since startRow
}

// newSource recognises a compressed file by its first two bytes, not by its name.
func newSource(r io.Reader) (*source, error) {
	buffered := bufio.NewReader(r)
	s := &source{from: buffered, left: maxBytes}
	// A file that is too short to be compressed is read as it is.
	// What is wrong with the file is told when it is read.
	if magic, _ := buffered.Peek(2); !bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		return s, nil
	}
	decompressed, err := gzip.NewReader(buffered)
	if err != nil {
		return nil, fmt.Errorf("decompress: %w", err)
	}
	s.from, s.compressed = decompressed, true
	return s, nil
}

// startRow restarts the count for maxRow. The CSV reader reads ahead, so the
// count is exact only to the size of its buffer.
func (s *source) startRow() { s.row = 0 }

// Read implements io.Reader.
func (s *source) Read(p []byte) (int, error) {
	switch {
	case s.left <= 0:
		return 0, fmt.Errorf("%w: more than %d bytes", ErrTooLarge, int64(maxBytes))
	case s.row > maxRow:
		return 0, fmt.Errorf("%w: a row of more than %d bytes", ErrTooLarge, maxRow)
	}
	n, err := s.from.Read(p[:min(int64(len(p)), s.left)])
	s.left -= int64(n)
	s.row += n
	switch {
	case !s.compressed || err == nil || errors.Is(err, io.EOF):
		return n, err
	case errors.Is(err, io.ErrUnexpectedEOF):
		return n, fmt.Errorf("decompress: the file is cut off: %w", err)
	case errors.Is(err, gzip.ErrHeader):
		return n, fmt.Errorf("decompress: something other than gzip follows the compressed data: %w", err)
	}
	return n, fmt.Errorf("decompress: %w", err)
}
