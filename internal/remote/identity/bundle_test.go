package identity

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// encoded is a bundle as its file.
func encoded(t *testing.T, b *Bundle) []byte {
	t.Helper()
	text, err := b.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// put writes a file with exactly this mode.
func put(t *testing.T, path string, text []byte, mode os.FileMode) {
	t.Helper()
	if err := os.WriteFile(path, text, mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
}

func TestBundleAndBack(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	a := newAuthority(t)
	for range 20 {
		name := []string{"ada", "node1/" + strings.Repeat("f", 36), "a@b.c:7", strings.Repeat("x", mostOfName)}[r.IntN(4)]
		b := a.bundleOf(t, clientTemplate(name, time.Now(), time.Now().Add(time.Hour)), nil)
		b.Port = r.IntN(1 << 16)
		b.Hosts = nil
		for range r.IntN(5) + 1 {
			b.Hosts = append(b.Hosts, []string{"gpu1", "gpu1.example.com", fmt.Sprintf("10.0.%d.5", r.IntN(256)), "2001:db8::5"}[r.IntN(4)])
		}
		text := encoded(t, b)
		got, err := ParseBundle(text)
		if err != nil || got.Name() != name || got.Port != b.Port || !slices.Equal(got.Hosts, b.Hosts) || !bytes.Equal(encoded(t, got), text) {
			t.Errorf("%+v, %v\n%s", got, err, text)
		}
		if again, err := ParseBundle(append([]byte("# for the new machine\n"), text...)); err != nil || again.Name() != name {
			t.Errorf("with a comment before: %v", err)
		}
	}
}

func TestServes(t *testing.T) {
	b := &Bundle{Hosts: []string{"gpu1.example.com", "10.0.0.5", "2001:db8::5"}}
	for host, want := range map[string]string{
		"gpu1.example.com": "gpu1.example.com:7117", "GPU1.Example.COM.": "GPU1.Example.COM.:7117", "gpu1.example.com:7117": "gpu1.example.com:7117",
		"10.0.0.5": "10.0.0.5:7117", "::ffff:10.0.0.5": "[::ffff:10.0.0.5]:7117", "2001:DB8:0::5": "[2001:DB8:0::5]:7117", "[2001:db8::5]": "[2001:db8::5]:7117",
		"[2001:db8::5]:7117": "[2001:db8::5]:7117", "gpu1": "", "gpu1.example.com:7118": "gpu1.example.com:7118", "10.0.0.50": "", "": "",
	} {
		if got := b.Serves(host); got != (want != "") || got && b.Address(host) != want {
			t.Errorf("%q: %v, %s", host, got, b.Address(host))
		}
	}
	b.Port = 9000
	if !b.Serves("10.0.0.5") || !b.Serves("10.0.0.5:9000") || b.Address("10.0.0.5") != "10.0.0.5:9000" || b.Address("10.0.0.5:1") != "10.0.0.5:1" {
		t.Error("the port of the bundle does not count where none is named")
	}
}

// A key that others can read is not used, as ssh does not.
func TestBundleModes(t *testing.T) {
	text := encoded(t, newAuthority(t).bundleOf(t, clientTemplate("ada", time.Now(), time.Now().Add(time.Hour)), nil))
	path := filepath.Join(t.TempDir(), "b.pem")
	group := os.Getuid() == 0 // root may let a group have it
	for mode, want := range map[os.FileMode]bool{0o600: true, 0o400: true, 0o700: true, 0o640: group, 0o660: false, 0o604: false, 0o644: false, 0o620: false, 0o602: false, 0o601: false} {
		put(t, path, text, mode)
		if _, err := ReadBundle(path); (err == nil) != want || err != nil && (!errors.Is(err, ErrOpen) || !strings.Contains(err.Error(), "chmod 600 "+path)) {
			t.Errorf("%04o: %v", mode, err)
		}
	}
	for name, path := range map[string]string{"no file": t.TempDir(), "nothing": filepath.Join(t.TempDir(), "none")} {
		if b, err := ReadBundle(path); err == nil {
			t.Errorf("%s: %v", name, b)
		}
	}
	large := filepath.Join(t.TempDir(), "large.pem")
	put(t, large, make([]byte, mostBytes+1), 0o600)
	if _, err := ReadBundle(large); !errors.Is(err, ErrInvalid) {
		t.Errorf("too large: %v", err)
	}
}

func TestWrongBundles(t *testing.T) {
	a, other := newAuthority(t), newAuthority(t)
	now := time.Now()
	b := a.bundleOf(t, clientTemplate("ada", now, now.Add(time.Hour)), nil)
	text := string(encoded(t, b))
	begin := func(block string) int { return strings.Index(text, "-----BEGIN "+block) }
	server := a.bundleOf(t, serverTemplate([]string{"gpu1"}, now, now.Add(time.Hour)), nil)
	bad := a.bundleOf(t, clientTemplate("a b", now, now.Add(time.Hour)), nil)
	mixed := *b
	mixed.authority = other.certificate
	stranger := *b
	stranger.key = other.key
	for name, text := range map[string]string{
		"nothing": "", "no PEM": "ada", "no head": text[begin("CERTIFICATE"):], "no certificates": text[:begin("CERTIFICATE")] + text[begin("PRIVATE"):],
		"no key": text[:begin("PRIVATE")], "another's key": string(encoded(t, &stranger)), "another authority": string(encoded(t, &mixed)),
		"two keys": text + text[begin("PRIVATE"):], "more": text + "x", "another block": text + string(pem.EncodeToMemory(&pem.Block{Type: "X509 CRL"})),
		"a server's": string(encoded(t, server)), "a bad name": string(encoded(t, bad)), "another name": strings.Replace(text, "Client: ada", "Client: bea", 1),
		"no hosts": strings.Replace(text, "Hosts: gpu1", "Hosts: ", 1), "a bad host": strings.Replace(text, "Hosts: gpu1", "Hosts: gpu1 gpu2", 1),
		"port 0": strings.Replace(text, "Hosts:", "Port: 0\nHosts:", 1), "a large port": strings.Replace(text, "Hosts:", "Port: 65536\nHosts:", 1),
		"cut": text[:len(text)-40],
	} {
		if got, err := ParseBundle([]byte(text)); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

// A bundle in the user's own folder that cannot be read is told of, as after root has copied it there.
func TestFindClosedBundle(t *testing.T) {
	if os.Getuid() == 0 {
		t.Skip("root can read every file")
	}
	dir := t.TempDir()
	t.Setenv(Variable, dir)
	path := filepath.Join(dir, "a.pem")
	put(t, path, []byte("x"), 0)
	if _, err := FindBundles("gpu1"); !errors.Is(err, ErrNone) || !strings.Contains(err.Error(), path+": permission denied: run `chown`") {
		t.Error(err)
	}
}

func TestFindBundles(t *testing.T) {
	home, dir := t.TempDir(), t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", home)
	own := filepath.Join(home, "divvy", "remote")
	if err := os.MkdirAll(own, 0o700); err != nil {
		t.Fatal(err)
	}
	if dirs := Dirs(); !slices.Equal(dirs, []string{own, "/etc/divvy/remote"}) {
		t.Error(dirs)
	}
	_, err := FindBundles("gpu1")
	if !errors.Is(err, ErrNone) || !strings.Contains(err.Error(), own) || !strings.Contains(err.Error(), "divvy serve admit NAME") {
		t.Error(err)
	}
	a, now := newAuthority(t), time.Now()
	of := func(name string, until time.Duration) []byte {
		return encoded(t, a.bundleOf(t, clientTemplate(name, now.Add(-48*time.Hour), now.Add(until)), nil))
	}
	put(t, filepath.Join(own, "b.pem"), of("old", -time.Hour), 0o600)
	if _, err := FindBundles("gpu1"); !errors.Is(err, ErrTime) || !strings.Contains(err.Error(), filepath.Join(own, "b.pem")+" is out of its time since ") || !strings.Contains(err.Error(), "`divvy serve admit old`") {
		t.Error(err)
	}
	put(t, filepath.Join(own, "a.pem"), of("new", 2*time.Hour), 0o600)
	put(t, filepath.Join(own, "c.pem"), of("short", time.Hour), 0o600)
	put(t, filepath.Join(own, "d.txt"), of("text", 3*time.Hour), 0o600)
	if b, err := FindBundles("gpu1"); err != nil || len(b) != 2 || b[0].Name() != "new" || b[0].Path() != filepath.Join(own, "a.pem") || b[1].Name() != "short" {
		t.Errorf("%+v, %v", b, err)
	}
	put(t, filepath.Join(dir, "e.pem"), of("named", time.Minute), 0o600)
	t.Setenv(Variable, dir)
	if b, err := FindBundles("gpu1"); err != nil || len(b) != 1 || b[0].Name() != "named" {
		t.Errorf("%+v, %v", b, err)
	}
	// What is wrong with another file is said where none is found.
	put(t, filepath.Join(dir, "f.pem"), []byte("x"), 0o600)
	if _, err := FindBundles("gpu1"); err != nil {
		t.Error(err)
	}
	if _, err := FindBundles("gpu2"); !errors.Is(err, ErrNone) || !strings.Contains(err.Error(), "f.pem: invalid: it is no bundle") {
		t.Error(err)
	}
}

func FuzzBundle(f *testing.F) {
	a, err := NewAuthority(time.Hour)
	if err != nil {
		f.Fatal(err)
	}
	a.server = &x509.Certificate{DNSNames: []string{"gpu1"}}
	b, err := a.Issue("ada", time.Hour)
	if err != nil {
		f.Fatal(err)
	}
	text, err := b.Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add(text[:200])
	f.Fuzz(func(t *testing.T, text []byte) {
		b, err := ParseBundle(text)
		if err != nil {
			if !errors.Is(err, ErrInvalid) {
				t.Error(err)
			}
			return
		}
		again, err := b.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if got, err := ParseBundle(again); err != nil || got.Name() != b.Name() || !slices.Equal(got.Hosts, b.Hosts) || got.Port != b.Port {
			t.Errorf("%+v, %v", got, err)
		}
		_ = b.Check("gpu1")
		_ = b.Config("gpu1")
	})
}

func FuzzAuthority(f *testing.F) {
	a, err := NewAuthority(time.Hour)
	if err != nil {
		f.Fatal(err)
	}
	certificate, key, err := a.Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(certificate, key)
	f.Fuzz(func(t *testing.T, certificate, key []byte) {
		a, err := ParseAuthority(certificate, key)
		if (a == nil) == (err == nil) || err != nil && !errors.Is(err, ErrInvalid) {
			t.Errorf("%v, %v", a, err)
		}
	})
}
