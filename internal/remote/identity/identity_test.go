package identity

import (
	"crypto/tls"
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// shake does a handshake over loopback and a byte each way, and returns both sides' errors.
func shake(t *testing.T, server, client *tls.Config) (state tls.ConnectionState, atServer, atClient error) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	type accepted struct {
		state tls.ConnectionState
		err   error
	}
	done := make(chan accepted, 1)
	go func() {
		raw, err := listener.Accept()
		if err != nil {
			done <- accepted{err: err}
			return
		}
		defer raw.Close()
		conn := tls.Server(raw, server)
		_ = conn.SetDeadline(time.Now().Add(time.Minute))
		err = conn.Handshake()
		if err == nil {
			_, err = conn.Write([]byte{1})
		}
		done <- accepted{conn.ConnectionState(), err}
	}()
	raw, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	conn := tls.Client(raw, client)
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	if atClient = conn.Handshake(); atClient == nil {
		_, atClient = conn.Read(make([]byte, 1))
	}
	raw.Close()
	end := <-done
	return end.state, end.err, atClient
}

func made(t *testing.T, hosts ...string) (*Authority, string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "serve")
	a, err := Make(dir, hosts)
	if err != nil {
		t.Fatal(err)
	}
	return a, dir
}

func TestMutual(t *testing.T) {
	a, dir := made(t, "gpu1.example.com", "127.0.0.1")
	if _, err := Make(dir, []string{"gpu1"}); !errors.Is(err, ErrExists) {
		t.Errorf("a second authority: %v", err)
	}
	b, err := a.Issue("ada", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	text, err := b.Encode()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "gpu1.pem")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv(Variable, filepath.Dir(path))
	if b, err = FindBundle("GPU1.example.com:7117"); err != nil {
		t.Fatal(err)
	}
	server, err := Server(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, host := range []string{"gpu1.example.com", "127.0.0.1"} {
		state, atServer, atClient := shake(t, server, b.Config(host))
		if atServer != nil || atClient != nil {
			t.Fatalf("%s: %v, %v", host, atServer, atClient)
		}
		if name, err := Client(state); err != nil || name != "ada" {
			t.Errorf("%s: client %q, %v", host, name, err)
		}
	}
}
