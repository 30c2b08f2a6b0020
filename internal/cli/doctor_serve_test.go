package cli

import (
	"errors"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/doctor"
	"github.com/divvy-gpu/divvy/internal/remote/identity"
)

// TestDoctorLooksAtServers spoils the files of a server one after the other.
func TestDoctorLooksAtServers(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "serve")
	path := filepath.Join(dir, serveFileName)
	known := map[string]string{"ada": "1001", "toor": "0"}
	s := serving{
		dir: dir,
		users: func(name string) error {
			if known[name] == "" {
				return errors.New("there is no user " + name)
			}
			return nil
		},
		lookup: func(name string) (*user.User, error) { return &user.User{Uid: known[name]}, nil },
		local: func() ([]net.Addr, error) {
			return []net.Addr{&net.IPNet{IP: net.IPv4(192, 0, 2, 7), Mask: net.CIDRMask(24, 32)}}, nil
		},
	}
	now := time.Now()
	look := func(want ...wanted) {
		t.Helper()
		same(t, s.checks(t.Context(), now), want...)
	}
	look()
	s.enabled = true
	look(wanted{"serve.unit", doctor.Warn, "there is no " + path, "`divvy serve init`"})
	if _, err := identity.Make(dir, []string{"gpu1"}); err != nil {
		t.Fatal(err)
	}
	certificates := wanted{"serve.certificates", doctor.OK, dir + ": for gpu1, valid until ", ""}
	look(wanted{"serve.unit", doctor.Warn, "there is no " + path, ""}, certificates)
	s.enabled = false
	look(certificates, wanted{"serve.file", doctor.Warn, "no such file", "`divvy serve init --renew` make one"})

	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	here := l.Addr().String()
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte("apiVersion: divvy.dev/v1alpha1\nkind: ServeConfig\n"+text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	file := wanted{"serve.file", doctor.OK, path + " lets in 1 client", ""}
	clients := "clients: {laptop: {user: ada}}\n"
	write("listen: " + here + "\n" + clients)
	taken := wanted{"serve.address", doctor.Warn, here + ": process ", "another address"}
	look(certificates, file, taken)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	look(certificates, file, wanted{"serve.address", doctor.OK, here + "; nobody listens there now", ""})
	s.enabled = true
	look(certificates, file, wanted{"serve.address", doctor.Warn, "nobody listens there, and service divvy-serve is to", "systemctl status divvy-serve"})
	s.enabled = false
	_, port, _ := net.SplitHostPort(here)
	write("listen: 192.0.2.8:" + port + "\n" + clients)
	look(certificates, file, wanted{"serve.address", doctor.Warn, "this machine has no such address", "correct listen in " + path})
	write("listen: 192.0.2.7:" + port + "\n" + clients)
	free := wanted{"serve.address", doctor.OK, "nobody listens there now", ""}
	look(certificates, file, free)
	write("listen: 192.0.2.7:" + port + "\nclients: {laptop: {user: toor}}\n")
	look(certificates, file, wanted{"serve.root", doctor.Warn, "gives laptop the user root", "`divvy serve admit laptop --user NAME`"}, free)
	write("clients: {laptop: {user: eve}}\n")
	look(certificates, wanted{"serve.file", doctor.Warn, path + ":3: clients.laptop.user: there is no user eve", "correct it"})
	write("gpu: all\n")
	look(certificates, wanted{"serve.file", doctor.Warn, "unknown field: did you mean gpus?", "correct it"})
	write(clients)
	if err := os.Chmod(path, 0o622); err != nil {
		t.Fatal(err)
	}
	look(certificates, wanted{"serve.file", doctor.Warn, "others can write to " + path, "run chmod go-w"})
}

// Certificates that will not do are told of before they fail.
func TestDoctorLooksAtCertificates(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "serve")
	if _, err := identity.Make(dir, []string{"gpu1"}); err != nil {
		t.Fatal(err)
	}
	s := serving{dir: dir}
	year := 365 * 24 * time.Hour
	same(t, []doctor.Check{s.certificateCheck(time.Now()), s.certificateCheck(time.Now().Add(10*year - 24*time.Hour))},
		wanted{"serve.certificates", doctor.OK, "for gpu1", ""}, wanted{"serve.certificates", doctor.Warn, "the authority ends on", "`divvy serve init`"})
	other := filepath.Join(t.TempDir(), "serve")
	if _, err := identity.Make(other, []string{"gpu2"}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"server.crt", "server.key"} {
		text, err := os.ReadFile(filepath.Join(other, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
		same(t, []doctor.Check{s.certificateCheck(time.Now())}, wanted{"serve.certificates", doctor.Warn, "", "run `divvy serve init --renew`"})
	}
	if c := s.certificateCheck(time.Now()); !strings.Contains(c.Found, "of another authority") {
		t.Errorf("%+v", c)
	}
	if err := os.Chmod(filepath.Join(dir, "ca.key"), 0o644); err != nil {
		t.Fatal(err)
	}
	same(t, []doctor.Check{s.certificateCheck(time.Now())}, wanted{"serve.certificates", doctor.Warn, "its mode is 0644", "run `chmod 600"})
}
