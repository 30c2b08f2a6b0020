package gpulock

import (
	"encoding/binary"
	"fmt"
	"math"

	"golang.org/x/sys/unix"
)

// What the kernel's sock_diag(7) has of Unix sockets, from linux/unix_diag.h. The owner is told since Linux 5.3.
const (
	byFamily  = 20 // SOCK_DIAG_BY_FAMILY
	showOwner = 0x40
	attrOwner = 7

	requestSize = unix.SizeofNlMsghdr + 24 // struct unix_diag_req
	answerSize  = unix.SizeofNlMsghdr + 16 // struct unix_diag_msg
)

// ownerOf asks the kernel for the user who made a socket, by its inode. Everybody may ask, also where the files of the
// process that has it are closed to them.
func ownerOf(inode uint32) (uid int, err error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return 0, fmt.Errorf("ask for a socket's owner: %w", err)
	}
	defer unix.Close(fd)
	if err := unix.Sendto(fd, ownerRequest(inode), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return 0, fmt.Errorf("ask for a socket's owner: %w", err)
	}
	answer := make([]byte, 4096)
	// The kernel answers before sendto returns.
	n, _, err := unix.Recvfrom(fd, answer, unix.MSG_DONTWAIT)
	if err != nil {
		return 0, fmt.Errorf("ask for a socket's owner: %w", err)
	}
	return parseOwner(answer[:n])
}

func ownerRequest(inode uint32) []byte {
	order := binary.NativeEndian
	b := make([]byte, 0, requestSize)
	b = order.AppendUint32(b, requestSize)
	b = order.AppendUint16(b, byFamily)
	b = order.AppendUint16(b, unix.NLM_F_REQUEST)
	b = append(b, make([]byte, 8)...) // sequence and port
	b = append(b, unix.AF_UNIX, 0, 0, 0)
	b = order.AppendUint32(b, math.MaxUint32) // in any state
	b = order.AppendUint32(b, inode)
	b = order.AppendUint32(b, showOwner)
	b = order.AppendUint32(b, math.MaxUint32) // whatever its cookie
	return order.AppendUint32(b, math.MaxUint32)
}

// parseOwner reads the kernel's answer.
func parseOwner(b []byte) (uid int, err error) {
	order := binary.NativeEndian
	if len(b) < answerSize || order.Uint16(b[4:]) != byFamily {
		return 0, fmt.Errorf("ask for a socket's owner: the kernel knows no such socket")
	}
	b = b[answerSize:]
	for len(b) >= unix.SizeofRtAttr {
		size := int(order.Uint16(b))
		if size < unix.SizeofRtAttr || size > len(b) {
			break
		}
		if order.Uint16(b[2:]) == attrOwner && size == unix.SizeofRtAttr+4 {
			return int(order.Uint32(b[unix.SizeofRtAttr:])), nil
		}
		b = b[min((size+3)&^3, len(b)):]
	}
	return 0, fmt.Errorf("ask for a socket's owner: this kernel does not tell")
}
