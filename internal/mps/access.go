package mps

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

// private is the mode of the directory that has a daemon's own: whoever passes it can reach the sockets. Drivers before
// 550 let every user who reaches them change limits, and all drivers let one who connects and is silent hold up others.
const private = 0o700

// ACL entries as the kernel stores them, see acl(5) and linux/posix_acl_xattr.h.
const (
	accessList    = "system.posix_acl_access"
	accessVersion = 2
	ownerTag      = 0x01
	userTag       = 0x02
	groupTag      = 0x04
	maskTag       = 0x10
	otherTag      = 0x20
	noID          = ^uint32(0)
	all, pass     = 7, 1
)

// Admit lets users reach the daemon, and nobody else but this one and root. Everybody may pass where the users are not
// known. [DirsOf] has the directories of a daemon in one of its own, whose mode this is.
func (p Dirs) Admit(users []int, everybody bool) error {
	dir := filepath.Dir(p.Pipe)
	if everybody {
		return p.permit(dir, open, nil)
	}
	var others []int
	for _, uid := range users {
		if uid != 0 && uid != os.Geteuid() && !slices.Contains(others, uid) {
			others = append(others, uid)
		}
	}
	slices.Sort(others)
	return p.permit(dir, private, others)
}

// permit gives a directory a mode, and these users the right to pass it.
func (p Dirs) permit(dir string, mode os.FileMode, users []int) error {
	if err := own(dir); err != nil {
		return err
	}
	if err := unix.Removexattr(dir, accessList); err != nil && !errors.Is(err, unix.ENODATA) && !errors.Is(err, unix.ENOTSUP) {
		return fmt.Errorf("take back who may use the MPS control daemon in %s: %w", dir, err)
	}
	if err := os.Chmod(dir, mode); err != nil {
		return fmt.Errorf("say who may use the MPS control daemon: %w", err)
	}
	if len(users) == 0 {
		return nil
	}
	if err := unix.Setxattr(dir, accessList, accessListOf(users), 0); err != nil {
		return fmt.Errorf("let users reach the MPS control daemon in %s: the file system there needs access control lists: %w", dir, err)
	}
	return nil
}

// accessListOf lets users, in ascending order, pass a private directory.
func accessListOf(users []int) []byte {
	list := binary.LittleEndian.AppendUint32(nil, accessVersion)
	add := func(tag, rights uint16, id uint32) {
		list = binary.LittleEndian.AppendUint16(list, tag)
		list = binary.LittleEndian.AppendUint16(list, rights)
		list = binary.LittleEndian.AppendUint32(list, id)
	}
	add(ownerTag, all, noID)
	for _, uid := range users {
		add(userTag, pass, uint32(uid))
	}
	add(groupTag, 0, noID)
	add(maskTag, pass, noID)
	add(otherTag, 0, noID)
	return list
}
