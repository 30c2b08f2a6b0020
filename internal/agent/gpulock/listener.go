package gpulock

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/divvy-gpu/divvy/internal/process"
)

// listens is the flag in /proc/net/unix of a socket that listens (proc_net(5)).
const listens = "00010000"

// listener finds who listens at a name and takes no connection. Only root sees the files
// of other users' processes: anybody else finds the user and no process. uid is -1 where
// that is not known either.
func listener(name string) (uid, pid int) {
	inode, ok := listening(name)
	if !ok {
		return -1, 0
	}
	if pid, ok := withSocket(fmt.Sprintf("socket:[%d]", inode)); ok {
		return process.Owner(pid), pid
	}
	uid, err := ownerOf(inode)
	if err != nil {
		return -1, 0
	}
	return uid, 0
}

// listening finds the inode of the socket that listens at a name.
func listening(name string) (inode uint32, ok bool) {
	file, err := os.Open("/proc/net/unix")
	if err != nil {
		return 0, false
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) == 8 && fields[7] == name && fields[3] == listens {
			n, err := strconv.ParseUint(fields[6], 10, 32)
			return uint32(n), err == nil
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
