package cli

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/alloc"
	"github.com/divvy-gpu/divvy/internal/doctor"
	"github.com/divvy-gpu/divvy/internal/remote/identity"
	"github.com/divvy-gpu/divvy/internal/remote/relay/relaytest"
	"github.com/divvy-gpu/divvy/internal/remote/wire"
)

// wanted is a check, of which found and next are parts.
type wanted struct {
	id          doctor.ID
	status      doctor.Status
	found, next string
}

// same compares checks with those that are wanted, in their order.
func same(t *testing.T, checks []doctor.Check, want ...wanted) {
	t.Helper()
	for i, c := range checks {
		if i >= len(want) || c.ID != want[i].id || c.Status != want[i].status || !strings.Contains(c.Found, want[i].found) || !strings.Contains(c.Next, want[i].next) {
			t.Errorf("check %d: %+v", i, c)
		}
		if (c.Next == "") != (c.Status == doctor.OK) || c.Next != "" && strings.Contains(c.Found, c.Next) {
			t.Errorf("what to do: %+v", c)
		}
	}
	if len(checks) != len(want) {
		t.Errorf("%d checks, want %d: %+v", len(checks), len(want), checks)
	}
}

// gives is a server with GPUs.
func gives(gpus int, commands bool) *relaytest.Server {
	return &relaytest.Server{Inventory: func() *wire.Inventory { return &wire.Inventory{GPUs: make([]alloc.GPU, gpus), Commands: commands} }}
}

// Each bundle is looked at, and its host asked by it.
func TestDoctorLooksAtBundles(t *testing.T) {
	authority := relaytest.NewAuthority(t)
	t.Setenv(identity.Variable, t.TempDir())
	same(t, askHosts(t.Context()).checks(time.Now()))
	t.Setenv(identity.Variable, authority.Bundles)
	server := authority.Start(t, gives(1, false))
	file := filepath.Join(authority.Bundles, strconv.Itoa(server.Port())+".pem")
	again := func(validity time.Duration) {
		t.Helper()
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
		authority.Admit(t, file, server.Port(), validity)
	}
	look := func(want wanted) {
		t.Helper()
		want.id = "remote.bundle"
		same(t, askHosts(t.Context()).checks(time.Now()), want)
	}
	look(wanted{status: doctor.Warn, found: file + ": client laptop, valid until ", next: "have `divvy serve admit laptop` run on localhost:"})
	again(400 * 24 * time.Hour)
	look(wanted{status: doctor.OK, found: "; the host gives 1 GPU"})
	server.Inventory = gives(2, true).Inventory
	look(wanted{status: doctor.OK, found: "; the host gives 2 GPUs and runs commands"})
	if err := os.Chmod(file, 0o644); err != nil {
		t.Fatal(err)
	}
	look(wanted{status: doctor.Warn, found: "the private key is not only its owner's: its mode is 0644", next: "run `chmod 600 " + file})
	again(-time.Minute)
	look(wanted{status: doctor.Warn, found: file + " is out of its time since ", next: "have `divvy serve admit laptop` run on"})
	again(400 * 24 * time.Hour)
	server.Die()
	look(wanted{status: doctor.Warn, found: "the host does not serve: nobody listens at localhost:", next: "start `divvy serve` there"})
	if err := os.WriteFile(file, []byte("nothing"), 0o600); err != nil {
		t.Fatal(err)
	}
	look(wanted{status: doctor.Warn, found: file + ": invalid: it is no bundle of `divvy serve admit`", next: "have `divvy serve admit NAME` run on its host again"})
}

// Bundles with one name are told of: those of two hosts by a warning, which also says which of them is not the host's.
func TestDoctorLooksAtDoubles(t *testing.T) {
	right := relaytest.NewAuthority(t)
	server := right.Start(t, gives(1, false))
	first := filepath.Join(right.Bundles, strconv.Itoa(server.Port())+".pem")
	if err := os.Remove(first); err != nil {
		t.Fatal(err)
	}
	a, b, c := filepath.Join(right.Bundles, "a.pem"), filepath.Join(right.Bundles, "b.pem"), filepath.Join(right.Bundles, "c.pem")
	right.Admit(t, a, server.Port(), 400*24*time.Hour)
	right.Admit(t, b, server.Port(), 500*24*time.Hour)
	ok := wanted{"remote.bundle", doctor.OK, "the host gives 1 GPU", ""}
	same(t, askHosts(t.Context()).checks(time.Now()), ok, ok, wanted{"remote.doubles", doctor.OK, b + " and " + a + " are for one server; the first is used", ""})
	relaytest.NewAuthority(t).Admit(t, c, server.Port(), 600*24*time.Hour)
	t.Setenv(identity.Variable, right.Bundles)
	same(t, askHosts(t.Context()).checks(time.Now()), ok, ok,
		wanted{"remote.bundle", doctor.Warn, "its certificate is of another authority than " + c, "have `divvy serve admit laptop` run there"},
		wanted{"remote.doubles", doctor.Warn, c + " and " + b + " and " + a + " are of several authorities", "remove those"})
}
