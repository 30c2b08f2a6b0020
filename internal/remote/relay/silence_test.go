package relay

import (
	"crypto/tls"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/divvy-gpu/divvy/internal/remote/identity"
	"github.com/divvy-gpu/divvy/internal/remote/wire"
)

// side makes connections of this side with a host.
type side struct {
	t      *testing.T
	server *tls.Config
	client *tls.Config
}

func newSide(t *testing.T) *side {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "serve")
	authority, err := identity.Make(dir, []string{"far"})
	if err != nil {
		t.Fatal(err)
	}
	server, err := identity.Server(dir)
	if err != nil {
		t.Fatal(err)
	}
	bundle, err := authority.Issue("here", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	return &side{t, server, bundle.Config("far")}
}

// connect makes a connection. A host that does not beat reads, and never says a word.
func (s *side) connect(beats bool) *wire.Conn {
	s.t.Helper()
	ours, theirs := net.Pipe()
	far := tls.Server(theirs, s.server)
	go func() {
		switch {
		case far.Handshake() != nil:
		case beats:
			wire.New(far).Drain()
		default:
			_, _ = io.Copy(io.Discard, far)
		}
	}()
	near := tls.Client(ours, s.client)
	if err := near.Handshake(); err != nil {
		s.t.Fatal(err)
	}
	return wire.New(near)
}

// A link may hear of the silence of its host before its share does. The share has ended all the same when the program learns of it.
// The share of a host that is heard goes on.
func TestShareEndsBeforeItsProgram(t *testing.T) {
	for name, heard := range map[string]bool{"its host is gone": false, "its link is": true} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.Mkdir(RecordFolder(dir), 0o700); err != nil {
				t.Fatal(err)
			}
			synctest.Test(t, func(t *testing.T) {
				s := newSide(t) // whose certificates are of the test's own time
				r := New(Spec{Dir: dir, Socket: filepath.Join(dir, "client", "worker.sock")}, nil, func(string) {})
				l := &link{relay: r, remote: s.connect(false)}
				time.Sleep(wire.Beat) // the share hears the last beat
				share := &Share{Host: Host{Name: "far"}, conn: s.connect(heard), ended: make(chan struct{})}
				go share.follow(t.Context())
				r.hold(share)
				l.remote.Drain()
				l.reason(share, l.remote.Err())
				record, err := ReadRecord(dir)
				if err != nil || heard == (record.State == StateEnded) {
					t.Errorf("lists are told %+v, %v", record, err)
				}
				share.End()
			})
		})
	}
}
