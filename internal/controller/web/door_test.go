package web

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// served serves a world's pages and returns the address and how to trust its certificate.
func served(t *testing.T, w *world) (string, *tls.Config) {
	t.Helper()
	listener := narrow{listen(t)}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.pages.Serve(ctx, listener, slog.New(slog.DiscardHandler)) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	certificate, err := w.pages.sessions.certificate()
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(certificate.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(leaf)
	return listener.Addr().String(), &tls.Config{RootCAs: roots, ServerName: "example.com"}
}

// narrow keeps as little as it can of what the other end does not read.
type narrow struct{ net.Listener }

func (n narrow) Accept() (net.Conn, error) {
	conn, err := n.Listener.Accept()
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetWriteBuffer(4096)
	}
	return conn, err
}

// clientFrom asks from an address of the loopback interface.
func clientFrom(t *testing.T, from string, trust *tls.Config, http2 bool) *http.Client {
	t.Helper()
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	transport := &http.Transport{TLSClientConfig: trust.Clone(), ForceAttemptHTTP2: http2, DialContext: dialer.DialContext}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// statusOf asks, and returns the status of a whole answer, 0 for none.
func statusOf(t *testing.T, client *http.Client, address string, header http.Header) int {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	request.Header = header
	answer, err := client.Do(request)
	if err != nil {
		t.Log(err)
		return 0
	}
	defer func() { _ = answer.Body.Close() }()
	if _, err := io.Copy(io.Discard, answer.Body); err != nil {
		t.Log(err)
		return 0
	}
	return answer.StatusCode
}

// await waits until something is so, for less time than the server gives an answer.
func await(t *testing.T, otherwise string, so func() bool) {
	t.Helper()
	if err := wait.PollUntilContextTimeout(t.Context(), time.Millisecond, answerTime*2/3, true, func(context.Context) (bool, error) { return so(), nil }); err != nil {
		t.Fatal(otherwise)
	}
}

// TestConnectionsOfOnePeerDriveOutItsOwn opens more than there may be, and another peer is answered all the same: by a
// connection of its own that was there before, and by a new one.
func TestConnectionsOfOnePeerDriveOutItsOwn(t *testing.T) {
	w := newWorld(t)
	w.pages.most = 32
	address, trust := served(t, w)
	reader := clientFrom(t, "127.0.0.1", trust, true)
	if statusOf(t, reader, "https://"+address+"/healthz", nil) != http.StatusOK {
		t.Fatal("the page does not answer")
	}
	first, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}).Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = first.Close() }()
	var hostile []net.Conn
	for range 2 * w.pages.most {
		conn, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}).Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		hostile = append(hostile, conn)
	}
	defer func() {
		for _, conn := range hostile {
			_ = conn.Close()
		}
	}()
	if err := first.SetReadDeadline(time.Now().Add(headerTime / 2)); err != nil {
		t.Fatal(err)
	}
	if _, err := first.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("the oldest connection of who has most is still open")
	}
	for name, client := range map[string]*http.Client{"before": reader, "new": clientFrom(t, "127.0.0.1", trust, true)} {
		if code := statusOf(t, client, "https://"+address+"/healthz", nil); code != http.StatusOK {
			t.Errorf("%s: %d", name, code)
		}
	}
}

// TestGuestsDoNotHoldUpReaders has every place of those without a token taken by requests that never end.
func TestGuestsDoNotHoldUpReaders(t *testing.T) {
	w := newWorld(t, busy()...)
	w.user("t", "ada", "nodes")
	address, trust := served(t, w)
	header := http.Header{TokenHeader: {"Bearer t"}}
	reader := clientFrom(t, "127.0.0.1", trust, true)
	if code := statusOf(t, reader, "https://"+address+"/", header); code != http.StatusOK {
		t.Fatalf("a reader: %d", code)
	}
	var conns []net.Conn
	defer func() {
		for _, conn := range conns {
			_ = conn.Close()
		}
	}()
	for range mostGuests {
		conn, err := tls.Dial("tcp", address, trust)
		if err != nil {
			t.Fatal(err)
		}
		conns = append(conns, conn)
		// A form whose end never comes.
		_, err = fmt.Fprint(conn, "POST /session HTTP/1.1\r\nHost: example.com\r\nSec-Fetch-Site: same-origin\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: 100\r\n\r\ntoken=")
		if err != nil {
			t.Fatal(err)
		}
	}
	await(t, "the forms are not being read", func() bool { return len(w.pages.door.guests) >= mostGuests })
	if code := statusOf(t, clientFrom(t, "127.0.0.1", trust, true), "https://"+address+"/", nil); code != 0 {
		t.Errorf("one more without a token: %d", code)
	}
	if code := statusOf(t, reader, "https://"+address+"/?part", header); code != http.StatusOK {
		t.Errorf("a reader whose token is known: %d", code)
	}
}

// TestReadersWhoNeverRead has 500 browsers ask for updates by a single peer's connections, and read nothing. Who comes next
// is shown the page.
func TestReadersWhoNeverRead(t *testing.T) {
	w := newWorld(t, busy()...)
	w.user("t", "ada", "nodes", "pods")
	address, trust := served(t, w)
	header := http.Header{TokenHeader: {"Bearer t"}}
	proxy := clientFrom(t, "127.0.0.2", trust, true)
	for range 500 {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+address+"/?events", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		request.Header = header
		answer, err := proxy.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = answer.Body.Close() }()
		if answer.StatusCode != http.StatusOK {
			t.Fatalf("a stream: %d", answer.StatusCode)
		}
	}
	if code := statusOf(t, clientFrom(t, "127.0.0.1", trust, true), "https://"+address+"/cluster.json", header); code != http.StatusOK {
		t.Errorf("who comes next: %d", code)
	}
	if n := w.pages.site.Rendered(); n > 20 {
		t.Errorf("%d renderings for 500 browsers of one reader", n)
	}
}

// deaf is a connection that is read from until a channel is closed, and once more after another one is.
type deaf struct {
	net.Conn
	from, again chan struct{}
}

func (d *deaf) Read(b []byte) (int, error) {
	select {
	case <-d.from:
		<-d.again
	default:
	}
	return d.Conn.Read(b)
}

// TestConnectionThatTakesNothing has a client go deaf in the midst of answers: its connection ends, and holds nothing up.
func TestConnectionThatTakesNothing(t *testing.T) {
	var claims []string
	for i := range 1000 {
		claims = append(claims, fmt.Sprintf("team/claim-%d", i))
	}
	w := newWorld(t, gpuNode("n1", claims...)...)
	w.user("t", "ada", "nodes", "pods")
	w.pages.stuck = 50 * time.Millisecond
	address, trust := served(t, w)
	from, again := make(chan struct{}), make(chan struct{})
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: trust, ForceAttemptHTTP2: true, DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
		if tcp, ok := conn.(*net.TCPConn); ok {
			_ = tcp.SetReadBuffer(4096)
		}
		return &deaf{conn, from, again}, err
	}}}
	defer client.CloseIdleConnections()
	header := http.Header{TokenHeader: {"Bearer t"}, "Accept-Encoding": {"identity"}}
	if code := statusOf(t, client, "https://"+address+"/style.css", header); code != http.StatusOK {
		t.Fatalf("a reader: %d", code)
	}
	close(from)
	w.pages.turn <- struct{}{} // nothing is answered before all has been asked
	ended := make(chan int)
	for range 4 {
		go func() { ended <- statusOf(t, client, "https://"+address+"/cluster.json", header) }()
	}
	await(t, "nothing is asked", func() bool { return len(w.pages.door.requests) >= 4 })
	<-w.pages.turn
	await(t, "the answers are still being written", func() bool { return len(w.pages.door.requests) <= 0 })
	close(again)
	whole := 0
	for range 4 {
		if <-ended == http.StatusOK {
			whole++
		}
	}
	if whole == 4 {
		t.Error("nothing was held up")
	}
	if code := statusOf(t, client, "https://"+address+"/style.css", header); code != http.StatusOK {
		t.Errorf("who comes again: %d", code)
	}
}

// TestOverlongRequests sends headers of a megabyte by both versions of HTTP, and a name of another host.
func TestOverlongRequests(t *testing.T) {
	w := newWorld(t, busy()...)
	w.user("t", "ada", "nodes")
	address, trust := served(t, w)
	large := http.Header{TokenHeader: {"Bearer " + strings.Repeat("x", 1<<20)}}
	for _, http2 := range []bool{false, true} {
		client := clientFrom(t, "127.0.0.1", trust, http2)
		if code := statusOf(t, client, "https://"+address+"/", large); code != 0 && code != http.StatusRequestHeaderFieldsTooLarge {
			t.Errorf("HTTP/2 %v: a token of a megabyte: %d", http2, code)
		}
		if code := statusOf(t, client, "https://"+address+"/", nil); code != http.StatusOK {
			t.Errorf("HTTP/2 %v: who comes next: %d", http2, code)
		}
	}
	if w.reviewed() != 0 {
		t.Error("the API server is asked about a megabyte")
	}
	conn, err := tls.Dial("tcp", address, trust)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := fmt.Fprint(conn, "GET /cluster.json HTTP/1.1\r\nHost: evil.example\r\nX-Forwarded-Host: other.example\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil || answer.StatusCode != http.StatusUnauthorized {
		t.Errorf("another name: %v %v", answer, err)
	}
	if err == nil {
		_ = answer.Body.Close()
	}
	_ = conn.SetDeadline(time.Now())
}
