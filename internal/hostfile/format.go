package hostfile

import (
	"bufio"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// version is the first line of a recording.
func (h *Host) version() string {
	if len(h.Outside.files)+len(h.Outside.links) > 0 || slices.ContainsFunc(slices.Collect(maps.Values(h.Sysfs.files)), mostlyZeros) {
		return laterLine
	}
	return firstLine
}

const (
	// leastBytes is the size from which a file is written without its zeros.
	leastBytes = 64
	// mostFileBytes bounds such a file; a configuration space has 4096.
	mostFileBytes = 1 << 16
)

func mostlyZeros(content string) bool {
	return len(content) >= leastBytes && len(content) <= mostFileBytes && strings.Count(content, "\x00") > len(content)/2
}

// format writes the lines of a tree, whose kinds begin with a prefix.
func (s *Sysfs) format(out io.Writer, prefix string) {
	for _, path := range slices.Sorted(maps.Keys(s.links)) {
		_, _ = fmt.Fprintf(out, "%slink %s %s\n", prefix, path, s.links[path])
	}
	for _, path := range slices.Sorted(maps.Keys(s.files)) {
		content := s.files[path]
		if prefix == "" && mostlyZeros(content) {
			_, _ = fmt.Fprintf(out, "bytes %s %d%s\n", path, len(content), runs(content))
			continue
		}
		_, _ = fmt.Fprintf(out, "%sfile %s %s\n", prefix, path, strconv.Quote(content))
	}
}

// runs are the bytes that are not zero, as " OFFSET:HEX" each.
func runs(content string) string {
	var b strings.Builder
	for at := 0; at < len(content); {
		if content[at] == 0 {
			at++
			continue
		}
		end := at
		for end < len(content) && content[end] != 0 {
			end++
		}
		fmt.Fprintf(&b, " %x:%s", at, hex.EncodeToString([]byte(content[at:end])))
		at = end
	}
	return b.String()
}

// bytes reads a file that was written without its zeros.
func (p *parser) bytes(rest string) error {
	fields := strings.Split(rest, " ")
	if len(fields) < 2 {
		return p.fault("bytes", "needs a path and a size")
	}
	size, err := strconv.ParseUint(fields[1], 10, 32)
	if err != nil || size > mostFileBytes {
		return p.fault("size", "%q is not a size of at most %d", fields[1], mostFileBytes)
	}
	content := make([]byte, size)
	p.size += 4 * int(size) // as Format may quote it
	for _, run := range fields[2:] {
		offset, digits, _ := strings.Cut(run, ":")
		at, err := strconv.ParseUint(offset, 16, 32)
		data, wrong := hex.DecodeString(digits)
		if err != nil || wrong != nil || at+uint64(len(data)) > size {
			return p.fault("bytes", "%q is no run of bytes within the file", run)
		}
		copy(content[at:], data)
	}
	if err := p.host.Sysfs.addFile(fields[0], string(content)); err != nil {
		return p.fault("path", "%v", err)
	}
	p.host.Sysfs.lines[fields[0]] = p.line
	return nil
}

// Format writes a recording that Parse reads back.
func (h *Host) Format(w io.Writer) error {
	out := bufio.NewWriter(w)
	fmt.Fprintln(out, h.version())
	h.Sysfs.format(out, "")
	h.Outside.format(out, "host")
	for _, gpu := range h.GPUs {
		fmt.Fprintf(out, "gpu %d %s %s %s\n", gpu.Index, gpu.UUID, gpu.PCI, strconv.Quote(gpu.Name))
		if gpu.Clique != "" {
			fmt.Fprintf(out, "clique %d %s\n", gpu.Index, gpu.Clique)
		}
		for _, link := range gpu.Links {
			end := map[bool]string{true: "switch", false: "gpu"}[link.Switch]
			fmt.Fprintf(out, "nvlink %d %d %s %s\n", gpu.Index, link.Number, end, link.Remote)
		}
	}
	if err := out.Flush(); err != nil {
		return fmt.Errorf("write recorded host: %w", err)
	}
	return nil
}
