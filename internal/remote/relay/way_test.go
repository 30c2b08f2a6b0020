package relay

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/remote/identity"
	"github.com/divvy-gpu/divvy/internal/remote/relay/relaytest"
	"github.com/divvy-gpu/divvy/internal/remote/wire"
)

// Of several bundles that name a host that counts whose authority the host's is, whichever is newer. It is found once.
func TestBundlesOfTwoHostsWithOneName(t *testing.T) {
	right := relaytest.NewAuthority(t)
	server := right.Start(t, &relaytest.Server{Inventory: func() *wire.Inventory { return &wire.Inventory{Host: "a"} }})
	wrong := relaytest.NewAuthority(t)
	newest := filepath.Join(right.Bundles, "newest.pem")
	wrong.Admit(t, newest, server.Port(), 2*time.Hour)
	t.Setenv(identity.Variable, right.Bundles)
	hosts := Find([]string{server.Address})
	for want := 2; want < 5; want++ {
		for _, c := range Candidates(t.Context(), hosts) {
			if c.Err != nil || c.Inventory == nil || c.Inventory.Host != "a" {
				t.Fatalf("%+v", c)
			}
		}
		if met := server.Met(); met != want {
			t.Errorf("%d connections, want %d", met, want)
		}
	}

	// Where none is right all are named.
	if err := os.Remove(filepath.Join(right.Bundles, strings.TrimPrefix(server.Address, "127.0.0.1:")+".pem")); err != nil {
		t.Fatal(err)
	}
	other := filepath.Join(right.Bundles, "other.pem")
	relaytest.NewAuthority(t).Admit(t, other, server.Port(), time.Hour)
	t.Setenv(identity.Variable, right.Bundles)
	_, err := Find([]string{server.Address})[0].dial(t.Context())
	if err == nil || !strings.Contains(err.Error(), "its certificate is of another authority than "+newest+" and "+other+": have `divvy serve admit laptop` run there") {
		t.Error(err)
	}
}

// Two servers of a host are at two ports. One that does not listen keeps nobody from the other.
func TestBundlesOfTwoPorts(t *testing.T) {
	authority := relaytest.NewAuthority(t)
	server := authority.Start(t, &relaytest.Server{Inventory: func() *wire.Inventory { return &wire.Inventory{} }})
	gone := authority.Start(t, &relaytest.Server{})
	gone.Die()
	authority.Admit(t, filepath.Join(authority.Bundles, "newest.pem"), gone.Port(), 2*time.Hour)
	conn, err := Find([]string{"127.0.0.1"})[0].dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
	server.Die()
	_, err = Find([]string{"127.0.0.1"})[0].dial(t.Context())
	if err == nil || strings.Count(err.Error(), "nobody listens at "+gone.Address) != 1 || strings.Count(err.Error(), "nobody listens at "+server.Address) != 1 {
		t.Error(err)
	}
}

// When the time of a bundle is over, new connections say so, until there is another one in its place.
func TestBundleOutOfItsTime(t *testing.T) {
	authority := relaytest.NewAuthority(t)
	server := authority.Start(t, &relaytest.Server{Inventory: func() *wire.Inventory { return &wire.Inventory{} }})
	h := Find([]string{server.Address})[0]
	file := filepath.Join(authority.Bundles, strings.TrimPrefix(server.Address, "127.0.0.1:")+".pem")
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	old := authority.Admit(t, file, server.Port(), -time.Minute)
	h.ways.list = waysBy(h.Name, []*identity.Bundle{old}).list
	_, err := h.dial(t.Context())
	if err == nil || !strings.Contains(err.Error(), file+" is out of its time since "+old.NotAfter().UTC().Format("2006-01-02 15:04 UTC")+": have `divvy serve admit laptop` run on "+server.Address+" again, and put the file in its place") {
		t.Error(err)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	authority.Admit(t, file, server.Port(), time.Hour)
	conn, err := h.dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
}
