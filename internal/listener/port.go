package listener

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"sync"
)

// Port bounds how many connections an HTTP server has open. One more takes the place of one of the address that has
// the most: first of one on which nothing was answered yet, then of one on which no request is under way, the oldest first.
// So a flood of connections closes its own.
type Port struct {
	net.Listener
	most int

	mu     sync.Mutex // guards what follows and the connections' fields; nothing else is locked within
	open   map[string]map[*guest]bool
	count  int
	number int
	closed int // to make room
}

// guest is one of the connections.
type guest struct {
	net.Conn
	of      *Port
	address string
	number  int  // they are numbered as they come
	busy    bool // with a request
	served  bool // something was answered on it
	gone    bool
}

// NewPort has at most so many connections of a listener open. The server's ConnState must be [Port.State].
func NewPort(listener net.Listener, most int) *Port {
	return &Port{Listener: listener, most: most, open: make(map[string]map[*guest]bool)}
}

// Accept implements [net.Listener].
func (c *Port) Accept() (net.Conn, error) {
	accepted, err := c.Listener.Accept()
	if err != nil {
		return nil, err
	}
	one := &guest{Conn: accepted, of: c, address: string(AddressOf(accepted))}
	if away := c.add(one); away != nil {
		_ = away.Close()
	}
	return one, nil
}

// add counts a connection and returns the one that must go, or nil.
func (c *Port) add(one *guest) *guest {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.number++
	one.number = c.number
	if c.open[one.address] == nil {
		c.open[one.address] = make(map[*guest]bool)
	}
	c.open[one.address][one] = true
	if c.count++; c.count <= c.most {
		return nil
	}
	var most map[*guest]bool
	for _, of := range c.open {
		if len(of) > len(most) {
			most = of
		}
	}
	var away *guest
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
func (one *guest) before(other *guest) bool {
	switch {
	case one.served != other.served:
		return other.served
	case one.busy != other.busy:
		return other.busy
	}
	return one.number < other.number
}

func (c *Port) remove(one *guest) {
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
func (one *guest) Close() error {
	one.of.mu.Lock()
	one.of.remove(one)
	one.of.mu.Unlock()
	return one.Conn.Close()
}

// State notes what the HTTP server does with a connection.
func (c *Port) State(conn net.Conn, state http.ConnState) {
	if one := ours(conn); one != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		one.busy = state == http.StateActive
	}
}

// ours is the connection below TLS, nil for one of another server.
func ours(conn net.Conn) *guest {
	if secure, ok := conn.(*tls.Conn); ok {
		conn = secure.NetConn()
	}
	one, _ := conn.(*guest)
	return one
}

// under is the key of a connection in the context of its requests.
type under struct{}

// WithConnection is for a server's ConnContext, so that [Answered] and [Hang] know whose request it is.
func WithConnection(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, under{}, ours(conn))
}

// Answered notes that something was answered on the connection of a request.
func Answered(ctx context.Context) {
	if one, ok := ctx.Value(under{}).(*guest); ok && one != nil {
		one.of.mu.Lock()
		defer one.of.mu.Unlock()
		one.served = true
	}
}

// Figures are how many connections are open, and how many were closed to make room.
func (c *Port) Figures() (open, closed int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.count, c.closed
}

// Hang ends the connection of a request at once, with everything else that is under way on it.
func Hang(ctx context.Context) {
	if one, ok := ctx.Value(under{}).(*guest); ok && one != nil {
		_ = one.Close() // it may have ended
	}
}
