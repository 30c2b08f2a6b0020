package extender

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// crowd are clients of a server that do it no good.
type crowd struct {
	*running
	// stay tells that they may be there in the end, as many as there may be connections.
	stay bool
}

// longBodies is the case that looks at the process's memory. It runs alone: other cases' clients have memory in the same process.
const longBodies = "long bodies that stop"

// Nobody who is slow, silent or deaf keeps an honest scheduler from its answer; and what such clients have of connections and
// memory is bounded, and ends.
func TestSlowClients(t *testing.T) {
	for name, come := range map[string]func(*crowd){
		"no handshake":     func(c *crowd) { c.each(600, func() { c.dial(c.t.Context()) }) },
		"half a handshake": func(c *crowd) { c.each(400, func() { c.say(c.dial(c.t.Context()), "\x16\x03\x01\x02\x00\x01") }) },
		"no question":      func(c *crowd) { c.each(300, func() { c.secure() }) },
		"header by bytes": func(c *crowd) {
			c.each(300, func() { c.trickle(c.secure(), "POST /filter HTTP/1.1\r\nHost: a\r\nX-A: ") })
		},
		"body by bytes":     func(c *crowd) { c.each(200, func() { c.trickle(c.secure(), header(VerbFilter, longestMessage/2)) }) },
		"bindings by bytes": func(c *crowd) { c.each(200, func() { c.trickle(c.secure(), header(VerbBind, 1000)) }) },
		longBodies: func(c *crowd) {
			c.each(100, func() { c.say(c.secure(), header(VerbFilter, longestMessage)+"{") })
			c.modest()
		},
		"bodies that are too long": func(c *crowd) { c.each(100, func() { c.trickle(c.secure(), header(VerbFilter, longestMessage+1)) }) },
		"answers are not read": func(c *crowd) {
			text := c.broad()
			c.each(20, func() { c.say(c.secure(), header(VerbFilter, len(text))+text) })
		},
		// Where the end of a question still waited for what is not read, the server has nothing to write, and the connection is idle.
		"HTTP/2 is not read": func(c *crowd) { c.stay = true; c.deaf() },
		"idle":               func(c *crowd) { c.stay = true; c.each(400, c.idle) },
	} {
		t.Run(name, func(t *testing.T) {
			if name != longBodies {
				t.Parallel()
			}
			r := serve(t)
			r.hold("extender", "")
			r.until("/readyz", http.StatusOK)
			c := &crowd{running: r}
			come(c)
			for range 3 {
				if status, text := r.post(VerbFilter, c.question(`"a"`)); status != http.StatusOK || !strings.Contains(text, `{"NodeNames":["a"]`) {
					t.Errorf("an honest question meanwhile: %d %s", status, text)
				}
			}
			if open := c.open(); open > mostConnections {
				t.Errorf("%d connections are open", open)
			}
			for last := time.Now().Add(time.Minute); !c.stay && c.open() > 0; time.Sleep(20 * time.Millisecond) {
				if time.Now().After(last) {
					t.Fatalf("%d connections do not end", c.open())
				}
			}
		})
	}
}

// each has so many come, some at a time.
func (c *crowd) each(n int, one func()) {
	var all sync.WaitGroup
	places := make(chan struct{}, 8)
	for range n {
		places <- struct{}{}
		all.Go(func() {
			one()
			<-places
		})
	}
	all.Wait()
}

func (c *crowd) question(names string) string {
	return fmt.Sprintf(`{"Pod":{"metadata":{"name":"p","namespace":"default","uid":"uid-p","annotations":{"divvy.dev/request":%q}}},"NodeNames":[%s]}`, requestText(c.t, 10), names)
}

// broad is a question whose answer does not fit what a connection takes that is not read.
func (c *crowd) broad() string {
	names := make([]string, mostNodes)
	for i := range names {
		names[i] = fmt.Sprintf(`"%0100d"`, i)
	}
	return c.question(strings.Join(names, ","))
}

func header(verb string, length int) string {
	return fmt.Sprintf("POST /%s HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n", verb, length)
}

// dial opens a connection.
func (c *crowd) dial(ctx context.Context) net.Conn {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", strings.TrimPrefix(c.questions, "https://"))
	if err != nil {
		c.t.Error(err)
		runtime.Goexit()
	}
	c.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// secure is a connection of HTTP/1.1 after its handshake, or one that was closed meanwhile to make room.
func (c *crowd) secure() net.Conn {
	conn := tls.Client(c.dial(c.t.Context()), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}}) //nolint:gosec // as a scheduler of the same pod
	_ = conn.HandshakeContext(context.Background())
	return conn
}

// say says something, whether or not anybody listens.
func (c *crowd) say(conn net.Conn, text string) { _, _ = io.WriteString(conn, text) }

// trickle goes on a byte at a time until the server ends it.
func (c *crowd) trickle(conn net.Conn, text string) {
	c.say(conn, text)
	go func() {
		for c.t.Context().Err() == nil {
			if _, err := io.WriteString(conn, " "); err != nil {
				return
			}
			time.Sleep(50 * time.Millisecond)
		}
	}()
}

// idle asks once and keeps the connection.
func (c *crowd) idle() {
	conn, text := c.secure(), c.question(`"a"`)
	c.say(conn, header(VerbFilter, len(text))+text)
	_, _ = conn.Read(make([]byte, 1))
}

// modest wants no more memory to be in use than the extender's container has beside what it knows.
func (c *crowd) modest() {
	runtime.GC() // what earlier tests left is not in use
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	if most := uint64(256 << 20); stats.HeapAlloc > most {
		c.t.Errorf("%d bytes are in use, more than %d", stats.HeapAlloc, most)
	}
}

var openText = regexp.MustCompile(`(?m)^divvy_extender_connections (\d+)$`)

// open is how many connections there are.
func (c *crowd) open() int {
	_, text := c.get("/metrics")
	found := openText.FindStringSubmatch(text)
	if found == nil {
		c.t.Fatalf("no connections are told of: %s", text)
	}
	n, _ := strconv.Atoi(found[1])
	return n
}

// unread is a connection of which nothing is read once it is told so.
type unread struct {
	net.Conn
	deaf *atomic.Bool
	gone context.Context //nolint:containedctx // the end of the test
}

func (u *unread) Read(into []byte) (int, error) {
	if u.deaf.Load() {
		<-u.gone.Done()
		return 0, io.EOF
	}
	return u.Conn.Read(into)
}

// deaf asks more over HTTP/2 than what a connection takes that is not read, and reads nothing of the answers.
func (c *crowd) deaf() {
	deaf := &atomic.Bool{}
	transport := &http.Transport{
		ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // as a scheduler of the same pod
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return &unread{c.dial(ctx), deaf, c.t.Context()}, nil
		},
	}
	text := c.broad()
	var sent, ended sync.WaitGroup
	for range 4 {
		sent.Add(1)
		body := &told{Reader: strings.NewReader(text), end: sync.OnceFunc(sent.Done)}
		ended.Go(func() {
			answer, err := transport.RoundTrip(c.request(body, int64(len(text))))
			if err == nil {
				_ = answer.Body.Close()
			}
		})
	}
	sent.Wait()
	deaf.Store(true)
	c.t.Cleanup(ended.Wait)
}

func (c *crowd) request(body io.Reader, length int64) *http.Request {
	request, err := http.NewRequestWithContext(c.t.Context(), http.MethodPost, c.questions+"/"+VerbFilter, body)
	if err != nil {
		c.t.Error(err)
		runtime.Goexit()
	}
	request.ContentLength = length
	return request
}

// told tells when all of it was read, or nobody reads it any more.
type told struct {
	io.Reader
	end func()
}

func (b *told) Close() error {
	b.end()
	return nil
}

func (b *told) Read(into []byte) (int, error) {
	n, err := b.Reader.Read(into)
	if err != nil {
		b.end()
	}
	return n, err
}
