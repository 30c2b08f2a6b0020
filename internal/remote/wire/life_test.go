package wire

import (
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// plain is a side without TLS, whose end is the pipe's.
type plain struct{ net.Conn }

func (p plain) CloseWrite() error { return p.Close() }
func (p plain) NetConn() net.Conn { return p.Conn }

// netOf is a network between two sides that keeps what is on its way, and can pause.
type netOf struct {
	client plain
	server plain
	paused chan struct{} // holds one entry while it is paused
}

// network makes one. Of what it keeps there is no bound.
func network(t *testing.T) *netOf {
	t.Helper()
	n := &netOf{paused: make(chan struct{}, 1)}
	var a, b net.Conn
	n.client.Conn, a = net.Pipe()
	n.server.Conn, b = net.Pipe()
	go n.pass(a, b)
	go n.pass(b, a)
	return n
}

func (n *netOf) pass(from, to net.Conn) {
	way := make(chan []byte, 1<<16)
	go func() {
		defer to.Close()
		for text := range way {
			n.paused <- struct{}{}
			<-n.paused
			if _, err := to.Write(text); err != nil {
				return
			}
		}
	}()
	defer close(way)
	for {
		text := make([]byte, 1<<16)
		size, err := from.Read(text)
		if err != nil {
			return
		}
		way <- text[:size]
	}
}

// pause holds up everything for a while.
func (n *netOf) pause(d time.Duration) {
	n.paused <- struct{}{}
	time.Sleep(d)
	<-n.paused
}

// reads reads until the end, and says when that came and why.
func reads(c *Conn) <-chan time.Time {
	over := make(chan time.Time, 1)
	go func() {
		for {
			if _, err := c.Read(); err != nil {
				over <- time.Now()
				return
			}
		}
	}()
	return over
}

// A side of which nothing comes is dead after the time for it; the other side's writes need not succeed for that.
func TestSilence(t *testing.T) {
	for _, late := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			ours, theirs := net.Pipe() // nobody reads at the other end
			defer theirs.Close()
			c := begin(plain{ours}, false)
			c.theirs.Store(late)
			began := time.Now()
			over := reads(c)
			lasted, want := (<-over).Sub(began), Silence
			if late {
				want = SilenceLate
			}
			if !errors.Is(c.Err(), ErrSilent) || lasted < want || lasted > want+look {
				t.Errorf("late %v: %v after %v", late, c.Err(), lasted)
			}
		})
	}
}

// A pause under 10 s is waited out, whenever it begins, also where the kernel needs a second more; a longer one is death.
func TestPauses(t *testing.T) {
	for begin := time.Duration(0); begin < 2*Beat; begin += 90 * time.Millisecond {
		for pause, lives := range map[time.Duration]bool{10900 * time.Millisecond: true, 13 * time.Second: false} {
			synctest.Test(t, func(t *testing.T) {
				n := network(t)
				pauses(t, n, begin, pause, lives)
			})
		}
	}
}

func pauses(t *testing.T, n *netOf, after, pause time.Duration, lives bool) {
	server, client := begin(n.server, false), begin(n.client, false)
	defer server.Close()
	defer client.Close()
	one, other := reads(server), reads(client)
	time.Sleep(20*time.Second + after)
	n.pause(pause)
	time.Sleep(time.Minute)
	for _, c := range []*Conn{server, client} {
		if why := c.Err(); lives != (why == nil) {
			t.Errorf("a pause of %v after %v: %v", pause, after, why)
		}
	}
	_, _ = server.Close(), client.Close()
	<-one
	<-other
}

// A side whose kernel tries again late says so, and one that writes all the time too.
func TestLateSideIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := network(t)
		server, client := begin(n.server, false), begin(n.client, true)
		defer server.Close()
		defer client.Close()
		wrote := make(chan struct{})
		go func() {
			defer close(wrote)
			for client.Write(0, []byte("x")) == nil {
				time.Sleep(Beat / 10)
			}
		}()
		over := reads(server)
		time.Sleep(3 * Beat)
		if !server.theirs.Load() || server.silenceTime() != SilenceLate {
			t.Errorf("the other side is not known to be late")
		}
		_, _ = server.Close(), client.Close()
		<-over
		<-wrote
	})
}

// Of a long frame each part tells that the other side lives, however slowly it comes.
func TestSlowFrame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		go func() { _, _ = io.Copy(io.Discard, theirs) }()
		c := begin(plain{ours}, false)
		defer c.Close()
		go func() {
			_, _ = theirs.Write([]byte("\x02\x00\x00\x00\x00\x00\x00\x0a"))
			for range 10 {
				time.Sleep(8 * time.Second)
				_, _ = theirs.Write([]byte("x"))
			}
		}()
		f, err := c.Read()
		if err != nil || string(f.Content) != "xxxxxxxxxx" {
			t.Errorf("%q, %v", f.Content, err)
		}
		_, _ = ours.Close(), theirs.Close()
	})
}

// Who does not read cannot tell silence.
func TestSilenceOfWhoDoesNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		go func() { _, _ = io.Copy(io.Discard, theirs) }()
		c := begin(plain{ours}, false)
		time.Sleep(time.Minute)
		if err := c.Err(); err != nil {
			t.Error(err)
		}
		_, _, _ = c.Close(), ours.Close(), theirs.Close()
	})
}

// A last message that cannot be sent ends the connection at once, which says why.
func TestLastThatIsTooLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := network(t)
		c, s := begin(n.client, false), begin(n.server, false)
		c.Last(Answer{Ended: &Ended{Text: strings.Repeat("x", MaxMessage)}})
		if err := c.Err(); err == nil || !strings.Contains(err.Error(), "bytes") {
			t.Errorf("it ended by %v", err)
		}
		s.Drain()
	})
}

// The end of a side that is never read to the end comes all the same.
func TestFinishEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe() // nobody reads
		defer theirs.Close()
		c := begin(plain{ours}, false)
		go c.Last(Answer{Ended: &Ended{Text: "why"}})
		began := time.Now()
		<-c.Done()
		if lasted := time.Since(began); lasted > lingering {
			t.Errorf("it took %v", lasted)
		}
	})
}
