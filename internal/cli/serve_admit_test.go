package cli

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/remote/identity"
	"github.com/divvy-gpu/divvy/internal/servefile"
)

// asSomebody are the flags by which a client's shares are a user's, where who runs the test has to name one.
func asSomebody(t *testing.T) []string {
	t.Helper()
	if os.Getuid() != 0 {
		return nil
	}
	if _, err := user.Lookup("nobody"); err != nil {
		t.Fatal(err)
	}
	return []string{"--user", "nobody"}
}

// Whoever makes a client root is told what that means, whatever that user is called, and so is the log of a server that has one.
func TestServeAdmitRoot(t *testing.T) {
	root, err := user.LookupId("0")
	if err != nil {
		t.Fatal(err)
	}
	file := &servefile.File{Clients: map[string]servefile.Client{
		"ada": {Name: "ada", User: "nobody", Commands: true}, "bea": {Name: "bea", User: root.Username}, "cid": {Name: "cid", User: root.Username, Commands: true}, "dan": {Name: "dan"},
	}}
	var log bytes.Buffer
	warnOf(t.Context(), slog.New(slog.NewTextHandler(&log, nil)), file)
	if text := log.String(); strings.Count(text, "\n") != 2 || strings.Count(text, "client bea is root") != 1 || strings.Count(text, "client cid is root on this machine: its commands can do anything here") != 1 {
		t.Error(text)
	}
	if os.Getuid() != 0 {
		return // a user's server has no other users
	}
	dir := filepath.Join(t.TempDir(), "serve")
	succeed(t, "serve", "init", "--dir", dir, "gpu1")
	admit := []string{"serve", "admit", "eve", "--dir", dir, "--out", filepath.Join(dir, "eve.pem"), "--user", root.Username}
	if status, out, said := call(t, admit...); status != 0 || !strings.Contains(out, "bundle") || !strings.Contains(said, "divvy: client eve is root on this machine") {
		t.Errorf("%d, %q, %q", status, out, said)
	}
}

// succeed runs a command that must, and returns what it printed.
func succeed(t *testing.T, args ...string) string {
	t.Helper()
	status, out, errOut := call(t, args...)
	if status != 0 || errOut != "" {
		t.Fatalf("%v: status %d, %s", args, status, errOut)
	}
	return out
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// A user's own server has one user, and a flag that says otherwise is told of as a flag.
func TestServeAdmitUser(t *testing.T) {
	if os.Getuid() == 0 {
		t.Skip("root's server has users")
	}
	dir := filepath.Join(t.TempDir(), "serve")
	succeed(t, "serve", "init", "--dir", dir, "gpu1")
	if status, _, said := call(t, "serve", "admit", "laptop", "--dir", dir, "--user", "ada", "--out", "-"); status == 0 || !strings.HasPrefix(said, "divvy: --user: the server runs as you") {
		t.Errorf("status %d, %s", status, said)
	}
}

func TestServeInit(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "serve")
	if out := succeed(t, "serve", "init", "--dir", dir, "GPU1", "10.0.0.5"); !strings.Contains(out, "for gpu1, 10.0.0.5.") {
		t.Error(out)
	}
	before := map[string]string{}
	for name, mode := range map[string]os.FileMode{"ca.key": 0o600, "server.key": 0o600, "serve.yaml": 0o600, "ca.crt": 0o644, "server.crt": 0o644} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil || info.Mode() != mode {
			t.Errorf("%s: %v, %v", name, info, err)
		}
		before[name] = read(t, filepath.Join(dir, name))
	}
	if left, err := filepath.Glob(filepath.Join(dir, ".*")); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	if status, _, errOut := call(t, "serve", "init", "--dir", dir, "gpu2"); status != 1 || !strings.Contains(errOut, "is there already") || !strings.Contains(errOut, "--renew") {
		t.Errorf("%d, %s", status, errOut)
	}
	if out := succeed(t, "serve", "init", "--dir", dir, "--renew"); !strings.Contains(out, "for gpu1, 10.0.0.5.") || strings.Contains(out, "Bundles") {
		t.Error(out)
	}
	if out := succeed(t, "serve", "init", "--dir", dir, "--renew", "gpu2"); !strings.Contains(out, "for gpu2.") || !strings.Contains(out, "Bundles") {
		t.Error(out)
	}
	for name, was := range before {
		renewed := name == "server.key" || name == "server.crt"
		if now := read(t, filepath.Join(dir, name)); (now != was) != renewed {
			t.Errorf("%s is the same: %v", name, now == was)
		}
	}
	// A file that is gone is made again by what the words name.
	if err := os.Remove(filepath.Join(dir, "serve.yaml")); err != nil {
		t.Fatal(err)
	}
	if status, _, errOut := call(t, "serve", "expel", "ada", "--dir", dir); status != 1 || !strings.Contains(errOut, "`divvy serve init --renew`") {
		t.Errorf("%d, %s", status, errOut)
	}
	succeed(t, "serve", "init", "--dir", dir, "--renew")
	if now := read(t, filepath.Join(dir, "serve.yaml")); now != before["serve.yaml"] {
		t.Error(now)
	}
	if status, _, errOut := call(t, "serve", "init", "--dir", filepath.Join(dir, "b"), "a b"); status != 2 || !strings.Contains(errOut, "neither a host's name nor an address") {
		t.Errorf("%d, %s", status, errOut)
	}
}

// Without names the server is for those of the machine, never for those that every machine has.
func TestServeInitOwnHosts(t *testing.T) {
	for _, host := range ownHosts(t.Context()) {
		if host == "localhost" || strings.HasPrefix(host, "127.") || host == "::1" {
			t.Errorf("%s is every machine's", host)
		}
	}
}

func TestServeAdmit(t *testing.T) {
	dir, out := filepath.Join(t.TempDir(), "serve"), filepath.Join(t.TempDir(), "ada.pem")
	admit := append([]string{"serve", "admit", "ada", "--dir", dir, "--out", out, "--memory", "48Gi", "--days", "30"}, asSomebody(t)...)
	if status, _, errOut := call(t, admit...); status != 1 || !strings.Contains(errOut, "divvy serve init") {
		t.Errorf("without a server: %d, %s", status, errOut)
	}
	succeed(t, "serve", "init", "--dir", dir, "gpu1", "127.0.0.1")
	if text := succeed(t, admit...); !strings.Contains(text, "for gpu1, 127.0.0.1, valid until ") {
		t.Error(text)
	}
	b, err := identity.ReadBundle(out)
	if err != nil || b.Name() != "ada" || b.Port != 0 || !b.Serves("gpu1") {
		t.Fatalf("%+v, %v", b, err)
	}
	if info, err := os.Stat(out); err != nil || info.Mode() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	yaml := filepath.Join(dir, "serve.yaml")
	first := read(t, yaml)
	if !strings.Contains(first, "\n  ada: {") || !strings.Contains(first, "memory: 48Gi") || !strings.Contains(first, "since: ") || !strings.Contains(first, "# Which GPUs it offers") {
		t.Error(first)
	}
	status, _, errOut := call(t, admit...)
	if status != 1 || !strings.Contains(errOut, "is there already: move it away") || read(t, yaml) != first {
		t.Errorf("%d, %s", status, errOut)
	}
	// Again: another bundle, one bound more.
	bundle := succeed(t, "serve", "admit", "ada", "--dir", dir, "--out", "-", "--shares", "2")
	if b, err := identity.ParseBundle([]byte(bundle)); err != nil || b.Name() != "ada" {
		t.Errorf("%v\n%s", err, bundle)
	}
	if now := read(t, yaml); !strings.Contains(now, "memory: 48Gi, shares: 2, since: ") || strings.Count(now, "\n  ada: ") != 1 {
		t.Error(now)
	}
	succeed(t, "serve", "expel", "ada", "--dir", dir)
	if now := read(t, yaml); strings.Contains(now, "\n  ada: ") {
		t.Error(now)
	}
	if status, _, errOut := call(t, "serve", "expel", "ada", "--dir", dir); status != 1 || !strings.Contains(errOut, `has no client "ada"`) {
		t.Errorf("%d, %s", status, errOut)
	}
}

// However many days are asked for, a bundle is valid from now on, and no longer than its authority.
func TestServeAdmitLong(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "serve")
	succeed(t, "serve", "init", "--dir", dir, "gpu1")
	for _, days := range []string{"36500", "106752", "10000000", "9223372036854775807"} {
		text := succeed(t, append([]string{"serve", "admit", "ada", "--dir", dir, "--out", "-", "--days", days}, asSomebody(t)...)...)
		b, err := identity.ParseBundle([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if years := b.NotAfter().Year() - time.Now().Year(); years < 9 || years > 10 {
			t.Errorf("for %s days: valid until %s", days, b.NotAfter())
		}
	}
}

// A bundle that cannot be written leaves the server's file as it is, and the other way round.
func TestServeAdmitWhole(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "serve")
	succeed(t, "serve", "init", "--dir", dir, "gpu1")
	yaml := filepath.Join(dir, "serve.yaml")
	before := read(t, yaml)
	admit := append([]string{"serve", "admit", "ada", "--dir", dir}, asSomebody(t)...)
	if status, _, errOut := call(t, append(admit, "--out", filepath.Join(dir, "none", "x.pem"))...); status != 1 || read(t, yaml) != before {
		t.Errorf("%d, %s", status, errOut)
	}
	if err := os.WriteFile(yaml, []byte(before+"gpu: all\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "x.pem")
	status, _, errOut := call(t, append(admit, "--out", out)...)
	if _, err := os.Stat(out); status != 1 || !strings.Contains(errOut, "serve.yaml:") || !strings.Contains(errOut, "did you mean gpus?") || err == nil {
		t.Errorf("%d, %s, %v", status, errOut, err)
	}
	if err := os.Chmod(yaml, 0o666); err != nil {
		t.Fatal(err)
	}
	if status, _, errOut := call(t, append(admit, "--out", out)...); status != 1 || !strings.Contains(errOut, "others can write to it") && !strings.Contains(errOut, "others can write to "+yaml) {
		t.Errorf("%d, %s", status, errOut)
	}
	// Who can write to its directory could put an older file in its place, such as one with clients that were expelled.
	if err := errors.Join(os.WriteFile(yaml, []byte(before), 0o600), os.Chmod(yaml, 0o600), os.Chmod(dir, 0o777)); err != nil {
		t.Fatal(err)
	}
	if status, _, errOut := call(t, append(admit, "--out", out)...); status != 1 || !strings.Contains(errOut, "others can write to "+dir) {
		t.Errorf("%d, %s", status, errOut)
	}
}
