package control

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/process"
)

// serve runs a server with these handlers beside hello and returns its socket.
func serve(t testing.TB, handlers map[Method]Handler) string {
	t.Helper()
	all := map[Method]Handler{
		MethodHello: Handle(func(context.Context, *Peer, struct{}) (Info, error) {
			return Info{Protocol: ProtocolVersion, PID: os.Getpid()}, nil
		}),
	}
	for method, handler := range handlers {
		all[method] = handler
	}
	return serveWith(t, Server{Handlers: all, Log: slog.New(slog.DiscardHandler), Connections: func(int) {}})
}

func serveWith(t testing.TB, server Server) string {
	t.Helper()
	return serveUntil(context.Background(), t, server)
}

func serveUntil(ctx context.Context, t testing.TB, server Server) string {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(ctx, l) }()
	t.Cleanup(func() {
		l.Close()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return socket
}

func dial(t *testing.T, socket string) *Client {
	t.Helper()
	c, err := Dial(t.Context(), socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func TestCallsAndErrors(t *testing.T) {
	socket := serve(t, map[Method]Handler{
		MethodCreate: Handle(func(_ context.Context, peer *Peer, p CreateParams) (*Created, error) {
			if peer.UID != os.Getuid() || peer.Process.PID != os.Getpid() || !peer.Process.Alive() {
				return nil, fmt.Errorf("peer %+v", peer)
			}
			if p.Request.Memory != v1alpha1.Bytes(4<<30) {
				return nil, fmt.Errorf("memory %v", p.Request.Memory)
			}
			return &Created{Tenant: Tenant{ID: "x"}}, nil
		}),
		MethodStop: Handle(func(_ context.Context, _ *Peer, p StopParams) (struct{}, error) {
			return struct{}{}, fmt.Errorf("wrapped: %w", Errorf(CodeNotFound, "no share %q", p.Tenant))
		}),
	})
	c := dial(t, socket)
	if c.Info().PID != os.Getpid() {
		t.Errorf("info %+v", c.Info())
	}
	created, err := c.Create(t.Context(), CreateParams{Request: v1alpha1.ShareRequest{Memory: v1alpha1.Bytes(4 << 30)}}, nil)
	if err != nil || created.Tenant.ID != "x" {
		t.Errorf("%+v, %v", created, err)
	}
	if err := c.Stop(t.Context(), StopParams{Tenant: "y"}); CodeOf(err) != CodeNotFound || !strings.Contains(err.Error(), `"y"`) {
		t.Errorf("%v (%s)", err, CodeOf(err))
	}
	if _, err := c.List(t.Context()); CodeOf(err) != CodeInvalid {
		t.Errorf("unknown method: %v", err)
	}
}

// Answers find their callers although they come in another order.
func TestCallsAtOnce(t *testing.T) {
	var arrived sync.WaitGroup
	arrived.Add(20)
	socket := serve(t, map[Method]Handler{
		MethodSet: Handle(func(ctx context.Context, _ *Peer, p SetParams) (*Tenant, error) {
			Pause(ctx) // for the others to have their turns
			arrived.Done()
			arrived.Wait()
			return &Tenant{ID: p.Tenant}, nil
		}),
	})
	c := dial(t, socket)
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			id := fmt.Sprint(i)
			if got, err := c.Set(t.Context(), SetParams{Tenant: id}); err != nil || got.ID != id {
				t.Errorf("asked %s, got %+v, %v", id, got, err)
			}
		})
	}
	wg.Wait()
}

func TestCancelReachesTheHandler(t *testing.T) {
	entered, left := make(chan struct{}), make(chan struct{})
	socket := serve(t, map[Method]Handler{
		MethodCreate: Handle(func(ctx context.Context, _ *Peer, _ CreateParams) (*Created, error) {
			close(entered)
			<-ctx.Done()
			close(left)
			return nil, ctx.Err()
		}),
	})
	c := dial(t, socket)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-entered
		cancel()
	}()
	if _, err := c.Create(ctx, CreateParams{}, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want context.Canceled", err)
	}
	<-left
	if _, err := c.List(t.Context()); CodeOf(err) != CodeInvalid {
		t.Errorf("the connection is of no use after a cancellation: %v", err)
	}
}

func TestEndOfConnectionReachesTheHandler(t *testing.T) {
	entered, gone := make(chan struct{}), make(chan struct{})
	socket := serve(t, map[Method]Handler{
		MethodCreate: Handle(func(_ context.Context, peer *Peer, _ CreateParams) (*Created, error) {
			close(entered)
			<-peer.Done()
			close(gone)
			return nil, errors.New("gone")
		}),
	})
	c, err := Dial(t.Context(), socket)
	if err != nil {
		t.Fatal(err)
	}
	answered := make(chan error, 1)
	go func() {
		_, err := c.Create(context.Background(), CreateParams{}, nil)
		answered <- err
	}()
	<-entered
	c.Close()
	<-gone
	if err := <-answered; !errors.Is(err, ErrGone) {
		t.Errorf("%v, want ErrGone", err)
	}
}

// That the other end is closed is known before what it sent was read, and not before the
// last who has it is gone.
// An agent that ends gives no answer to requests that wait: a handler that is interrupted by that has an error, which is
// none of the request.
func TestAgentEndsWhileRequestsWait(t *testing.T) {
	for range 50 {
		ctx, end := context.WithCancel(t.Context())
		const waiters = 8
		waiting := make(chan struct{}, waiters)
		socket := serveUntil(ctx, t, Server{Log: slog.New(slog.DiscardHandler), Connections: func(int) {}, Handlers: map[Method]Handler{
			MethodHello: Handle(func(context.Context, *Peer, struct{}) (Info, error) {
				return Info{Protocol: ProtocolVersion, PID: os.Getpid()}, nil
			}),
			MethodCreate: Handle(func(ctx context.Context, _ *Peer, _ CreateParams) (*Created, error) {
				goOn := Pause(ctx)
				defer goOn()
				waiting <- struct{}{}
				<-ctx.Done()
				return nil, fmt.Errorf("give up waiting: %w", ctx.Err())
			}),
		}})
		answers := make(chan error, waiters)
		for range waiters {
			c := dial(t, socket)
			go func() {
				_, err := c.Create(t.Context(), CreateParams{}, nil)
				answers <- err
			}()
		}
		for range waiters {
			<-waiting
		}
		end()
		for range waiters {
			if err := <-answers; !errors.Is(err, ErrGone) {
				t.Fatalf("a request that waited was told: %v", err)
			}
		}
	}
}

func TestHungUp(t *testing.T) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	other, err := unix.Dup(fds[0])
	if err != nil {
		t.Fatal(err)
	}
	file := os.NewFile(uintptr(fds[1]), "socket")
	defer file.Close()
	conn, err := net.FileConn(file)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := unix.Write(other, []byte("unread")); err != nil {
		t.Fatal(err)
	}
	peer := NewPeer(process.ID{}, 1, nil, func() bool { return hungUp(conn.(*net.UnixConn)) })
	for _, fd := range []int{fds[0], other} {
		if peer.Left() {
			t.Errorf("it has left before %d is closed", fd)
		}
		if err := unix.Close(fd); err != nil {
			t.Fatal(err)
		}
	}
	if !peer.Left() {
		t.Error("it has not left")
	}
	if err := conn.Close(); err != nil || !peer.Left() {
		t.Errorf("after our own end is closed, %v", err)
	}
}

func TestOtherProtocolIsExplained(t *testing.T) {
	socket := serve(t, map[Method]Handler{
		MethodHello: Handle(func(context.Context, *Peer, struct{}) (Info, error) {
			return Info{Protocol: ProtocolVersion + 1, PID: 7}, nil
		}),
	})
	if _, err := Dial(t.Context(), socket); err == nil || !strings.Contains(err.Error(), "restart the agent") {
		t.Errorf("%v", err)
	}
}

// raw sends bytes and returns the answers that come until one satisfies enough
// or the server hangs up.
func raw(t testing.TB, socket string, data []byte, enough func(response) bool) []response {
	t.Helper()
	conn, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(5 * time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Write(data); err != nil {
		return nil // it hung up before it read all
	}
	var answers []response
	lines := bufio.NewScanner(conn)
	for lines.Scan() {
		var r response
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			t.Fatalf("answered %q", lines.Text())
		}
		answers = append(answers, r)
		if enough(r) {
			break
		}
	}
	if errors.Is(lines.Err(), os.ErrDeadlineExceeded) {
		t.Fatal("no answer")
	}
	return answers
}

func TestBadInput(t *testing.T) {
	socket := serve(t, map[Method]Handler{
		MethodStop: Handle(func(context.Context, *Peer, StopParams) (struct{}, error) { return struct{}{}, nil }),
	})
	for _, text := range []string{
		"no json\n",
		`{"id":1,"method":"hello"} trailing` + "\n",
		`{"id":1,"method":"hello","surprise":1}` + "\n",
		`{"id":1,"method":"stop","params":{"tenants":"misspelt"}}` + "\n",
		`{"id":1,"method":"stop","params":[]}` + "\n",
		`{"id":1,"method":"nothing"}` + "\n",
		`{"id":-1,"method":"hello"}` + "\n",
	} {
		answers := raw(t, socket, []byte(text), func(response) bool { return true })
		if len(answers) != 1 || answers[0].Error == nil || answers[0].Error.Code != CodeInvalid {
			t.Errorf("%s: answered %+v", text, answers)
		}
	}
	raw(t, socket, []byte(strings.Repeat("x", maxLine+2)), func(response) bool { return true })
	dial(t, socket) // it still serves
}

// told is a log that tells a test of every line.
type told chan string

func (c told) Write(line []byte) (int, error) {
	c <- string(line)
	return len(line), nil
}

// An agent that is out of descriptors takes up who waits as soon as it has some
// again: if it ended, nobody would keep its tenants to their shares.
func TestServeOutlastsShortage(t *testing.T) {
	said := make(told, 16)
	socket := serveWith(t, Server{
		Handlers: map[Method]Handler{MethodHello: Handle(func(context.Context, *Peer, struct{}) (Info, error) { return Info{PID: 7}, nil })},
		Log:      slog.New(slog.NewTextHandler(said, nil)), Connections: func(int) {},
	})
	guest, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(guest)
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: uint64(guest) + 1, Max: limit.Max}); err != nil {
		t.Fatal(err)
	}
	for { // what became free below the guest's
		fd, err := unix.FcntlInt(uintptr(guest), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			break
		}
		defer unix.Close(fd)
	}
	connected := unix.Connect(guest, &unix.SockaddrUnix{Name: socket})
	line := "nothing"
	select {
	case line = <-said:
	case <-time.After(5 * time.Minute):
	}
	if err := errors.Join(connected, unix.Setrlimit(unix.RLIMIT_NOFILE, &limit)); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(line, "will try again") {
		t.Errorf("it says %q", line)
	}
	if _, err := unix.Write(guest, []byte(`{"id":1,"method":"hello"}`+"\n")); err != nil {
		t.Fatal(err)
	}
	answer := make([]byte, 4096)
	if n, err := unix.Read(guest, answer); err != nil || !strings.Contains(string(answer[:n]), `"pid":7`) {
		t.Errorf("answered %q, %v", answer[:max(n, 0)], err)
	}
}

func FuzzServer(f *testing.F) {
	socket := serve(f, map[Method]Handler{
		MethodCreate: Handle(func(context.Context, *Peer, CreateParams) (*Created, error) { return &Created{}, nil }),
		MethodSet:    Handle(func(context.Context, *Peer, SetParams) (*Tenant, error) { return &Tenant{}, nil }),
	})
	f.Add([]byte(`{"id":1,"method":"create","params":{"request":{"memory":"4Gi"},"layer":"env"}}` + "\n"))
	f.Add([]byte(`{"id":1,"method":"set","params":{"memory":"50%","cores":3}}` + "\n" + `{"id":1,"method":"cancel"}` + "\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		const last = 1 << 60
		data = append(data, fmt.Sprintf("\n{\"id\":%d,\"method\":\"hello\"}\n", uint64(last))...)
		raw(t, socket, data, func(r response) bool { return r.ID == last })
	})
}
