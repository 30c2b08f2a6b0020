package webhook

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"sync"
)

// mostConnections is how many connections a port has open. API servers keep a few each.
const mostConnections = 256

// connections bounds how many connections a listener has open. One more takes the place of one of the address that has
// the most: first of one on which no review was answered yet, then of one on which none is under way, the oldest first.
// So a flood of connections closes its own.
type connections struct {
	net.Listener
	most int

	mu     sync.Mutex // guards what follows and the connections' fields; nothing else is locked within
	open   map[string]map[*connection]bool
	count  int
	number int
	closed int // to make room
}

// connection is one of them.
type connection struct {
	net.Conn
	of      *connections
	address string
	number  int  // they are numbered as they come
	busy    bool // with a request
	served  bool // a review was answered on it
	gone    bool
}

func newConnections(listener net.Listener, most int) *connections {
	return &connections{Listener: listener, most: most, open: make(map[string]map[*connection]bool)}
}

// Accept implements [net.Listener].
func (c *connections) Accept() (net.Conn, error) {
	accepted, err := c.Listener.Accept()
	if err != nil {
		return nil, err
	}
	one := &connection{Conn: accepted, of: c, address: addressOf(accepted.RemoteAddr().String())}
	if away := c.add(one); away != nil {
		_ = away.Close()
	}
	return one, nil
}

// addressOf is the host of an address with a port.
func addressOf(address string) string {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return address
	}
	return host
}

// add counts a connection and returns the one that must go, or nil.
func (c *connections) add(one *connection) *connection {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.number++
	one.number = c.number
	if c.open[one.address] == nil {
		c.open[one.address] = make(map[*connection]bool)
	}
	c.open[one.address][one] = true
	if c.count++; c.count <= c.most {
		return nil
	}
	var most map[*connection]bool
	for _, of := range c.open {
		if len(of) > len(most) {
			most = of
		}
	}
	var away *connection
	for other := range most {
		if other != one && (away == nil || other.before(away)) {
			away = other
		}
	}
	if away == nil {
		away = one
	}
	c.closed++
	c.remove(away)
	return away
}

// before reports whether a connection goes before another.
func (one *connection) before(other *connection) bool {
	switch {
	case one.served != other.served:
		return other.served
	case one.busy != other.busy:
		return other.busy
	}
	return one.number < other.number
}

func (c *connections) remove(one *connection) {
	if one.gone {
		return
	}
	one.gone = true
	c.count--
	delete(c.open[one.address], one)
	if len(c.open[one.address]) == 0 {
		delete(c.open, one.address)
	}
}

// Close implements [net.Conn].
func (one *connection) Close() error {
	one.of.mu.Lock()
	one.of.remove(one)
	one.of.mu.Unlock()
	return one.Conn.Close()
}

// state notes what the HTTP server does with a connection.
func (c *connections) state(conn net.Conn, state http.ConnState) {
	if one := ours(conn); one != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		one.busy = state == http.StateActive
	}
}

// ours is the connection below TLS.
func ours(conn net.Conn) *connection {
	if secure, ok := conn.(*tls.Conn); ok {
		conn = secure.NetConn()
	}
	one, _ := conn.(*connection)
	return one
}

// under is the key of a connection in the context of its requests.
type under struct{}

func withConnection(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, under{}, ours(conn))
}

// answered notes that a review was answered on the connection of a request.
func answered(ctx context.Context) {
	if one, ok := ctx.Value(under{}).(*connection); ok && one != nil {
		one.of.mu.Lock()
		defer one.of.mu.Unlock()
		one.served = true
	}
}

// figures are how many connections are open, and how many were closed to make room.
func (c *connections) figures() (open, closed int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.count, c.closed
}
