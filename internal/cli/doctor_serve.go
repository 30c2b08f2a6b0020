package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/divvy-gpu/divvy/internal/doctor"
	"github.com/divvy-gpu/divvy/internal/process"
	"github.com/divvy-gpu/divvy/internal/remote/identity"
	"github.com/divvy-gpu/divvy/internal/servefile"
)

// serving is what is looked at of a server of this machine's GPUs.
type serving struct {
	// dir has its files.
	dir string
	// enabled is whether systemd starts it when the machine starts.
	enabled bool
	users   servefile.Users
	// lookup finds a local user.
	lookup func(name string) (*user.User, error)
	// local are the addresses of this machine.
	local func() ([]net.Addr, error)
}

// serveUnits are the links by which systemd starts the server of the machine.
const serveUnits = "/etc/systemd/system/*.wants/divvy-serve.service"

// serveChecks check the servers of this machine: root's, and the reader's own.
func serveChecks(ctx context.Context, now time.Time) []doctor.Check {
	links, _ := filepath.Glob(serveUnits) // the pattern is right
	s := serving{enabled: len(links) > 0, users: serveUsers(), lookup: user.Lookup, local: net.InterfaceAddrs}
	own, err := serveDir("")
	if err != nil || own == systemServeDir {
		s.dir = systemServeDir
		return s.checks(ctx, now)
	}
	checks := serving{dir: systemServeDir, enabled: s.enabled}.unitChecks()
	s.dir, s.enabled = own, false
	return append(checks, s.checks(ctx, now)...)
}

// unitChecks tell of a service that is to start and has nothing to start with.
func (s serving) unitChecks() []doctor.Check {
	path := filepath.Join(s.dir, serveFileName)
	if _, err := os.Stat(path); !s.enabled || !errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return []doctor.Check{{
		ID: "serve.unit", Name: "service divvy-serve", Status: doctor.Warn, Found: "it is to start with the machine, and there is no " + path,
		Next: "as root, `divvy serve init`, or `systemctl disable divvy-serve`",
	}}
}

// checks check one server's files, if there are any.
func (s serving) checks(ctx context.Context, now time.Time) []doctor.Check {
	checks := s.unitChecks()
	if _, err := os.Lstat(s.dir); errors.Is(err, fs.ErrNotExist) {
		return checks
	}
	checks = append(checks, s.certificateCheck(now))
	path := filepath.Join(s.dir, serveFileName)
	c := doctor.Check{ID: "serve.file", Name: "divvy serve", Status: doctor.OK}
	file, err := (&serveFile{path: path, users: s.users}).read()
	switch {
	case errors.Is(err, fs.ErrNotExist) && s.enabled:
		return checks // that of the unit has told
	case err != nil:
		c.Status = doctor.Warn
		c.Found, c.Next = remedy(err.Error(), "correct it: a server does not start with it, and one that runs goes on with what it has read")
		return append(checks, c)
	}
	c.Found = path + " lets in " + numberOf(len(file.Clients), "client")
	if s.users == nil {
		c.Found += ", whose shares are yours"
	}
	checks = append(checks, c)
	checks = append(checks, s.rootChecks(path, file)...)
	return append(checks, s.addressCheck(ctx, file.Listen))
}

// certificateCheck says whether the server's certificates serve.
func (s serving) certificateCheck(now time.Time) doctor.Check {
	c := doctor.Check{ID: "serve.certificates", Name: "certificates of divvy serve", Status: doctor.OK}
	v, err := identity.Review(s.dir)
	if err != nil {
		c.Status = doctor.Warn
		c.Found, c.Next = remedy(err.Error(), "run `divvy serve init --renew`")
		return c
	}
	c.Found = fmt.Sprintf("%s: for %s, valid until %s", s.dir, strings.Join(v.Hosts, ", "), v.Server.UTC().Format(time.DateOnly))
	switch {
	case v.Authority.Sub(now) < soon:
		c.Status, c.Found = doctor.Warn, c.Found+"; the authority ends on "+v.Authority.UTC().Format(time.DateOnly)
		c.Next = "move the directory away and run `divvy serve init`; each client needs a new bundle then"
	case v.Server.Sub(now) < soon:
		c.Status, c.Next = doctor.Warn, "run `divvy serve init --renew`"
	}
	return c
}

// rootChecks tell of clients who are root here.
func (s serving) rootChecks(path string, file *servefile.File) []doctor.Check {
	var root []string
	for name, client := range file.Clients {
		if u, err := s.lookup(client.User); client.User != "" && err == nil && u.Uid == "0" {
			root = append(root, name)
		}
	}
	if len(root) == 0 {
		return nil
	}
	slices.Sort(root)
	return []doctor.Check{{
		ID: "serve.root", Name: "clients as root", Status: doctor.Warn, Found: path + " gives " + strings.Join(root, ", ") + " the user root: who has such a bundle has shares without limits of users, and with `commands` this machine",
		Next: "`divvy serve admit " + root[0] + " --user NAME`, with a user who may have shares",
	}}
}

// addressTime is how long the name of an address is looked up.
const addressTime = 2 * time.Second

// addressCheck says whether the server can listen where its file says, and who does.
func (s serving) addressCheck(ctx context.Context, listen string) doctor.Check {
	c := doctor.Check{ID: "serve.address", Name: "address of divvy serve", Status: doctor.OK}
	at, fault := s.resolve(ctx, listen)
	if fault != "" {
		c.Status, c.Found, c.Next = doctor.Warn, listen+": "+fault, "correct listen in "+filepath.Join(s.dir, serveFileName)+", such as `listen: \":7117\"`"
		return c
	}
	who, there := process.ListenerAt(at)
	name := ""
	if there && who.PID != 0 {
		name = process.Command(who.PID)
	}
	switch {
	case !there && s.enabled:
		c.Status, c.Found, c.Next = doctor.Warn, listen+": nobody listens there, and service divvy-serve is to", "`systemctl status divvy-serve` says why it does not"
	case !there:
		c.Found = listen + "; nobody listens there now"
	case name != "" && name != "divvy":
		c.Status, c.Found, c.Next = doctor.Warn, listen+": "+holderOf(at.String())+" listens there", "end that program, or give the server another address: listen in "+filepath.Join(s.dir, serveFileName)
	default:
		c.Found = listen + ", where " + holderOf(at.String()) + " listens"
	}
	return c
}

// resolve finds the address of this machine at which a server would listen. The fault says why there is none.
func (s serving) resolve(ctx context.Context, listen string) (at netip.AddrPort, fault string) {
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return at, err.Error()
	}
	found := []netip.Addr{netip.IPv6Unspecified()}
	if host != "" {
		ctx, cancel := context.WithTimeout(ctx, addressTime)
		defer cancel()
		if found, err = net.DefaultResolver.LookupNetIP(ctx, "ip", host); err != nil {
			return at, "the name cannot be looked up"
		}
	}
	local, err := s.local()
	for _, one := range found {
		one = one.Unmap()
		if at, wrong := netip.ParseAddrPort(net.JoinHostPort(one.String(), port)); wrong == nil && (err != nil || one.IsUnspecified() || one.IsLoopback() || isLocal(local, one)) {
			return at, ""
		}
	}
	return at, "this machine has no such address"
}

// isLocal reports whether an address is one of a machine's.
func isLocal(local []net.Addr, one netip.Addr) bool {
	return slices.ContainsFunc(local, func(a net.Addr) bool {
		prefix, err := netip.ParsePrefix(a.String())
		return err == nil && prefix.Addr().Unmap() == one.WithZone("")
	})
}
