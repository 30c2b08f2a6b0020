package control

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// bequeathedFD is the least file descriptor of an inherited connection: beyond
// those that scripts number themselves.
const bequeathedFD = 64

// Bequeath leaves the connection open in the program that this process becomes
// by execve(2) and in that one's children: the agent sees it end with the last
// of them. The client remains usable until then.
func (c *Client) Bequeath() error {
	raw, err := c.conn.SyscallConn()
	if err != nil {
		return fmt.Errorf("pass the agent's connection to the command: %w", err)
	}
	var dupErr error
	// F_DUPFD, unlike what Go does by itself, leaves close-on-exec off.
	err = raw.Control(func(fd uintptr) { _, dupErr = unix.FcntlInt(fd, unix.F_DUPFD, bequeathedFD) })
	if err := errors.Join(err, dupErr); err != nil {
		return fmt.Errorf("pass the agent's connection to the command: %w", err)
	}
	return nil
}
