package abi

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
)

// wireFiles are where the forms stand that are written by hand and read by both sides: words of records, structures that
// travel as they are, numbers of our own, rings. A pattern takes a file that is added later, too.
var wireFiles = []string{"lib/remote/*.h", "lib/abi/cuda/*.h", "lib/abi/nvml/*.h"}

// oneSided are headers among them that one side alone reads, so that the other need not agree on them.
var oneSided = []string{"call.h", "take.h", "transport.h", "worker.h"}

// A wireFile is what a header says to a compiler: its text without comments, and with one space for any.
type wireFile struct{ path, text string }

var (
	comments = regexp.MustCompile(`(?s)/\*.*?\*/|//[^\n]*`)
	spaces   = regexp.MustCompile(`\s+`)
)

// readWire reads what client and worker both compile.
func readWire(root fs.FS) ([]wireFile, error) {
	var files []wireFile
	for _, pattern := range wireFiles {
		paths, err := fs.Glob(root, pattern)
		if err != nil {
			return nil, fmt.Errorf("find headers of both sides: %w", err)
		}
		for _, p := range paths {
			if slices.Contains(oneSided, path.Base(p)) {
				continue
			}
			text, err := fs.ReadFile(root, p)
			if err != nil {
				return nil, fmt.Errorf("read a header of both sides: %w", err)
			}
			files = append(files, wireFile{p, spaces.ReplaceAllString(comments.ReplaceAllString(string(text), " "), " ")})
		}
	}
	return files, nil
}

// protocol is a digest of everything on which both sides have to agree.
func (ri remoteInterface) protocol(wire []wireFile) uint64 {
	var b strings.Builder
	fmt.Fprintf(&b, "%d %d %d %d\n", RecordBytes, ArrayBytes, HeadBytes, AnswerBytes)
	for _, r := range ri {
		at := r.first()
		for _, h := range r.d.Handles {
			fmt.Fprintf(&b, "handle %s %d %s %v\n", h.Name, h.Fixed, h.Also, h.Own)
		}
		for _, v := range r.d.Values {
			fmt.Fprintf(&b, "value %d %s\n", v.Size, strings.Join(v.Types, ","))
		}
		for _, s := range r.d.Structures {
			fmt.Fprintf(&b, "structure %s %d %s\n", s.Name, s.Size, strings.Join(s.Holds, ","))
		}
		for _, f := range r.numbered() {
			fmt.Fprintf(&b, "%d %s %s", at, f.Name, f.Remote.Manner)
			for _, p := range f.Parameters {
				fmt.Fprintf(&b, ", %s", p)
			}
			b.WriteString("\n")
			at++
		}
	}
	for _, w := range wire {
		fmt.Fprintf(&b, "file %s %s\n", w.path, w.text)
	}
	sum := sha256.Sum256([]byte(b.String()))
	return binary.LittleEndian.Uint64(sum[:8])
}
