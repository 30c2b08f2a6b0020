package gpulock

import (
	"bufio"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// listens is the flag in /proc/net/unix of a socket that listens (proc_net(5)).
const listens = "00010000"

// listener finds the process that listens at a name when it takes no connection. Only
// root sees the files of other users' processes; anybody else finds nobody.
func listener(name string) (pid int, ok bool) {
	file, err := os.Open("/proc/net/unix")
	if err != nil {
		return 0, false
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) == 8 && fields[7] == name && fields[3] == listens {
			return withSocket("socket:[" + fields[6] + "]")
		}
	}
	return 0, false
}

// withSocket finds a process that has a socket open.
func withSocket(socket string) (pid int, ok bool) {
	files, err := filepath.Glob("/proc/[0-9]*/fd/*")
	if err != nil {
		return 0, false
	}
	for _, file := range files {
		if target, err := os.Readlink(file); err == nil && target == socket {
			pid, err := strconv.Atoi(strings.Split(file, "/")[2])
			return pid, err == nil
		}
	}
	return 0, false
}
