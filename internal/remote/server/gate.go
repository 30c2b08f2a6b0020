package server

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Bounds of connections. Who has shown no certificate yet may take little from those who have: of each address, and of all
// together. Who has is bounded by name, so that many clients can come from one address.
const (
	mostStrangersFrom = 64
	mostStrangers     = 1024
	mostOfClient      = 2048
)

// stallTime is after how long without a byte a connection that has begun to say who it is gives way to another one. A handshake
// takes a few times as long as a packet's way.
const stallTime = 2 * time.Second

// gate counts connections.
type gate struct {
	mu sync.Mutex
	// strangers are connections of nobody known, the oldest first, and from is how many of them an address has.
	strangers []*stranger
	from      map[netip.Prefix]int
	clients   map[string]int
	// stall is [stallTime] unless it is set.
	stall time.Duration
}

// stranger is a connection of nobody known yet.
type stranger struct {
	conn net.Conn
	from netip.Prefix
}

// enter counts a connection of nobody known yet, until leave is called. Where there is no room the oldest one ends that says
// nothing, of the same address if that has its most. Full says why there is no room all the same.
func (g *gate) enter(conn net.Conn) (leave func(), full string) {
	s := &stranger{conn: conn, from: neighbours(conn.RemoteAddr())}
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.from[s.from] >= mostStrangersFrom && !g.dismiss(func(o *stranger) bool { return o.from == s.from }):
		return nil, fmt.Sprintf("%d connections from there are about to say who they are", mostStrangersFrom)
	case len(g.strangers) >= mostStrangers && !g.dismiss(func(*stranger) bool { return true }):
		return nil, fmt.Sprintf("%d connections are about to say who they are", mostStrangers)
	case g.from == nil:
		g.from = map[netip.Prefix]int{}
	}
	g.strangers = append(g.strangers, s)
	g.from[s.from]++
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		if at := slices.Index(g.strangers, s); at >= 0 {
			g.remove(at)
		}
	}, ""
}

// dismiss ends the oldest of some strangers that says nothing, and reports whether there was one. gate.mu is held.
func (g *gate) dismiss(of func(*stranger) bool) bool {
	at := slices.IndexFunc(g.strangers, func(s *stranger) bool { return of(s) && mute(s.conn, cmp.Or(g.stall, stallTime)) })
	if at < 0 {
		return false
	}
	_ = g.strangers[at].conn.Close() // whoever greets it hears of that
	g.remove(at)
	return true
}

// remove counts a stranger no more. gate.mu is held.
func (g *gate) remove(at int) {
	s := g.strangers[at]
	g.strangers = slices.Delete(g.strangers, at, at+1)
	if g.from[s.from]--; g.from[s.from] == 0 {
		delete(g.from, s.from)
	}
}

// mute reports whether a connection has said nothing, or nothing more for so long. The kernel knows also of what nobody has read
// yet.
func mute(conn net.Conn, stall time.Duration) bool {
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return false
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return true // it has ended
	}
	var info *unix.TCPInfo
	asked := raw.Control(func(fd uintptr) { info, err = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO) })
	if asked != nil {
		return true // as above
	}
	return err == nil && (info.Bytes_received == 0 || time.Duration(info.Last_data_recv)*time.Millisecond >= stall)
}

// admit counts a connection of a client until out is called.
func (g *gate) admit(client string) (out func(), full string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.clients == nil {
		g.clients = map[string]int{}
	}
	if g.clients[client] >= mostOfClient {
		return nil, fmt.Sprintf("client %s has %d connections, and none may have more: end some of its programs", client, mostOfClient)
	}
	g.clients[client]++
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.clients[client]--; g.clients[client] == 0 {
			delete(g.clients, client)
		}
	}, ""
}

// neighbours are the addresses that count as one: a host has a whole /64 of IPv6.
func neighbours(address net.Addr) netip.Prefix {
	whole := netip.Prefix{}
	tcp, ok := address.(*net.TCPAddr)
	if !ok {
		return whole
	}
	ip := tcp.AddrPort().Addr().Unmap().WithZone("")
	bits := 64
	if ip.Is4() {
		bits = 32
	}
	if p, err := ip.Prefix(bits); err == nil {
		return p
	}
	return whole
}

// hostOf is an address without its port.
func hostOf(address net.Addr) string {
	if host, _, err := net.SplitHostPort(address.String()); err == nil {
		return host
	}
	return address.String()
}
