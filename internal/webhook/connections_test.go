package webhook

import (
	"net"
	"net/http"
	"testing"
)

// port is a port of which a test says from where connections come.
type port struct {
	*connections
	t *testing.T
}

// from opens a connection.
func (p port) from(address string) *connection {
	p.t.Helper()
	ours, theirs := net.Pipe()
	p.t.Cleanup(func() { _ = theirs.Close() })
	one := &connection{Conn: ours, of: p.connections, address: address}
	if away := p.add(one); away != nil {
		if err := away.Close(); err != nil {
			p.t.Error(err)
		}
	}
	return one
}

func (p port) counts(open, closed int) {
	p.t.Helper()
	if o, c := p.figures(); o != open || c != closed {
		p.t.Errorf("%d are open and %d were closed, want %d and %d", o, c, open, closed)
	}
}

// A thousand connections from one address close each other, and not those of others.
func TestConnectionsAreBounded(t *testing.T) {
	p := port{newConnections(nil, 10), t}
	honest := []*connection{p.from("honest"), p.from("honest")}
	var flood []*connection
	for range 1000 {
		flood = append(flood, p.from("flood"))
	}
	p.counts(10, 992)
	last := p.from("honest")
	for i, one := range append(honest, last) {
		if one.gone {
			t.Errorf("honest connection %d is closed", i)
		}
	}
	for i, one := range flood {
		if one.gone != (i < 993) {
			t.Errorf("connection %d of the flood: closed %v", i, one.gone)
		}
	}
	for _, one := range flood {
		_ = one.Close() // again, for most
	}
	p.counts(3, 993)
}

// Of one address, those go first on which nothing was answered, then those without a request, the oldest first.
func TestConnectionsThatServeStay(t *testing.T) {
	p := port{newConnections(nil, 4), t}
	served, busyServed, busy, idle := p.from("a"), p.from("a"), p.from("a"), p.from("a")
	for _, one := range []*connection{served, busyServed} {
		answered(withConnection(t.Context(), one))
	}
	p.state(busyServed, http.StateActive)
	p.state(busy, http.StateActive)
	for i, next := range []*connection{idle, busy} {
		fresh := p.from("a")
		if !next.gone {
			t.Fatalf("step %d closes another", i)
		}
		p.state(fresh, http.StateActive)
		answered(withConnection(t.Context(), fresh))
	}
	p.from("a")
	if !served.gone || busyServed.gone {
		t.Errorf("of those that served: idle closed %v, busy closed %v", served.gone, busyServed.gone)
	}
	p.state(busyServed, http.StateIdle)
}

// What is no connection of the port is left alone.
func TestForeignConnections(t *testing.T) {
	p := port{newConnections(nil, 1), t}
	one, other := net.Pipe()
	defer func() { _, _ = one.Close(), other.Close() }()
	p.state(one, http.StateActive)
	answered(withConnection(t.Context(), one))
	answered(t.Context())
	p.counts(0, 0)
	if got := addressOf("no port"); got != "no port" {
		t.Error(got)
	}
}
