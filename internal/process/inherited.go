package process

import (
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// CloseInherited closes the descriptors behind the last one that this process was given on purpose: what whoever started it left
// open for other programs, such as a lock of a shell's, which would be held for as long as this process lives. What it opened
// itself, and the runtime did, is closed on exec, and stays.
func CloseInherited(last int) error {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return fmt.Errorf("close what was inherited: %w", err)
	}
	for _, entry := range entries {
		fd, err := strconv.Atoi(entry.Name())
		if err != nil || fd <= last {
			continue
		}
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			_ = unix.Close(fd) // nothing was written there
		}
	}
	return nil
}
