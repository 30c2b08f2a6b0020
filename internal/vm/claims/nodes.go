package claims

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// HostNodes are the VFIO nodes of this machine.
type HostNodes struct{}

var _ Nodes = HostNodes{}

// folder has all nodes that are given.
const folder = "/dev/vfio/"

// Owner implements [Nodes].
func (HostNodes) Owner(node string) (Ownership, error) {
	file, err := openNode(node)
	if err != nil {
		return Ownership{}, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return Ownership{}, err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return Ownership{}, fmt.Errorf("see whose %s is: the system does not tell", node)
	}
	return Ownership{UID: int(stat.Uid), GID: int(stat.Gid), Mode: stat.Mode & 0o777}, nil
}

// SetOwner implements [Nodes].
func (HostNodes) SetOwner(node string, to Ownership) error {
	file, err := openNode(node)
	if err != nil {
		return err
	}
	defer file.Close()
	if err := unix.Fchownat(int(file.Fd()), "", to.UID, to.GID, unix.AT_EMPTY_PATH); err != nil {
		return fmt.Errorf("change the owner of %s: %w", node, err)
	}
	// The owner is changed first: who owned it cannot permit anything any more. A descriptor of O_PATH has a name here alone.
	self := fmt.Sprintf("/proc/self/fd/%d", file.Fd())
	if err := unix.Removexattr(self, "system.posix_acl_access"); err != nil && !errors.Is(err, unix.ENODATA) && !errors.Is(err, unix.EOPNOTSUPP) {
		return fmt.Errorf("take the access list from %s: %w", node, err)
	}
	if to.Mode != 0 {
		if err := unix.Chmod(self, to.Mode); err != nil {
			return fmt.Errorf("change the mode of %s: %w", node, err)
		}
	}
	return nil
}

// openNode refers to a character device below /dev/vfio, and does not open the device itself, which one process alone may.
func openNode(node string) (*os.File, error) {
	if filepath.Clean(node) != node || !strings.HasPrefix(node, folder) {
		return nil, fmt.Errorf("find the node %q: it is not below %s", node, folder)
	}
	fd, err := unix.Open(node, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("find the node %s: %w", node, err)
	}
	file := os.NewFile(uintptr(fd), node)
	info, err := file.Stat()
	if err == nil && info.Mode()&os.ModeCharDevice == 0 {
		err = fmt.Errorf("find the node %s: it is no device", node)
	}
	if err != nil {
		_ = file.Close()
		return nil, err
	}
	return file, nil
}
