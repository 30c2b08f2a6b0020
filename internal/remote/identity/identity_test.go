package identity

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
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
	found, err := FindBundles("GPU1.example.com:7117")
	if err != nil {
		t.Fatal(err)
	}
	b = found[0]
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

// A server that runs shows the certificate that is there. One whose key does not fit, because it is just being replaced, is none.
func TestRenew(t *testing.T) {
	a, dir := made(t, "gpu1")
	server, err := Server(dir)
	if err != nil {
		t.Fatal(err)
	}
	b, err := a.Issue("ada", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	speak := func(host string, want bool) {
		t.Helper()
		if _, _, err := shake(t, server, b.Config(host)); (err == nil) != want {
			t.Errorf("%s: %v", host, err)
		}
	}
	speak("gpu1", true)
	speak("gpu2", false)
	if err := a.Renew([]string{"gpu2"}); err != nil || !slices.Equal(a.Hosts(), []string{"gpu2"}) {
		t.Fatal(a.Hosts(), err)
	}
	speak("gpu2", true)
	speak("gpu1", false)
	other, _ := made(t, "gpu3")
	certificate, _, err := other.IssueServer([]string{"gpu3"}, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	put(t, filepath.Join(dir, fileServer), certificate, 0o644)
	speak("gpu2", true)
	if _, err := Server(dir); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "divvy serve init --renew") {
		t.Error(err)
	}
	if err := a.Renew(nil); err != nil {
		t.Fatal(err)
	}
	speak("gpu2", true)
}

func TestOpen(t *testing.T) {
	if _, err := Open(t.TempDir()); !errors.Is(err, ErrNone) || !strings.Contains(err.Error(), "run `divvy serve init` first") {
		t.Error(err)
	}
	_, dir := made(t, "gpu1")
	key := filepath.Join(dir, fileKey)
	if err := os.Chmod(key, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir); !errors.Is(err, ErrOpen) || !strings.Contains(err.Error(), "chmod 600 "+key) {
		t.Error(err)
	}
	_, elsewhere := made(t, "gpu1")
	text, err := os.ReadFile(filepath.Join(elsewhere, fileKey))
	if err != nil {
		t.Fatal(err)
	}
	put(t, key, text, 0o600)
	if _, err := Open(dir); !errors.Is(err, ErrInvalid) {
		t.Errorf("the key of another authority: %v", err)
	}
}

// What was interrupted before its end is no authority, and what is there is left as it is.
func TestMakeInterrupted(t *testing.T) {
	for _, name := range []string{fileAuthority, fileKey, fileServer, fileServerKey} {
		dir := t.TempDir()
		put(t, filepath.Join(dir, name), []byte("x"), 0o600)
		_, err := Make(dir, []string{"gpu1"})
		left, globErr := filepath.Glob(filepath.Join(dir, "*"))
		if text, readErr := os.ReadFile(filepath.Join(dir, name)); !errors.Is(err, ErrExists) || string(text) != "x" || readErr != nil || len(left) != 1 || globErr != nil {
			t.Errorf("%s: %v, %v", name, err, left)
		}
		if renews := strings.Contains(fmt.Sprint(err), "--renew"); renews != (name == fileAuthority) {
			t.Errorf("%s: only an authority can be renewed: %v", name, err)
		}
	}
}

// Of files of which one cannot be written none is left.
func TestCreateAll(t *testing.T) {
	dir := t.TempDir()
	err := createAll(dir, []file{{fileKey, []byte("x"), 0o600}, {fileServerKey, []byte("x"), 0o600}, {filepath.Join("none", fileServer), []byte("x"), 0o600}})
	if left, globErr := filepath.Glob(filepath.Join(dir, "*")); err == nil || globErr != nil || len(left) != 0 {
		t.Errorf("%v, left: %v", err, left)
	}
}

// Nothing that is issued outlives its authority, and an authority that is over issues nothing.
func TestUntil(t *testing.T) {
	a, _ := made(t, "gpu1")
	b, err := a.Issue("ada", 2*authorityFor)
	if err != nil || !b.NotAfter().Equal(a.certificate.NotAfter) {
		t.Errorf("%v, %v", b.NotAfter(), err)
	}
	if since := time.Since(b.Issued()); since < 0 || since > time.Minute {
		t.Errorf("issued %v ago", since)
	}
	if a.certificate, a.key, err = sign(authorityTemplate(time.Now().Add(-48*time.Hour), time.Hour), nil, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Issue("ada", time.Hour); !errors.Is(err, ErrTime) || !strings.Contains(err.Error(), "each client needs a new bundle") {
		t.Error(err)
	}
	for _, name := range []string{"", "a b", "ü", "-a", strings.Repeat("x", mostOfName+1)} {
		if _, err := a.Issue(name, time.Hour); !errors.Is(err, ErrInvalid) {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestHosts(t *testing.T) {
	for _, hosts := range [][]string{nil, {""}, {"a b"}, {"-a"}, {"a..b"}, {"a_b"}, {"fe80::1%eth0"}, {"10.0.0.5:7117"}, make([]string, mostHosts+1)} {
		if _, err := Make(filepath.Join(t.TempDir(), "x"), hosts); !errors.Is(err, ErrHosts) {
			t.Errorf("%q: %v", hosts, err)
		}
	}
}
