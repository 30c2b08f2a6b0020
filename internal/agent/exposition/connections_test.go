package exposition

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"testing"
)

// The kernel tells whose the other end is, and nothing of an end that is not there.
func TestPeersOfTheMachine(t *testing.T) {
	for _, address := range []string{"127.0.0.1:0", "[::1]:0"} {
		listener, err := net.Listen("tcp", address)
		if err != nil {
			t.Log(err) // a machine without IPv6
			continue
		}
		client, err := net.Dial("tcp", listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		here, _ := client.LocalAddr().(*net.TCPAddr)
		there, _ := client.RemoteAddr().(*net.TCPAddr)
		if uid, err := ownerOf(here.AddrPort(), there.AddrPort()); err != nil {
			t.Skipf("this kernel does not tell: %v", err)
		} else if int(uid) != os.Getuid() {
			t.Errorf("%s: user %d", address, uid)
		}
		if uid, err := ownerOf(netip.AddrPortFrom(here.AddrPort().Addr(), 1), there.AddrPort()); err == nil {
			t.Errorf("nobody's: user %d", uid)
		}
		client.Close()
		listener.Close()
	}
}

// A user who keeps as many connections as they like keeps nobody else from an answer.
func TestSilentConnections(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Serve(ctx, inner, Handler(Probes{})) }()
	for range mostConnections/partOfPeer + 10 {
		conn, err := net.Dial("tcp", inner.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	answer, err := http.Get("http://" + inner.Addr().String() + "/healthz")
	if err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(answer.Body); err != nil || string(text) != "ok\n" {
		t.Errorf("%q, %v", text, err)
	}
	answer.Body.Close()
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// A handler learns who asks.
func TestPeerOfARequest(t *testing.T) {
	listener, err := Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	served, asked := make(chan error, 1), make(chan string, 1)
	go func() {
		served <- Serve(ctx, listener, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { asked <- Peer(r) }))
	}()
	answer, err := http.Get("http://" + listener.Addr().String()) //nolint:noctx // the server answers at once
	if err != nil {
		t.Fatal(err)
	}
	_ = answer.Body.Close()
	if got, want := <-asked, fmt.Sprintf("user %d", os.Getuid()); got != want {
		t.Errorf("%q asked, want %q", got, want)
	}
	cancel()
	if err := <-served; err != nil {
		t.Error(err)
	}
}
