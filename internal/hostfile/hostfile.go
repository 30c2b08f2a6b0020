// Package hostfile records the data of a machine's topology as one text file: the sysfs files and links of its PCI
// devices, RDMA devices and NUMA nodes, and the GPUs and NVLinks that its driver lists.
//
// The first line is "divvy-host 1", or "divvy-host 2" where it has lines that came later; lines that begin with # are comments.
// Each other line is one of
//
//	link PATH TARGET                      a symbolic link below /sys
//	file PATH "CONTENT"                   a file below /sys, its content quoted as Go quotes it
//	bytes PATH SIZE OFFSET:HEX …          a file below /sys that is mostly zeros, with its other bytes (version 2)
//	hostlink PATH TARGET                  a symbolic link elsewhere, from the root (version 2)
//	hostfile PATH "CONTENT"               a file elsewhere, from the root (version 2)
//	gpu INDEX UUID PCI "NAME"             a GPU, as NVML numbers it
//	clique INDEX NAME                     the NVLink domain of a GPU on switches
//	nvlink INDEX LINK gpu|switch PCI      an active NVLink of that GPU and the device at its other end
//
// A text comparison of two recordings shows how the machines differ.
package hostfile

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/divvy-gpu/divvy/internal/pci"
	"github.com/divvy-gpu/divvy/internal/topology"
)

// ErrFormat marks text that is not a recorded host; the error names file, line and field.
var ErrFormat = errors.New("not a recorded host")

const (
	firstLine = "divvy-host 1"
	// laterLine is of a recording that also tells what virtual machines need to know.
	laterLine = "divvy-host 2"
	// mostBytes bounds a recording; one of a machine with 16 GPUs takes a few hundred KiB.
	mostBytes = 64 << 20
)

// Host is a recorded machine. Its Sysfs has what was recorded of /sys, and Outside the rest.
type Host struct {
	Sysfs   *Sysfs
	Outside *Sysfs
	GPUs    []topology.GPUInfo

	name string // of the file it was read from
}

// Topology builds the model of the recorded machine. An error in a recorded file names the recording's line.
func (h *Host) Topology() (*topology.Host, error) {
	built, err := topology.Build(h.Sysfs, h.GPUs)
	var fault *pci.FileError
	if errors.As(err, &fault) && h.Sysfs.lines[fault.Name] > 0 {
		return nil, fmt.Errorf("%s:%d: %w", h.name, h.Sysfs.lines[fault.Name], err)
	}
	return built, err
}

// Parse reads a recording. Errors name it by name.
func Parse(r io.Reader, name string) (*Host, error) {
	p := &parser{name: name, host: &Host{Sysfs: newSysfs(), Outside: newSysfs(), name: name}}
	lines := bufio.NewScanner(io.LimitReader(r, mostBytes+1))
	lines.Buffer(nil, mostBytes+1)
	for lines.Scan() {
		p.line++
		if err := p.read(lines.Text()); err != nil {
			return nil, err
		}
		if p.size += len(lines.Bytes()) + 1; p.size > mostBytes {
			return nil, p.fault("size", "a recording has at most %d bytes", mostBytes)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read %s: line %d: %w", name, p.line+1, err)
	}
	if p.line == 0 {
		p.line = 1
		return nil, p.fault("first line", "must be %q", firstLine)
	}
	slices.SortFunc(p.host.GPUs, func(a, b topology.GPUInfo) int { return cmp.Compare(a.Index, b.Index) })
	return p.host, nil
}

type parser struct {
	name string
	line int
	size int // of the lines so far, as read or as Format writes them, whichever is longer
	host *Host
}

// unquote reads a quoted text. Format may need more bytes for it than the line had, and the size counts those.
func (p *parser) unquote(quoted string) (string, error) {
	text, err := strconv.Unquote(quoted)
	p.size += max(0, len(strconv.Quote(text))-len(quoted))
	return text, err
}

// isWord tells whether text can stand between two spaces of a line and be read back: a carriage return at the end
// of a line belongs to the line's end.
func isWord(text string) bool {
	return text != "" && !strings.ContainsFunc(text, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) })
}

func (p *parser) fault(field, format string, args ...any) error {
	return fmt.Errorf("%s:%d: %s: %s: %w", p.name, p.line, field, fmt.Sprintf(format, args...), ErrFormat)
}

func (p *parser) read(line string) error {
	if p.line == 1 {
		if line != firstLine && line != laterLine {
			return p.fault("first line", "must be %q or %q", firstLine, laterLine)
		}
		return nil
	}
	if strings.HasPrefix(line, "#") || strings.TrimSpace(line) == "" {
		return nil
	}
	kind, rest, _ := strings.Cut(line, " ")
	switch kind {
	case "link":
		return p.link(p.host.Sysfs, rest)
	case "file":
		return p.file(p.host.Sysfs, rest)
	case "bytes":
		return p.bytes(rest)
	case "hostlink":
		return p.link(p.host.Outside, rest)
	case "hostfile":
		return p.file(p.host.Outside, rest)
	case "gpu":
		return p.gpu(rest)
	case "clique":
		return p.clique(rest)
	case "nvlink":
		return p.nvlink(rest)
	}
	return p.fault("kind", "unknown %q: use link, file, bytes, hostlink, hostfile, gpu, clique or nvlink", kind)
}

func (p *parser) link(into *Sysfs, rest string) error {
	path, target, found := strings.Cut(rest, " ")
	if !found || !isWord(target) {
		return p.fault("target", "a link needs a path and a target without spaces or control characters")
	}
	if err := into.addLink(path, target); err != nil {
		return p.fault("path", "%v", err)
	}
	into.lines[path] = p.line
	return nil
}

func (p *parser) file(into *Sysfs, rest string) error {
	path, quoted, _ := strings.Cut(rest, " ")
	content, err := p.unquote(quoted)
	if err != nil {
		return p.fault("content", "%q is not a quoted string", quoted)
	}
	if err := into.addFile(path, content); err != nil {
		return p.fault("path", "%v", err)
	}
	into.lines[path] = p.line
	return nil
}

func (p *parser) gpu(rest string) error {
	fields := strings.SplitN(rest, " ", 4)
	if len(fields) != 4 {
		return p.fault("gpu", "needs index, UUID, PCI address and name")
	}
	index, err := strconv.ParseUint(fields[0], 10, 16)
	if err != nil {
		return p.fault("index", "%q is not a GPU's number", fields[0])
	}
	if !isWord(fields[1]) {
		return p.fault("uuid", "%q is not a GPU's UUID", fields[1])
	}
	address, err := pci.ParseAddress(fields[2])
	if err != nil {
		return p.fault("pci", "%v", err)
	}
	name, err := p.unquote(fields[3])
	if err != nil {
		return p.fault("name", "%q is not a quoted string", fields[3])
	}
	info := topology.GPUInfo{Index: int(index), UUID: fields[1], Name: name, PCI: address}
	for _, other := range p.host.GPUs {
		if other.Index == info.Index || other.UUID == info.UUID || other.PCI == info.PCI {
			return p.fault("gpu", "index, UUID and address must differ from those of GPU %d", other.Index)
		}
	}
	p.host.GPUs = append(p.host.GPUs, info)
	return nil
}

// known is the GPU of that index, which a line before must have described.
func (p *parser) known(index string) (*topology.GPUInfo, error) {
	for i := range p.host.GPUs {
		if strconv.Itoa(p.host.GPUs[i].Index) == index {
			return &p.host.GPUs[i], nil
		}
	}
	return nil, p.fault("gpu", "no line before this one describes GPU %q", index)
}

func (p *parser) clique(rest string) error {
	index, name, _ := strings.Cut(rest, " ")
	gpu, err := p.known(index)
	if err != nil {
		return err
	}
	if !isWord(name) || gpu.Clique != "" {
		return p.fault("clique", "needs one name, once per GPU")
	}
	gpu.Clique = name
	return nil
}

func (p *parser) nvlink(rest string) error {
	fields := strings.Split(rest, " ")
	if len(fields) != 4 {
		return p.fault("nvlink", "needs GPU, link, gpu or switch, and PCI address")
	}
	gpu, err := p.known(fields[0])
	if err != nil {
		return err
	}
	number, err := strconv.ParseUint(fields[1], 10, 8)
	if err != nil {
		return p.fault("link", "%q is not a link's number", fields[1])
	}
	address, err := pci.ParseAddress(fields[3])
	if err != nil {
		return p.fault("pci", "%v", err)
	}
	if fields[2] != "gpu" && fields[2] != "switch" {
		return p.fault("end", "%q is neither gpu nor switch", fields[2])
	}
	for _, other := range gpu.Links {
		if other.Number == int(number) {
			return p.fault("link", "GPU %d has link %d already", gpu.Index, number)
		}
	}
	gpu.Links = append(gpu.Links, topology.Link{Number: int(number), Remote: address, Switch: fields[2] == "switch"})
	return nil
}
