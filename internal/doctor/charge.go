package doctor

import (
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// MemoryLimit is how much host memory the processes of a cgroup may have together. What the driver moves there from a GPU is
// charged to the cgroup of the program whose it is.
type MemoryLimit struct {
	// Bytes is 0 where nothing is limited.
	Bytes uint64
	// File is where the limit stands.
	File string
}

// unlimited is a little less than what version 1 of cgroups says where there is no limit.
const unlimited = 1 << 62

// LimitOfMemory is the smallest limit of this process's cgroup and of those above it, as far as they are seen here. In a
// container, the container's own.
func LimitOfMemory(root string) (least MemoryLimit) {
	table, err := os.ReadFile(filepath.Join(root, "/proc/self/cgroup"))
	if err != nil {
		return MemoryLimit{}
	}
	for line := range strings.Lines(string(table)) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(fields) != 3 {
			continue
		}
		switch {
		case fields[0] == "0" && fields[1] == "":
			least.lower(root, "/sys/fs/cgroup", fields[2], "memory.max")
		case strings.Contains(","+fields[1]+",", ",memory,"):
			least.lower(root, "/sys/fs/cgroup/memory", fields[2], "memory.limit_in_bytes")
		}
	}
	return least
}

// lower takes the limits of a cgroup and of those above it, where they are smaller. A part of the path that is not seen
// here, as in a container without a namespace of cgroups, has none.
func (l *MemoryLimit) lower(root, mount, group, name string) {
	for group = path.Clean("/" + group); ; group = path.Dir(group) {
		file := path.Join(mount, group, name)
		content, err := os.ReadFile(filepath.Join(root, file))
		if err == nil {
			n, err := strconv.ParseUint(strings.TrimSpace(string(content)), 10, 64) // it is "max" where there is no limit
			if err == nil && n < unlimited && (l.Bytes == 0 || n < l.Bytes) {
				*l = MemoryLimit{n, file}
			}
		}
		if group == "/" {
			return
		}
	}
}

// Charge checks, in a share, that what may leave its GPUs fits what its programs may have of host memory.
func Charge(root string, swapped uint64) Check {
	c := Check{ID: "inside.memory", Name: "host memory", Status: OK}
	limit := LimitOfMemory(root)
	switch {
	case limit.Bytes == 0:
		c.Found = v1alpha1.FormatBytes(swapped) + " of the share can be in host memory, which is not limited here"
	case limit.Bytes < swapped:
		c.Status = Warn
		c.Found = "of the share " + v1alpha1.FormatBytes(swapped) + " can be in host memory, and programs here may have " +
			v1alpha1.FormatBytes(limit.Bytes) + " (" + limit.File + "): the kernel kills one of them when more than that leaves the GPU"
		c.Next = "give the container at least " + v1alpha1.FormatBytes(swapped) + " beside what its programs need, or the share less memory"
	default:
		c.Found = "of the share " + v1alpha1.FormatBytes(swapped) + " can be in host memory, of the " + v1alpha1.FormatBytes(limit.Bytes) +
			" that programs here may have (" + limit.File + ")"
	}
	return c
}
