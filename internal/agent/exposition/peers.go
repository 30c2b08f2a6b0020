package exposition

import (
	"encoding/binary"
	"fmt"
	"math"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/listener"
)

const rootPeer listener.Peer = "user 0"

// peerOf finds out who has the other end: a user of this machine, or where the kernel does not tell, or it is another machine,
// its address.
func peerOf(conn net.Conn) listener.Peer {
	remote, ok := conn.RemoteAddr().(*net.TCPAddr)
	local, okLocal := conn.LocalAddr().(*net.TCPAddr)
	if !ok || !okLocal {
		return ""
	}
	if remote.IP.IsLoopback() || remote.IP.Equal(local.IP) {
		if uid, err := ownerOf(remote.AddrPort(), local.AddrPort()); err == nil {
			return listener.Peer(fmt.Sprintf("user %d", uid))
		}
	}
	return listener.AddressOf(conn)
}

// What the kernel's sock_diag(7) has of a TCP socket, from linux/inet_diag.h.
const (
	byFamily    = 20 // SOCK_DIAG_BY_FAMILY
	requestSize = unix.SizeofNlMsghdr + 56
	answerSize  = unix.SizeofNlMsghdr + 72
	ownerAt     = unix.SizeofNlMsghdr + 64
	inodeAt     = unix.SizeofNlMsghdr + 68
)

// ownerOf asks the kernel for the user who has the socket from one address to another.
func ownerOf(from, to netip.AddrPort) (uid uint32, err error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return 0, fmt.Errorf("ask for a socket's owner: %w", err)
	}
	defer unix.Close(fd)
	if err := unix.Sendto(fd, ownerRequest(from, to), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return 0, fmt.Errorf("ask for a socket's owner: %w", err)
	}
	answer := make([]byte, 4096)
	// The kernel answers before sendto returns.
	n, _, err := unix.Recvfrom(fd, answer, unix.MSG_DONTWAIT)
	if err != nil {
		return 0, fmt.Errorf("ask for a socket's owner: %w", err)
	}
	order := binary.NativeEndian
	// A socket that its process has closed has no inode, and root for its owner.
	if n < answerSize || order.Uint16(answer[4:]) != byFamily || order.Uint32(answer[inodeAt:]) == 0 {
		return 0, fmt.Errorf("ask for a socket's owner: the kernel knows no such socket")
	}
	return order.Uint32(answer[ownerAt:]), nil
}

func ownerRequest(from, to netip.AddrPort) []byte {
	order := binary.NativeEndian
	b := make([]byte, 0, requestSize)
	b = order.AppendUint32(b, requestSize)
	b = order.AppendUint16(b, byFamily)
	b = order.AppendUint16(b, unix.NLM_F_REQUEST)
	b = append(b, make([]byte, 8)...) // sequence and port
	family := byte(unix.AF_INET)
	if from.Addr().Unmap().Is6() {
		family = unix.AF_INET6
	}
	b = append(b, family, unix.IPPROTO_TCP, 0, 0)
	b = order.AppendUint32(b, math.MaxUint32) // in any state
	b = binary.BigEndian.AppendUint16(b, from.Port())
	b = binary.BigEndian.AppendUint16(b, to.Port())
	for _, at := range []netip.AddrPort{from, to} {
		address := make([]byte, 16)
		copy(address, at.Addr().Unmap().AsSlice())
		b = append(b, address...)
	}
	b = order.AppendUint32(b, 0)              // any interface
	b = order.AppendUint32(b, math.MaxUint32) // whatever its cookie
	return order.AppendUint32(b, math.MaxUint32)
}
