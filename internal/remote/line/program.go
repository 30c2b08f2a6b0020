package line

import "os"

// Program is the file to execute where a process is to speak with this one, given the path of its program. The processes
// of a server are of its own version so: while it serves, an upgrade may put another file where its own was.
func Program(path string) string {
	if self, err := os.Executable(); err == nil && self == path {
		return "/proc/self/exe"
	}
	return path
}
