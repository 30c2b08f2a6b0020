package webpage

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/overview"
)

// taken is how many places are.
func (p *places) taken() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.sum
}

// eventually waits for a condition.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	deadline := time.After(2 * time.Minute)
	for !condition() {
		select {
		case <-deadline:
			t.Fatalf("it did not happen that %s", what)
		case <-time.After(time.Millisecond):
		}
	}
}

// listen opens a stream and returns its lines.
func listen(t *testing.T, address string) *bufio.Reader {
	t.Helper()
	in, err := begin(t, address)
	if err != nil {
		t.Fatal(err)
	}
	return in
}

// begin opens a stream, unless the server has cut the request.
func begin(t *testing.T, address string) (*bufio.Reader, error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, address+"/?events", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := (&http.Client{Transport: &http.Transport{}}).Do(r)
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { _ = answer.Body.Close() })
	if answer.StatusCode != http.StatusOK || answer.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("status %d", answer.StatusCode)
	}
	return bufio.NewReader(answer.Body), nil
}

// data is that of the next event.
func data(t *testing.T, in *bufio.Reader) string {
	t.Helper()
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		if text, ok := strings.CutPrefix(line, "data: "); ok {
			return text
		}
	}
}

func TestBrowsersAreToldOfChangesAlone(t *testing.T) {
	var shown atomic.Pointer[overview.Overview]
	shown.Store(machine())
	s := site(t, Config{Every: time.Millisecond}, func() (*overview.Overview, error) { return shown.Load(), nil })
	s.beat = time.Hour
	address := served(t, s, func(c *http.Server) { c.ReadTimeout, c.WriteTimeout = 50*time.Millisecond, 50*time.Millisecond })
	var in *bufio.Reader
	// On a busy machine the server may cut a request before it has read it: its bounds are short.
	eventually(t, "a stream begins", func() (begun bool) {
		var err error
		in, err = begin(t, address)
		return err == nil
	})
	first := data(t, in)
	before := s.Rendered()
	eventually(t, "the view is rendered again, and the server's bounds are past", func() bool { return s.Rendered() > before+100 })
	other := machine()
	other.Nodes[0].GPUs[0].Count = 99
	shown.Store(other)
	if second := data(t, in); second == first {
		t.Errorf("told the same twice: %s", second)
	}
}

func TestNothingIsRenderedWhileNobodyLooks(t *testing.T) {
	s := site(t, Config{Every: time.Millisecond}, func() (*overview.Overview, error) { return machine(), nil })
	address := served(t, s, nil)
	for range 2 {
		ctx, cancel := context.WithCancel(t.Context())
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, address+"/?events", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		data(t, bufio.NewReader(answer.Body))
		cancel()
		_ = answer.Body.Close()
		eventually(t, "the stream ends", func() bool { return s.streams.taken() == 0 })
	}
	before := s.Rendered()
	timer := time.NewTimer(20 * time.Millisecond) // many times of the interval
	<-timer.C
	if s.Rendered() != before {
		t.Error("a rendering that nobody sees")
	}
}

func TestStreamsAreBoundedInNumberAndTime(t *testing.T) {
	s := site(t, Config{Every: time.Millisecond}, func() (*overview.Overview, error) { return machine(), nil })
	s.streams.anybody, s.life = 2, 30*time.Millisecond
	address := served(t, s, nil)
	in := listen(t, address)
	data(t, in)
	if _, err := io.Copy(io.Discard, in); err != nil {
		t.Errorf("the stream does not end well: %v", err)
	}
	s.life = time.Hour
	eventually(t, "both are taken back", func() bool { return s.streams.taken() == 0 })
	data(t, listen(t, address))
	data(t, listen(t, address))
	answer, err := http.Get(address + "/?events") //nolint:noctx // the server answers at once
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusServiceUnavailable || answer.Header.Get("Retry-After") == "" {
		t.Errorf("one too many: status %d", answer.StatusCode)
	}
}

// Nobody takes all places: a peer has a part of them, and some are kept for readers with a name, and for root.
func TestPlacesAreKept(t *testing.T) {
	p := newPlaces()
	ada, root := Reader{Key: "1", Name: "ada"}, Reader{Key: "0", Name: "root", First: true}
	fill := func(reader Reader, peer string) (n int) {
		for p.take(reader, peer) {
			n++
		}
		return n
	}
	for i, c := range []struct {
		reader Reader
		peer   string
		want   int
	}{{Reader{}, "user 1", 80}, {ada, "user 1", 0}, {Reader{}, "user 2", 80}, {Reader{}, "", 360}, {Reader{}, "user 3", 0}, {ada, "user 3", 80}, {ada, "user 4", 0}, {root, "user 0", 40}} {
		if got := fill(c.reader, c.peer); got != c.want {
			t.Errorf("%d: %s at %q had %d places, want %d", i, c.reader.Name, c.peer, got, c.want)
		}
	}
	p.give("user 1")
	p.give("user 0")
	if p.take(ada, "user 5") || !p.take(root, "user 0") {
		t.Error("root's place went to another, or to nobody")
	}
}

// TestABrowserThatNeverReads asks for events and reads none: once the kernel has no room for more, its stream ends.
func TestABrowserThatNeverReads(t *testing.T) {
	var n atomic.Int64
	s := site(t, Config{Every: time.Microsecond}, func() (*overview.Overview, error) {
		o := overview.New(noon)
		o.WaitingUnseen = int(n.Add(1)) // each differs
		return o, nil
	})
	s.write = 20 * time.Millisecond
	address := served(t, s, func(c *http.Server) {
		c.ConnContext = func(ctx context.Context, conn net.Conn) context.Context {
			if tcp, ok := conn.(*net.TCPConn); ok {
				_ = tcp.SetWriteBuffer(4096)
			}
			return ctx
		}
	})
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(address, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetReadBuffer(4096)
	}
	if _, err := io.WriteString(conn, "GET /?events HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the stream begins", func() bool { return n.Load() > 0 }) // it may have ended since
	eventually(t, "the stream ends", func() bool { return s.streams.taken() == 0 })
}

// TestManyBrowsers has 500 of them told of every change, from one rendering each.
func TestManyBrowsers(t *testing.T) {
	var shown atomic.Pointer[overview.Overview]
	shown.Store(machine())
	s := site(t, Config{Every: 5 * time.Millisecond}, func() (*overview.Overview, error) { return shown.Load(), nil })
	address := served(t, s, nil)
	const browsers, changes = 500, 3
	streams := make([]*bufio.Reader, browsers)
	var opening sync.WaitGroup
	for i := range streams {
		streams[i] = listen(t, address)
	}
	opening.Wait()
	told := make([]string, browsers)
	for change := range changes {
		for i, in := range streams {
			next := data(t, in)
			for next == told[i] { // a beat
				next = data(t, in)
			}
			told[i] = next
			if told[i] != told[0] {
				t.Fatalf("browser %d is told %s, and the first %s", i, told[i], told[0])
			}
		}
		other := machine()
		other.WaitingUnseen = 100 + change
		shown.Store(other)
	}
}
