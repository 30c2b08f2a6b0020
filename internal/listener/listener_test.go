package listener

import (
	"net"
	"testing"
)

func few(bounds Bounds, peers ...Peer) *Bounded {
	b := New(nil, bounds)
	for _, p := range peers {
		b.add(&Connection{of: b, peer: p})
	}
	return b
}

// One peer takes no room from another, nor do many from one that has less than they, nor anybody from who is spared.
func TestConnectionsOfPeers(t *testing.T) {
	const root Peer = "root"
	bounds := Bounds{Most: 8, Each: 4, Spared: root}
	b := few(bounds, "eve", "eve", "eve", "eve", "ada")
	oldest := b.open["eve"][0]
	if room, gone := b.add(&Connection{of: b, peer: "eve"}); !room || gone != oldest || len(b.open["eve"]) != 4 {
		t.Errorf("one more of eve's: %v, %v", room, gone)
	}
	for _, one := range b.open["eve"] {
		one.Busy(true)
	}
	if room, gone := b.add(&Connection{of: b, peer: "eve"}); room || gone != nil {
		t.Errorf("one more while all of eve's are being answered: %v, %v", room, gone)
	}
	b = few(bounds, "eve", "eve", "eve", "eve", "mallory", "mallory", "mallory", root)
	if room, gone := b.add(&Connection{of: b, peer: "ada"}); !room || gone == nil || gone.Peer() != "eve" || b.sum != 8 {
		t.Errorf("ada when all are taken: %v, %v", room, gone)
	}
	b = few(bounds, root, root, root, root, "a", "b", "c", "d")
	if room, gone := b.add(&Connection{of: b, peer: "e"}); !room || gone == nil || gone.Peer() == root {
		t.Errorf("the place of who is spared: %v, %v", room, gone)
	}
	if room, _ := b.add(&Connection{of: b, peer: root}); !room || len(b.open[root]) != 4 {
		t.Errorf("who is spared has no room")
	}
	b = few(Bounds{Most: 2, Spared: root}, root, root)
	if room, gone := b.add(&Connection{of: b, peer: "a"}); room || gone != nil {
		t.Errorf("all places of who is spared: %v, %v", room, gone)
	}
}

// Without a bound for each, a peer loses its own when all are taken, the one that waits first, and has all that nobody needs.
func TestBoundOfAll(t *testing.T) {
	b := few(Bounds{Most: 4}, "a", "a", "b", "c")
	first, second := b.open["a"][0], b.open["a"][1]
	first.Busy(true)
	if room, gone := b.add(&Connection{of: b, peer: "d"}); !room || gone != second {
		t.Errorf("the one that waits: %v, %v", room, gone)
	}
	b = few(Bounds{Most: 2}, "a", "a")
	for _, one := range b.open["a"] {
		one.Busy(true)
	}
	oldest := b.open["a"][0]
	if room, gone := b.add(&Connection{of: b, peer: "a"}); !room || gone != oldest {
		t.Errorf("all are busy: %v, %v", room, gone)
	}
}

// Of peers that have equally many, one whose connection waits loses it, and of several the one that was there first.
func TestBoundOfEqualPeers(t *testing.T) {
	for range 100 { // a map's order is another one each time
		b := few(Bounds{Most: 6}, "a", "b", "c", "c", "b", "a")
		for _, one := range b.open["a"] {
			one.Busy(true)
		}
		oldest := b.open["b"][0]
		if room, gone := b.add(&Connection{of: b, peer: "d"}); !room || gone != oldest {
			t.Fatalf("b and c wait: %v, %v", room, gone)
		}
		oldest = b.open["c"][0]
		if room, gone := b.add(&Connection{of: b, peer: "c"}); !room || gone != oldest {
			t.Fatalf("who comes has as many as a: %v, %v", room, gone)
		}
	}
}

// addressed is a connection from an address.
type addressed struct {
	net.Conn
	from string
}

func (a addressed) RemoteAddr() net.Addr {
	address, err := net.ResolveTCPAddr("tcp", a.from)
	if err != nil {
		return a.Conn.RemoteAddr()
	}
	return address
}

// A connection that is closed, however often, makes room once, and is of the machine that it came from.
func TestForgetsWhatIsClosed(t *testing.T) {
	b := New(nil, Bounds{Most: 4})
	of := func(from string) *Connection {
		near, far := net.Pipe()
		t.Cleanup(func() { _ = far.Close() })
		c := &Connection{Conn: near, of: b, peer: AddressOf(addressed{near, from})}
		if _, gone := b.add(c); gone != nil {
			_ = gone.Conn.Close()
		}
		return c
	}
	a, c := of("[2001:db8::1]:1"), of("[2001:db8::2]:2") // one machine
	of("10.0.0.1:1")
	of("[::ffff:10.0.0.1]:2")
	a.Busy(true)
	of("10.0.0.3:1") // drives out c, which waits for a request
	if its := b.open[a.peer]; len(its) != 1 || its[0] != a || b.sum != 4 || a.peer != c.peer {
		t.Errorf("%v, %d", b.open, b.sum)
	}
	for range 2 {
		_, _ = a.Close(), c.Close()
	}
	if b.sum != 3 || len(b.open) != 2 || len(b.open["10.0.0.1"]) != 2 {
		t.Errorf("%v, %d", b.open, b.sum)
	}
	if got := AddressOf(a.Conn); got != "" {
		t.Errorf("a pipe is of %q", got)
	}
}
