package listener

import (
	"net"
	"net/http"
	"testing"
)

// port is a port of which a test says from where connections come.
type port struct {
	*Port
	t *testing.T
}

// from opens a connection.
func (p port) from(address string) *guest {
	p.t.Helper()
	ours, theirs := net.Pipe()
	p.t.Cleanup(func() { _ = theirs.Close() })
	one := &guest{Conn: ours, of: p.Port, address: address}
	if away := p.add(one); away != nil {
		if err := away.Close(); err != nil {
			p.t.Error(err)
		}
	}
	return one
}

func (p port) counts(open, closed int) {
	p.t.Helper()
	if o, c := p.Figures(); o != open || c != closed {
		p.t.Errorf("%d are open and %d were closed, want %d and %d", o, c, open, closed)
	}
}

// A thousand connections from one address close each other, and not those of others.
func TestConnectionsAreBounded(t *testing.T) {
	p := port{NewPort(nil, 10), t}
	honest := []*guest{p.from("honest"), p.from("honest")}
	var flood []*guest
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
	p := port{NewPort(nil, 4), t}
	served, busyServed, busy, idle := p.from("a"), p.from("a"), p.from("a"), p.from("a")
	for _, one := range []*guest{served, busyServed} {
		Answered(WithConnection(t.Context(), one))
	}
	p.State(busyServed, http.StateActive)
	p.State(busy, http.StateActive)
	for i, next := range []*guest{idle, busy} {
		fresh := p.from("a")
		if !next.gone {
			t.Fatalf("step %d closes another", i)
		}
		p.State(fresh, http.StateActive)
		Answered(WithConnection(t.Context(), fresh))
	}
	p.from("a")
	if !served.gone || busyServed.gone {
		t.Errorf("of those that served: idle closed %v, busy closed %v", served.gone, busyServed.gone)
	}
	p.State(busyServed, http.StateIdle)
}

// What is no connection of the port is left alone.
func TestForeignConnections(t *testing.T) {
	p := port{NewPort(nil, 1), t}
	one, other := net.Pipe()
	defer func() { _, _ = one.Close(), other.Close() }()
	p.State(one, http.StateActive)
	Answered(WithConnection(t.Context(), one))
	Answered(t.Context())
	p.counts(0, 0)
}
