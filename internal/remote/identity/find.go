package identity

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/divvy-gpu/divvy/internal/servefile"
)

// systemDir is where bundles of the machine's users are.
const systemDir = "/etc/divvy/remote"

// Dirs are where clients look for bundles, in order.
func Dirs() []string {
	if dir := os.Getenv(Variable); dir != "" {
		return []string{dir}
	}
	dirs := []string{systemDir}
	if config, err := os.UserConfigDir(); err == nil {
		dirs = slices.Insert(dirs, 0, filepath.Join(config, "divvy", "remote"))
	}
	return dirs
}

// Kept is the file of a bundle in one of the folders.
type Kept struct {
	Path string
	// Bundle is nil where the file cannot be used, and Err says why.
	Bundle *Bundle
	Err    error
}

// Look reads all bundles, in the order of their folders. Those of others are left out.
func Look() (all []Kept) {
	for _, dir := range Dirs() {
		files, err := filepath.Glob(filepath.Join(dir, "*.pem"))
		if err != nil {
			continue // a directory whose name is a bad pattern
		}
		for _, path := range files {
			b, err := ReadBundle(path)
			switch {
			case errors.Is(err, os.ErrPermission) && dir == systemDir:
				continue
			case errors.Is(err, os.ErrPermission):
				err = fmt.Errorf("%w: run `chown` to have it be yours, if root brought it", err)
			}
			all = append(all, Kept{Path: path, Bundle: b, Err: err})
		}
	}
	return all
}

// FindBundles finds the bundles for a host, with or without a port, that are valid now. There may be several: of a client who was
// admitted again, and of two hosts with the same name. Those of the first folder come first, of these those for the port, and of
// these those that are valid for longer. The error is [ErrTime] where there are only others.
func FindBundles(host string) ([]*Bundle, error) {
	var found []*Bundle
	var faults []error
	for _, k := range Look() {
		switch {
		case k.Err != nil:
			faults = append(faults, k.Err)
		case k.Bundle.Serves(host):
			found = append(found, k.Bundle)
		}
	}
	if len(found) == 0 {
		return nil, errors.Join(append([]error{fmt.Errorf("a bundle for %s was %w in %s: have `divvy serve admit NAME` run there, and put the file that it writes into %s",
			host, ErrNone, strings.Join(Dirs(), " and "), Dirs()[0])}, faults...)...)
	}
	dirs := Dirs()
	place := func(b *Bundle) int { return slices.Index(dirs, filepath.Dir(b.path)) }
	slices.SortStableFunc(found, func(a, b *Bundle) int {
		switch {
		case place(a) != place(b):
			return place(a) - place(b)
		case a.at(host) != b.at(host) && a.at(host):
			return -1
		case a.at(host) != b.at(host):
			return 1
		}
		return b.NotAfter().Compare(a.NotAfter())
	})
	first := found[0]
	found = slices.DeleteFunc(found, func(b *Bundle) bool { return b.Check(host) != nil })
	if len(found) == 0 {
		return nil, first.Check(host)
	}
	return found, nil
}

// at reports whether the bundle is for the server at the port that a host is named with, if it is.
func (b *Bundle) at(host string) bool {
	_, port := splitHost(host)
	return port == "" || port == strconv.Itoa(b.port())
}

// Check returns why a bundle cannot be used now for a host, [ErrTime].
func (b *Bundle) Check(host string) error {
	switch now := time.Now(); {
	case now.After(b.certificate.NotAfter):
		return fmt.Errorf("%s is %w since %s: have `divvy serve admit %s` run on %s again, and put the file in its place", b.path, ErrTime, day(b.NotAfter()), b.Name(), host)
	case now.Before(b.certificate.NotBefore):
		return fmt.Errorf("%s is %w until %s: compare this machine's clock with that of %s", b.path, ErrTime, day(b.certificate.NotBefore), host)
	}
	return nil
}

// Hosts are the names of all servers for which there is a bundle that is valid now.
func Hosts() ([]string, error) {
	var found []string
	for _, k := range Look() {
		if k.Err != nil || k.Bundle.Check(k.Bundle.Hosts[0]) != nil {
			continue // FindBundles tells of it who asks for its host
		}
		if name := k.Bundle.Called(); !slices.Contains(found, name) {
			found = append(found, name)
		}
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("a bundle that is valid was %w in %s: have `divvy serve admit NAME` run on a host, and put the file that it writes into %s",
			ErrNone, strings.Join(Dirs(), " and "), Dirs()[0])
	}
	return found, nil
}

// Called is the first name of the bundle's host, with the port if it is not the usual one.
func (b *Bundle) Called() string {
	if b.port() == servefile.Port {
		return b.Hosts[0]
	}
	return b.Address(b.Hosts[0])
}
