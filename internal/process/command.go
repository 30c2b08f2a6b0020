package process

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/divvy-gpu/divvy/internal/plaintext"
)

// maxCommand is more than the names of programs have.
const maxCommand = 32

// Command is the name of the program that a process runs, without its folder and
// arguments: that of its file or, where it may not be read, the one that the kernel
// shows (proc_pid_comm(5)). It is empty for a process that has ended.
func Command(pid int) string {
	dir := "/proc/" + strconv.Itoa(pid)
	name, err := os.Readlink(dir + "/exe")
	if err != nil {
		text, err := os.ReadFile(dir + "/comm")
		if err != nil {
			return ""
		}
		name = strings.TrimSuffix(string(text), "\n")
	}
	return plaintext.Line(filepath.Base(strings.TrimSuffix(name, " (deleted)")), maxCommand)
}

// Named reports whether a process runs whose name the kernel shows as that (proc_pid_comm(5)), of at most 15 bytes.
func Named(name string) bool {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return false
	}
	for _, entry := range entries {
		if first := entry.Name()[0]; first < '1' || first > '9' {
			continue
		}
		if text, err := os.ReadFile("/proc/" + entry.Name() + "/comm"); err == nil && strings.TrimSuffix(string(text), "\n") == name {
			return true
		}
	}
	return false
}
