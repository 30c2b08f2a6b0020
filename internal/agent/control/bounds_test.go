package control

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// One user's bounds are that user's alone, and root's are higher.
func TestBoundsArePerUser(t *testing.T) {
	open := 0
	b := newBounds(limits{connections: 3, requests: 2, held: 100, turns: 1}, func(n int) { open = n })
	enter := func(uid, n int) (err error) {
		for range n {
			if err = b.enter(uid); err != nil {
				return err
			}
		}
		return nil
	}
	if err := errors.Join(enter(1000, 3), enter(1001, 3), enter(0, 3*forRoot)); err != nil {
		t.Fatal(err)
	}
	for _, uid := range []int{1000, 1001, 0} {
		if err := enter(uid, 1); CodeOf(err) != CodeBusy || !strings.Contains(err.Error(), fmt.Sprintf("user %d already has", uid)) {
			t.Errorf("%v (%s)", err, CodeOf(err))
		}
	}
	if open != 6+3*forRoot {
		t.Errorf("%d are open", open)
	}
	if err := errors.Join(b.begin(1000, 1), b.begin(1000, 1), b.begin(1001, 1)); err != nil {
		t.Error(err)
	}
	if err := b.begin(1000, 1); CodeOf(err) != CodeBusy || !strings.Contains(err.Error(), "already has 2 requests under way") {
		t.Errorf("%v", err)
	}
	if err := errors.Join(b.hold(1000, 98), b.hold(1001, 99)); err != nil {
		t.Error(err)
	}
	if err := b.hold(1000, 1); CodeOf(err) != CodeBusy {
		t.Errorf("%v", err)
	}
	b.end(1000, 1)
	if err := b.hold(1000, 1); err != nil {
		t.Error(err)
	}
	for range 3 {
		b.leave(1000)
	}
	if err := errors.Join(enter(1000, 3), b.hold(1000, 100)); err != nil {
		t.Errorf("who comes back: %v", err)
	}
}

// bounded runs a server with these limits for each user, who is whoever runs the test.
func bounded(t *testing.T, l limits, handlers map[Method]Handler) (socket string, open *atomic.Int64) {
	t.Helper()
	if os.Getuid() == 0 { // what root may have is a multiple
		l = limits{l.connections / forRoot, l.requests / forRoot, l.held / forRoot, l.turns / forRoot}
	}
	open = &atomic.Int64{}
	handlers[MethodHello] = Handle(func(context.Context, *Peer, struct{}) (Info, error) { return Info{Protocol: ProtocolVersion}, nil })
	return serveWith(t, Server{
		Handlers: handlers, Log: slog.New(slog.DiscardHandler), Connections: func(n int) { open.Store(int64(n)) }, limits: &l,
	}), open
}

// until waits for a condition.
func until(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Minute); !condition(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("it did not happen that %s", what)
		}
	}
}

// persist asks until it is answered, while the agent says that it is busy.
func persist(t *testing.T, ask func() error) {
	for {
		err := ask()
		if err == nil {
			return
		}
		if CodeOf(err) != CodeBusy {
			t.Error(err)
			return
		}
	}
}

// Who has too many connections is told so, and is let in again when one has ended.
func TestConnectionsAreBounded(t *testing.T) {
	socket, _ := bounded(t, limits{8, 64, 1 << 20, 4}, map[Method]Handler{})
	var all []*Client
	for range 8 {
		all = append(all, dial(t, socket))
	}
	if _, err := Dial(t.Context(), socket); CodeOf(err) != CodeBusy || !strings.Contains(err.Error(), "already has 8 connections") {
		t.Errorf("%v (%s)", err, CodeOf(err))
	}
	all[0].Close()
	until(t, "there is room", func() bool {
		c, err := Dial(t.Context(), socket)
		if err == nil {
			c.Close()
		}
		return err == nil
	})
}

// Of one user's requests some are worked on at once, and those that pause keep nobody
// from it. More than may be under way are refused, and answered when some have ended.
func TestRequestsAreBounded(t *testing.T) {
	var working, most atomic.Int32
	release, woken := make(chan struct{}), make(chan struct{})
	socket, _ := bounded(t, limits{8, 40, 1 << 20, 4}, map[Method]Handler{
		MethodCreate: Handle(func(ctx context.Context, _ *Peer, _ CreateParams) (*Created, error) {
			goOn := Pause(ctx)
			<-woken
			goOn()
			return &Created{}, nil
		}),
		MethodSet: Handle(func(context.Context, *Peer, SetParams) (*Tenant, error) {
			n := working.Add(1)
			defer working.Add(-1)
			for before := most.Load(); n > before && !most.CompareAndSwap(before, n); before = most.Load() {
			}
			<-release
			return &Tenant{}, nil
		}),
	})
	c, other := dial(t, socket), dial(t, socket)
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			persist(t, func() error { _, err := c.Create(t.Context(), CreateParams{}, nil); return err })
		})
		wg.Go(func() {
			persist(t, func() error { _, err := other.Set(t.Context(), SetParams{}); return err })
		})
	}
	until(t, "four are worked on", func() bool { return working.Load() == 4 })
	until(t, "one more is refused", func() bool {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		answered := make(chan error, 1)
		go func() {
			_, err := c.Set(ctx, SetParams{})
			answered <- err
		}()
		select {
		case err := <-answered:
			return CodeOf(err) == CodeBusy && strings.Contains(err.Error(), "already has 40 requests under way")
		case <-time.After(20 * time.Millisecond): // not all of the others have come yet
			cancel()
			<-answered
			return false
		}
	})
	close(release)
	close(woken)
	wg.Wait()
	if got := most.Load(); got > 4 {
		t.Errorf("%d were worked on at once", got)
	}
}

// A request that is taken back before its turn is not worked on.
func TestTakenBackBeforeItsTurn(t *testing.T) {
	var worked atomic.Int32
	entered, release := make(chan struct{}), make(chan struct{})
	socket, open := bounded(t, limits{8, 64, 1 << 20, 4}, map[Method]Handler{
		MethodStop: Handle(func(context.Context, *Peer, StopParams) (struct{}, error) {
			entered <- struct{}{}
			<-release
			return struct{}{}, nil
		}),
		MethodSet: Handle(func(context.Context, *Peer, SetParams) (*Tenant, error) {
			worked.Add(1)
			return &Tenant{}, nil
		}),
	})
	c := dial(t, socket)
	var wg sync.WaitGroup
	defer wg.Wait()
	endTurns := sync.OnceFunc(func() { close(release) })
	defer endTurns()
	for range 4 {
		wg.Go(func() { _ = c.Stop(t.Context(), StopParams{}) })
	}
	for range 4 {
		<-entered
	}
	data := ""
	for id := range 10 {
		data += fmt.Sprintf(`{"id":%d,"method":"set"}`+"\n"+`{"id":%[1]d,"method":"cancel"}`+"\n", 1+id)
	}
	// What is no message is answered when all before it was read, and ends the connection.
	answers := raw(t, socket, []byte(data+"nonsense\n"), func(response) bool { return false })
	if len(answers) != 1 {
		t.Errorf("answered %+v", answers)
	}
	endTurns() // whoever still waits for one has it now
	until(t, "nothing is left of them", func() bool { return open.Load() == 1 })
	if n := worked.Load(); n > 0 {
		t.Errorf("%d of them were worked on", n)
	}
}

// A peer that reads nothing is disconnected, and what was kept for it is free again.
func TestWhoReadsNothingHoldsNothing(t *testing.T) {
	before := writeTime
	writeTime = 300 * time.Millisecond
	t.Cleanup(func() { writeTime = before }) // after the server has ended
	large := strings.Repeat("x", 400<<10)
	var asked atomic.Int32
	socket, open := bounded(t, limits{8, 8, 16 << 20, 4}, map[Method]Handler{
		MethodList: Handle(func(context.Context, *Peer, struct{}) (*Listing, error) {
			asked.Add(1)
			return &Listing{Info: Info{User: large}}, nil
		}),
	})
	var deaf []net.Conn
	for range 4 {
		conn, err := net.Dial("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		deaf = append(deaf, conn)
		before := asked.Load()
		if _, err := conn.Write([]byte(`{"id":1,"method":"list"}` + "\n" + `{"id":2,"method":"list"}` + "\n")); err != nil {
			t.Fatal(err)
		}
		until(t, "it is heard", func() bool { return asked.Load() > before })
	}
	until(t, "they are disconnected", func() bool { return open.Load() == 0 })
	for range 8 {
		until(t, "who reads is answered", func() bool {
			c, err := Dial(t.Context(), socket)
			if err != nil {
				return false
			}
			defer c.Close()
			l, err := c.List(t.Context())
			return err == nil && l.Info.User == large
		})
	}
	for _, conn := range deaf { // what it was told before is all that there is
		if n, err := io.Copy(io.Discard, conn); n > 800<<10 {
			t.Errorf("%d bytes were left for it, %v", n, err)
		}
	}
}

// Answers that nobody reads are counted while they are kept, and not longer.
func TestUnreadAnswersAreBounded(t *testing.T) {
	before := writeTime
	writeTime = 5 * time.Minute              // nobody is disconnected here
	t.Cleanup(func() { writeTime = before }) // after the server has ended
	large := strings.Repeat("x", 400<<10)
	socket, _ := bounded(t, limits{8, 8, 1 << 20, 4}, map[Method]Handler{
		MethodList: Handle(func(context.Context, *Peer, struct{}) (*Listing, error) {
			return &Listing{Info: Info{User: large}}, nil
		}),
	})
	var deaf []net.Conn
	for range 2 {
		conn, err := net.Dial("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		deaf = append(deaf, conn)
		if _, err := conn.Write([]byte(`{"id":1,"method":"list"}` + "\n")); err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Read(make([]byte, 1)); err != nil { // its answer is being written
			t.Fatal(err)
		}
	}
	c := dial(t, socket)
	until(t, "a third answer is refused", func() bool {
		_, err := c.List(t.Context())
		return CodeOf(err) == CodeBusy && strings.Contains(err.Error(), "requests and answers of")
	})
	for _, conn := range deaf {
		conn.Close()
	}
	until(t, "there is room again", func() bool {
		l, err := c.List(t.Context())
		return err == nil && l.Info.User == large
	})
}

// Lines that never end take a bounded part of memory, and others go on meanwhile.
func TestHalfLinesAreBounded(t *testing.T) {
	socket, open := bounded(t, limits{64, 64, 1 << 20, 4}, map[Method]Handler{})
	half := []byte(`{"id":1,"method":"hello","params":"` + strings.Repeat("x", 100<<10))
	var refused atomic.Int32
	for range 20 {
		conn, err := net.Dial("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		go func() {
			_, _ = conn.Write(half)
			if line, _ := bufio.NewReader(conn).ReadString('\n'); strings.Contains(line, string(CodeBusy)) {
				refused.Add(1)
			}
		}()
	}
	// Each of the others has a buffer of 128 KiB.
	until(t, "those beyond the bound are refused", func() bool { return refused.Load() >= 12 })
	until(t, "they are out", func() bool { return open.Load() <= 8 })
	dial(t, socket)
}

// The longest honest request is far below the bound: a whole LD_LIBRARY_PATH. A longer one
// is refused by who would send it, and by the agent.
func TestTheLongestRequest(t *testing.T) {
	var got CreateParams
	socket, _ := bounded(t, limits{8, 8, 4 << 20, 4}, map[Method]Handler{
		MethodCreate: Handle(func(_ context.Context, _ *Peer, p CreateParams) (*Created, error) {
			got = p
			return &Created{}, nil
		}),
	})
	c := dial(t, socket)
	const longest = 128 << 10 // of one string of the environment
	path := strings.Split(strings.Repeat("/opt/<toolkit>&/lib64:", longest/22), ":")
	p := CreateParams{LibraryPath: path, Request: v1alpha1.ShareRequest{Memory: v1alpha1.Bytes(1)}, Command: []string{strings.Repeat("é", longest)}}
	if _, err := c.Create(t.Context(), p, nil); err != nil || len(got.LibraryPath) != len(path) {
		t.Errorf("%d of %d entries, %v", len(got.LibraryPath), len(path), err)
	}
	p.Command = ShortCommand(p.Command)
	line, err := encodeLine(p)
	if err != nil || len(line) > maxLine*3/4 {
		t.Errorf("it has %d of %d bytes, %v", len(line), maxLine, err)
	}
	p.LibraryPath = append(path, strings.Repeat("x", maxLine))
	if _, err := c.Create(t.Context(), p, nil); err == nil || !strings.Contains(err.Error(), "LD_LIBRARY_PATH") {
		t.Errorf("a longer one: %v", err)
	}
	conn, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, _ = conn.Write([]byte(strings.Repeat("x", 2*maxLine+1)))
	answer, _ := bufio.NewReader(conn).ReadString('\n')
	if !strings.Contains(answer, "too long") {
		t.Errorf("answered %q", answer)
	}
}
