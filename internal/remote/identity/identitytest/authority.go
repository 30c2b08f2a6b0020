// Package identitytest makes certificates for tests of what stands on package identity.
package identitytest

import (
	"crypto/tls"
	"path/filepath"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/remote/identity"
)

// Authority is one of a test's own, in a directory of its own.
type Authority struct {
	*identity.Authority
	// Server is what its server accepts.
	Server *tls.Config
}

// NewAuthority makes an authority whose server has these names and addresses.
func NewAuthority(t testing.TB, hosts ...string) *Authority {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "serve")
	authority, err := identity.Make(dir, hosts)
	if err != nil {
		t.Fatal(err)
	}
	server, err := identity.Server(dir)
	if err != nil {
		t.Fatal(err)
	}
	return &Authority{authority, server}
}

// Bundle is what a client of that name has for an hour.
func (a *Authority) Bundle(t testing.TB, name string) *identity.Bundle {
	t.Helper()
	bundle, err := a.Issue(name, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	return bundle
}

// Write writes a bundle into a file that is not there yet.
func Write(t testing.TB, bundle *identity.Bundle, file string) {
	t.Helper()
	text, err := bundle.Encode()
	if err == nil {
		err = identity.WriteNew(file, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}
