package host

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/remote/identity"
	"github.com/divvy-gpu/divvy/internal/remote/wire"
	"github.com/divvy-gpu/divvy/internal/servefile"
)

// shown is a connection by which a client shows a certificate that was made at a time.
func shown(t *testing.T, name string, late time.Duration) tls.ConnectionState {
	t.Helper()
	a, err := identity.NewAuthority(time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	b, err := a.Issue("x", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	// An hour is what the clocks of two hosts may differ by.
	certificate := &x509.Certificate{Subject: pkix.Name{CommonName: name}, NotBefore: b.Issued().Add(late - time.Hour)}
	return tls.ConnectionState{HandshakeComplete: true, PeerCertificates: []*x509.Certificate{certificate}, VerifiedChains: [][]*x509.Certificate{{certificate}}}
}

// Who was expelled does not come back with a certificate from before, whoever has that name now.
func TestName(t *testing.T) {
	since := time.Now().Truncate(time.Second)
	h := New(Options{}, &servefile.File{Clients: map[string]servefile.Client{"ada": {Name: "ada", Since: since}, "bea": {Name: "bea"}}})
	for _, c := range []struct {
		name string
		late time.Duration
		want string
	}{{"ada", 2 * time.Second, ""}, {"ada", -time.Minute, "from before it was admitted"}, {"bea", -time.Minute, ""}, {"eve", time.Minute, "is not in the server's file"}} {
		_, err := h.Name(shown(t, c.name, c.late))
		refused := new(wire.Refused)
		if (err == nil) != (c.want == "") || err != nil && (!errors.As(err, &refused) || refused.Code != wire.CodeClient || !strings.Contains(refused.Text, c.want)) {
			t.Errorf("%s, %v: %v", c.name, c.late, err)
		}
	}
}

// The file is looked at for a client that it does not have, and for no other.
func TestNameLooks(t *testing.T) {
	looks := 0
	now := &servefile.File{Clients: map[string]servefile.Client{"ada": {Name: "ada"}, "bea": {Name: "bea"}}}
	var h *Host
	h = New(Options{Look: func() { looks++; h.Replace(now) }}, &servefile.File{Clients: map[string]servefile.Client{"ada": {Name: "ada"}}})
	for _, c := range []struct {
		name  string
		looks int
		good  bool
	}{{"ada", 0, true}, {"bea", 1, true}, {"bea", 1, true}, {"eve", 2, false}} {
		if _, err := h.Name(shown(t, c.name, time.Minute)); (err == nil) != c.good || looks != c.looks {
			t.Errorf("%s: %v after %d looks", c.name, err, looks)
		}
	}
}

// Shares end whose client is gone, is another user, or was gone and is back. Those of others stay.
func TestReplaceEnds(t *testing.T) {
	client := func(user string, since int64) servefile.Client {
		return servefile.Client{User: user, Since: time.Unix(since, 0)}
	}
	b := book{file: &servefile.File{Clients: map[string]servefile.Client{"gone": client("a", 1), "other": client("a", 1), "back": client("a", 1), "same": client("a", 1)}}, held: map[string]map[*entry]bool{}}
	ended := map[string]bool{}
	for name := range b.file.Clients {
		b.held[name] = map[*entry]bool{{client: name, stop: func(why string) { ended[name] = why != "" }}: true}
	}
	same := client("a", 1)
	same.Memory = 5
	for _, end := range b.replace(&servefile.File{Clients: map[string]servefile.Client{"other": client("b", 1), "back": client("a", 2), "same": same}}) {
		end()
	}
	if len(ended) != 3 || !ended["gone"] || !ended["other"] || !ended["back"] {
		t.Errorf("ended: %v", ended)
	}
}

// What a server has of its own, such as secrets of a cluster, no process of a client's user has.
func TestEnvironment(t *testing.T) {
	got := Environment([]string{"DIVVY_PREFIX=/opt/divvy", "TOKEN=secret", "DIVVY_PREFIX_OLD=x", "PATH=/bin", "DIVVY_RUNDIR=/run/d"})
	if want := []string{"DIVVY_PREFIX=/opt/divvy", "DIVVY_RUNDIR=/run/d"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
