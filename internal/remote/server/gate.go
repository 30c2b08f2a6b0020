package server

import (
	"fmt"
	"net"
	"net/netip"
	"sync"
)

// Bounds of connections. Who has shown no certificate yet may take little from those who have: of each address, and of all
// together. Who has is bounded by name, so that many clients can come from one address.
const (
	mostStrangersFrom = 64
	mostStrangers     = 1024
	mostOfClient      = 2048
)

// gate counts connections.
type gate struct {
	mu        sync.Mutex
	strangers int
	from      map[netip.Prefix]int
	clients   map[string]int
}

// enter counts a connection of nobody known yet, until leave is called. Full says why there is no room.
func (g *gate) enter(address net.Addr) (leave func(), full string) {
	from := neighbours(address)
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.from[from] >= mostStrangersFrom:
		return nil, fmt.Sprintf("%d connections from there have not said who they are", mostStrangersFrom)
	case g.strangers >= mostStrangers:
		return nil, fmt.Sprintf("%d connections have not said who they are", mostStrangers)
	case g.from == nil:
		g.from = map[netip.Prefix]int{}
	}
	g.strangers++
	g.from[from]++
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.strangers--
		if g.from[from]--; g.from[from] == 0 {
			delete(g.from, from)
		}
	}, ""
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
