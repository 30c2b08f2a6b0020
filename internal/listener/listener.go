// Package listener bounds the connections of a server, so that nobody who opens as many as they can keeps others out.
package listener

import (
	"net"
	"slices"
	"sync"
)

// Peer is who has the other end of a connection: a machine, or what a server finds out besides.
type Peer string

// Bounds are how many connections may be open.
type Bounds struct {
	// Most is for all together, and Each for one peer, 0 for no other bound than Most.
	Most, Each int
	// Of tells whose a connection is; nil means [AddressOf].
	Of func(net.Conn) Peer
	// Spared loses no connection for another peer's.
	Spared Peer
}

// Bounded keeps the connections of a listener that may be open. A peer that has its part loses its oldest that waits for a
// request for one more, and has no room while all of its own are busy. When all are taken, the peer that has most loses one: the
// oldest that waits for a request, or else the oldest. Where several have most, it is chosen in the same way among theirs.
type Bounded struct {
	net.Listener
	bounds Bounds

	mu   sync.Mutex
	open map[Peer][]*Connection // the oldest first
	sum  int
	last int // number of the youngest
}

// Connection is one of those that are open.
type Connection struct {
	net.Conn
	of   *Bounded
	peer Peer
	// of.mu guards these. An older one has a lower number.
	busy   bool
	number int
}

// New bounds a listener.
func New(l net.Listener, bounds Bounds) *Bounded {
	if bounds.Of == nil {
		bounds.Of = AddressOf
	}
	return &Bounded{Listener: l, bounds: bounds, open: map[Peer][]*Connection{}}
}

// Accept implements [net.Listener].
func (b *Bounded) Accept() (net.Conn, error) {
	for {
		conn, err := b.Listener.Accept()
		if err != nil {
			return nil, err //nolint:wrapcheck // the server compares it
		}
		one := &Connection{Conn: conn, of: b, peer: b.bounds.Of(conn)}
		room, gone := b.add(one)
		if gone != nil {
			_ = gone.Conn.Close() // its server finds out
		}
		if room {
			return one, nil
		}
		_ = conn.Close()
	}
}

// add takes up a connection if there is room for it, and returns the one that has to go for it, if any.
func (b *Bounded) add(one *Connection) (room bool, gone *Connection) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch own := b.open[one.peer]; {
	case b.bounds.Each > 0 && len(own) >= b.bounds.Each:
		at := slices.IndexFunc(own, (*Connection).waits)
		if at < 0 {
			return false, nil
		}
		gone = own[at]
	case b.sum >= b.bounds.Most:
		if gone = b.first(one.peer); gone == nil {
			return false, nil // all are of who loses none
		}
	}
	if gone != nil {
		b.drop(gone)
	}
	b.open[one.peer] = append(b.open[one.peer], one)
	b.sum++
	b.last++
	one.number = b.last
	return true, gone
}

// first is the connection that goes first for one of a peer when all are taken, nil if none may. b.mu is held.
func (b *Bounded) first(peer Peer) (gone *Connection) {
	most := len(b.open[peer])
	if most > 0 {
		gone = firstOf(b.open[peer])
	}
	for other, its := range b.open {
		if len(its) < most || other == peer || other == b.bounds.Spared && other != "" {
			continue
		}
		if one := firstOf(its); len(its) > most || gone.peer != peer && one.before(gone) {
			most, gone = len(its), one
		}
	}
	return gone
}

// firstOf is which of a peer's connections goes first.
func firstOf(its []*Connection) *Connection {
	return its[max(0, slices.IndexFunc(its, (*Connection).waits))]
}

func (c *Connection) waits() bool { return !c.busy }

// before tells whether a connection goes before another one: that which waits for a request, or else the older one.
func (c *Connection) before(other *Connection) bool {
	if c.busy != other.busy {
		return other.busy
	}
	return c.number < other.number
}

// drop forgets a connection. b.mu is held.
func (b *Bounded) drop(one *Connection) {
	at := slices.Index(b.open[one.peer], one)
	if at < 0 {
		return
	}
	b.sum--
	if b.open[one.peer] = slices.Delete(b.open[one.peer], at, at+1); len(b.open[one.peer]) == 0 {
		delete(b.open, one.peer)
	}
}

// Peer is who has the other end.
func (c *Connection) Peer() Peer { return c.peer }

// Busy notes whether a request is being answered.
func (c *Connection) Busy(busy bool) {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	c.busy = busy
}

// Close implements [net.Conn].
func (c *Connection) Close() error {
	c.of.mu.Lock()
	c.of.drop(c)
	c.of.mu.Unlock()
	return c.Conn.Close() //nolint:wrapcheck // the server compares it
}

// AddressOf is the address of the other end, and of IPv6 the network: one machine has all of its addresses.
func AddressOf(conn net.Conn) Peer {
	remote, ok := conn.RemoteAddr().(*net.TCPAddr)
	if !ok {
		return ""
	}
	address := remote.AddrPort().Addr().Unmap().WithZone("")
	if address.Is6() {
		network, _ := address.Prefix(64) // which an address has
		return Peer(network.String())
	}
	return Peer(address.String())
}
