package process

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"net/netip"
	"os"
	"strconv"
)

// Listener is who listens at a TCP port.
type Listener struct {
	UID int
	// PID is the process, 0 where this one may not see whose the socket is.
	PID int
}

// ListenerAt is who listens where a connection to an address arrives, in this process' network namespace. With an
// unspecified address it is whoever has the port.
func ListenerAt(address netip.AddrPort) (who Listener, ok bool) {
	for _, table := range []string{"/proc/self/net/tcp", "/proc/self/net/tcp6"} {
		text, err := os.ReadFile(table)
		if err != nil {
			continue // without IPv6 there is no second one
		}
		for line := range bytes.Lines(text) {
			one, at := parseListener(line)
			if !at || !one.answers(address) {
				continue
			}
			who = Listener{UID: one.uid}
			links := map[string]bool{"socket:[" + one.inode + "]": true}
			for _, id := range All() {
				if HasOpen(id.PID, links) {
					who.PID = id.PID
					break
				}
			}
			return who, true
		}
	}
	return Listener{}, false
}

// listening is a line of /proc/net/tcp (proc_net_tcp(5)) of a socket that listens.
type listening struct {
	at    netip.AddrPort
	uid   int
	inode string
}

// answers reports whether a connection to an address may arrive at the socket, or a socket there would be in its way.
func (l *listening) answers(address netip.AddrPort) bool {
	have, want := l.at.Addr().Unmap(), address.Addr().Unmap()
	return l.at.Port() == address.Port() && (have == want || have.IsUnspecified() || want.IsUnspecified())
}

// parseListener reads a line; it is false of any other socket's.
func parseListener(line []byte) (l listening, ok bool) {
	const local, state, uid, inode = 1, 3, 7, 9
	fields := bytes.Fields(line)
	if len(fields) <= inode || string(fields[state]) != "0A" {
		return l, false
	}
	host, port, found := bytes.Cut(fields[local], []byte(":"))
	number, portErr := strconv.ParseUint(string(port), 16, 16)
	owner, ownerErr := strconv.ParseUint(string(fields[uid]), 10, 32)
	words, err := hex.DecodeString(string(host))
	if !found || err != nil || portErr != nil || ownerErr != nil || len(words) != 4 && len(words) != 16 {
		return l, false
	}
	for at := 0; at < len(words); at += 4 { // each word is written as a number of this machine
		binary.BigEndian.PutUint32(words[at:], binary.NativeEndian.Uint32(words[at:]))
	}
	address, _ := netip.AddrFromSlice(words) // which has one of these lengths
	return listening{at: netip.AddrPortFrom(address, uint16(number)), uid: int(owner), inode: string(fields[inode])}, true
}
