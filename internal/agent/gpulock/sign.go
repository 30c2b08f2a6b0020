package gpulock

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/process"
	"github.com/divvy-gpu/divvy/internal/rundir"
)

// signFD is the least file descriptor of a sign: beyond those that scripts number
// themselves.
const signFD = 64

// signs begins the names of the signs of shares.
func (k Kind) signs() string { return strings.TrimSuffix(string(k), "/") + "-share/" }

// Sign leaves a sign in this process, in the program that it becomes by execve(2) and in
// its children: a share of the GPU lives here. The agent that granted it may be killed and its lock be gone while the share goes on. The sign is a socket that
// has a name and does nothing else.
func (k Kind) Sign(uuid, tenant string) error {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("leave the sign of a share: %w", err)
	}
	defer unix.Close(fd)
	name := k.signs() + uuid + "/" + strconv.Itoa(os.Getuid()) + "/" + tenant
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: name}); err != nil {
		return fmt.Errorf("leave the sign of a share: %w", err)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD, signFD); err != nil { // without close-on-exec
		return fmt.Errorf("leave the sign of a share: %w", err)
	}
	return nil
}

// parseSign reads a line of /proc/net/unix.
func (k Kind) parseSign(line string) (h Holder, ok bool) {
	_, sign, found := strings.Cut(line, " "+k.signs())
	parts := strings.Split(sign, "/")
	if !found || len(parts) != 3 {
		return h, false
	}
	uid, err := strconv.ParseUint(parts[1], 10, 31)
	if err != nil {
		return h, false
	}
	return Holder{UUID: parts[0], UID: int(uid), User: process.UserName(int(uid)), Left: true, tenant: parts[2]}, true
}

// LeftBy returns whose shares of a GPU go on without their agent, other than a user's.
// Where only is not nil, the tenant of the sign must be one that it accepts.
func (k Kind) LeftBy(uuid string, except int, only func(tenant string) bool) (h Holder, ok bool) {
	file, err := os.Open("/proc/net/unix")
	if err != nil {
		return h, false
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		h, ok := k.parseSign(lines.Text())
		if !ok || h.UUID != uuid || h.UID == except {
			continue
		}
		if only == nil || only(h.tenant) {
			h.BySystem = rundir.LeftBySystem(h.tenant)
			return h, true
		}
	}
	return h, false
}
