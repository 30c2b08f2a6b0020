package tenantdir

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
)

// cgroups knows which cgroups are containers', as divvy-cover wrote when they were made.
// Only a process with rights outside its container leaves them. The zero value is ready.
type cgroups struct {
	mu sync.Mutex
	// known has the ids of tenants by controllers and path, as "memory:/a/b".
	known map[string]string
	read  time.Time
}

const (
	// cgroupsInterval is the least time between two readings of what was written.
	cgroupsInterval = 200 * time.Millisecond
	// mostCgroups bounds what is read for one tenant, in bytes: the latest some hundred
	// containers. Those before are known by their mounts.
	mostCgroups = 64 << 10
)

// owner is the id of the tenant, one of those in a directory, in whose container's cgroup a
// process is, "" for no tenant.
func (c *cgroups) owner(tenants string, pid int) string {
	table, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cgroup")
	if err != nil {
		return "" // it has ended
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.read) >= cgroupsInterval {
		c.known, c.read = recorded(tenants), time.Now()
	}
	return ownerOf(c.known, table)
}

// recorded reads what was written for the tenants in a directory. A cgroup that two of them
// have is nobody's.
func recorded(tenants string) map[string]string {
	known := map[string]string{}
	entries, err := os.ReadDir(tenants)
	if err != nil {
		return known // no container has been made
	}
	for _, entry := range entries {
		id := entry.Name()
		for line := range bytes.Lines(tail(Of(tenants, id).Cgroups())) {
			_, path, found := strings.Cut(string(bytes.TrimSpace(line)), ":")
			if !found || !filepath.IsAbs(path) || filepath.Clean(path) != path || path == "/" {
				continue
			}
			key := string(bytes.TrimSpace(line))
			if other, taken := known[key]; taken && other != id {
				id = ""
			}
			known[key] = id
			id = entry.Name()
		}
	}
	return known
}

// tail is the end of a file, from the beginning of a line on; nothing of one that cannot be
// read.
func tail(path string) []byte {
	file, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer file.Close()
	at := int64(0)
	if info, err := file.Stat(); err == nil {
		at = max(0, info.Size()-mostCgroups)
	}
	text, err := io.ReadAll(io.NewSectionReader(file, at, mostCgroups))
	if err != nil {
		return nil
	}
	if at > 0 {
		_, text, _ = bytes.Cut(text, []byte("\n"))
	}
	return text
}

// ownerOf finds the tenant of a process by /proc/PID/cgroup (cgroups(7)): a number,
// controllers and a path in each line. Of containers inside each other the innermost counts.
func ownerOf(known map[string]string, table []byte) string {
	for line := range bytes.Lines(table) {
		_, rest, _ := strings.Cut(strings.TrimSuffix(string(line), "\n"), ":")
		controllers, path, found := strings.Cut(rest, ":")
		// What is outside the agent's cgroup namespace has a path that begins with "/..".
		if !found || !filepath.IsAbs(path) || strings.HasPrefix(path, "/..") {
			continue
		}
		for ; path != "/"; path = filepath.Dir(path) {
			if tenant := known[controllers+":"+path]; tenant != "" {
				return tenant
			}
		}
	}
	return ""
}
