package wire

import (
	"fmt"
	"io"
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Beat is how often each side sends something, and Silence after how long without anything the other one is dead. A pause of
// the network under 10 s is waited out: the last beat may have come half a second before it, and the kernel tries again at
// most a second after it. Where it cannot be told to (Linux before 6.15), its tries become rare, and SilenceLate counts.
const (
	Beat        = 500 * time.Millisecond
	Silence     = 11500 * time.Millisecond
	SilenceLate = 14 * time.Second
)

// look is how often silence is judged.
const look = Beat / 2

// lateBeat is the stream of a beat from a side whose kernel tries again late.
const lateBeat = 1

// lingering is how long an end waits until the other side has read what came before it.
const lingering = 5 * time.Second

// rtoMax is the socket option TCP_RTO_MAX_MS of Linux 6.15, in milliseconds.
const rtoMax = 44

// hasten has the kernel try again at least each second what was not acknowledged, and reports whether it will. What is no
// TCP loses nothing.
func hasten(conn net.Conn) bool {
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return true
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return false
	}
	var refused error
	err = raw.Control(func(fd uintptr) {
		refused = unix.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, rtoMax, int(time.Second/time.Millisecond))
	})
	return err == nil && refused == nil
}

// Done is closed when the connection has ended.
func (c *Conn) Done() <-chan struct{} { return c.ended }

// Err says why the connection ended, nil while it has not.
func (c *Conn) Err() error {
	if why := c.why.Load(); why != nil {
		return *why
	}
	return nil
}

// Close ends the connection at once; whoever reads or writes returns. What was sent last may be lost: see [Conn.Finish].
func (c *Conn) Close() error {
	c.end(io.ErrClosedPipe)
	return nil
}

func (c *Conn) end(why error) {
	c.once.Do(func() {
		c.why.Store(&why)
		close(c.ended)
		_ = c.tls.NetConn().Close() // TLS' own farewell could wait for a side that is gone
	})
}

// Last sends the last message of this side, which may take a while at most, and then does as [Conn.Finish]. Where the message cannot
// be sent, the connection ends.
func (c *Conn) Last(message any) {
	_ = c.tls.SetWriteDeadline(time.Now().Add(lingering)) // of one that is closed
	if err := c.Send(message); err != nil {
		c.end(err)
		return
	}
	c.Finish()
}

// Finish ends this direction after what was sent, and the connection when the other side has ended, or a while later. Whoever
// reads goes on to do so until then, and whoever writes fails: an end at once would take the last from a side that goes on to send.
func (c *Conn) Finish() {
	_ = c.tls.SetWriteDeadline(time.Now().Add(lingering)) // of one that is closed
	c.write.Lock()
	c.finished = true
	err := c.tls.CloseWrite()
	c.write.Unlock()
	if tcp, ok := c.tls.NetConn().(*net.TCPConn); ok && err == nil {
		err = tcp.CloseWrite()
	}
	if err != nil {
		c.end(fmt.Errorf("end: %w", err))
		return
	}
	time.AfterFunc(lingering, func() { c.end(io.ErrClosedPipe) })
}

// probes are how a kernel finds out that the host of a side that may be silent is gone, in about as long as beats would.
var probes = net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: 2 * time.Second, Count: 3}

// Forgive lets the other side be silent, because it said that it is about to be stopped, or no longer lets it. Meanwhile the
// kernel asks the other one whether its host is there.
func (c *Conn) Forgive(silence bool) {
	if c.forgiven.Swap(silence) == silence {
		return
	}
	if tcp, ok := c.tls.NetConn().(*net.TCPConn); ok && silence {
		_ = tcp.SetKeepAliveConfig(probes) // of one that is closed
	}
}

// Drain reads until the connection has ended, and drops what comes.
func (c *Conn) Drain() {
	dropped := make([]byte, firstRoom)
	c.reading.Store(true)
	for {
		n, err := c.tls.Read(dropped)
		if n > 0 {
			c.reads.Add(1)
		}
		if err != nil {
			c.end(fmt.Errorf("read from the other side: %w", err))
			return
		}
	}
}

// watch ends a connection on which nothing comes. It counts its own ticks, so that a process which was stopped for long reads
// first what came meanwhile.
func (c *Conn) watch() {
	ticker := time.NewTicker(look)
	defer ticker.Stop()
	seen, silent := c.reads.Load(), int64(0)
	for {
		select {
		case <-ticker.C:
		case <-c.ended:
			return
		}
		if now := c.reads.Load(); now != seen || !c.reading.Load() || c.forgiven.Load() {
			seen, silent = now, 0
		} else if silent++; time.Duration(silent)*look >= c.silenceTime() {
			c.end(fmt.Errorf("%w: for %v", ErrSilent, c.silenceTime()))
			return
		}
		c.silent.Store(silent)
	}
}

// Quiet is for how long nothing has come from the other side, while this one listened.
func (c *Conn) Quiet() time.Duration { return time.Duration(c.silent.Load()) * look }

// beat sends beats.
func (c *Conn) beat() {
	ticker := time.NewTicker(Beat)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-c.ended:
			return
		}
		// A writer that waits says itself that this side lives, as soon as the other one reads.
		if spoke := c.spoke.Swap(false); spoke || !c.write.TryLock() {
			continue
		}
		err := c.put(KindBeat, c.mark(), nil)
		c.write.Unlock()
		if err != nil {
			return
		}
		c.spoke.Store(false)
	}
}

// silenceTime is for how long the other side may be silent.
func (c *Conn) silenceTime() time.Duration {
	if c.theirs.Load() {
		return SilenceLate
	}
	return Silence
}

// mark is the stream of this side's beats.
func (c *Conn) mark() uint8 {
	if c.late {
		return lateBeat
	}
	return 0
}
