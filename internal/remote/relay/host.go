package relay

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/divvy-gpu/divvy/internal/remote/identity"
	"github.com/divvy-gpu/divvy/internal/remote/wire"
	"github.com/divvy-gpu/divvy/internal/version"
)

// Host is a server, as the user names it.
type Host struct {
	// Name is what the user wrote.
	Name string
	// Fault is why it cannot be asked, nil where it can.
	Fault error

	ways *ways // at least one where there is no fault
}

// ErrNames marks a list of hosts that makes no sense.
var ErrNames = errors.New("hosts")

// MostHosts is how many hosts one request may name.
const MostHosts = 64

// Names are the hosts of a list with commas between them, each once: a name or an address, with a port or without.
func Names(list string) ([]string, error) {
	var names []string
	for name := range strings.SplitSeq(list, ",") {
		name = strings.TrimSpace(name)
		if !isName(name) {
			return nil, fmt.Errorf("%w: %q: name hosts with commas between them, each as HOST or HOST:PORT", ErrNames, name)
		}
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	if len(names) > MostHosts {
		return nil, fmt.Errorf("%w: %d are named: name at most %d", ErrNames, len(names), MostHosts)
	}
	return names, nil
}

// isName reports whether something can be a host, with or without a port.
func isName(name string) bool {
	host, port, err := net.SplitHostPort(name)
	if err != nil { // no port, or an address of IPv6 alone
		host, port = strings.TrimSuffix(strings.TrimPrefix(name, "["), "]"), strconv.Itoa(wire.Port)
		if strings.Contains(host, ":") && net.ParseIP(host) == nil {
			return false
		}
	}
	number, err := strconv.ParseUint(port, 10, 16)
	return err == nil && number != 0 && host != "" && !strings.ContainsFunc(host, func(r rune) bool { return r <= ' ' || r == '/' || r == '@' || r == 0x7f })
}

// Find finds what proves to each host who the client is. A host for which there is nothing has a fault.
func Find(names []string) Hosts {
	hosts := make(Hosts, 0, len(names))
	for _, name := range names {
		h := Host{Name: name}
		if bundles, err := identity.FindBundles(name); err != nil {
			h.Fault = err
		} else {
			h.ways = waysBy(name, bundles)
		}
		hosts = append(hosts, h)
	}
	return hosts
}

// By is the host of a bundle, by this bundle alone.
func By(b *identity.Bundle) Host {
	name := b.Called()
	return Host{Name: name, Fault: b.Check(name), ways: waysBy(name, []*identity.Bundle{b})}
}

// fromFile is a host at an address, by a bundle that is read anew for each connection. Its certificate has its name.
func fromFile(name, address, path string) Host {
	first, err := identity.ReadBundle(path)
	if err != nil {
		return Host{Name: name, Fault: err}
	}
	config := first.Config(name)
	config.Certificates = nil
	config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		now, err := identity.ReadBundle(path)
		if err == nil {
			err = now.Check(name)
		}
		if err != nil {
			return nil, err
		}
		return &now.Config(name).Certificates[0], nil
	}
	return Host{Name: name, ways: &ways{list: []way{{address: address, config: config}}}}
}

// hostsOf are those of a relay.
func hostsOf(spec Spec) Hosts {
	if spec.Bundle != "" && len(spec.Hosts) == 1 {
		return Hosts{fromFile(spec.Hosts[0], spec.Address, spec.Bundle)}
	}
	return Find(spec.Hosts)
}

// dialTime is how long a connection may take to be made, with all that both sides say of who they are.
const dialTime = 10 * time.Second

// open connects for a purpose. The connection ends with the context until the caller has its answer.
func (h Host) open(ctx context.Context, open wire.Open) (*wire.Conn, error) {
	c, err := h.dial(ctx)
	if err != nil {
		return nil, err
	}
	open.Version = version.Full()
	if err := c.Send(open); err != nil {
		return nil, errors.Join(h.explain(ctx, err), c.Close())
	}
	return c, nil
}

// errSlow is a host that does not answer in time.
var errSlow = fmt.Errorf("no answer in %v", dialTime)

// explain says of an error of the last connection what it means for the user, and what to do.
func (h Host) explain(ctx context.Context, err error) error {
	return h.ways.first().explain(ctx, h.Name, err)
}

func (w way) explain(ctx context.Context, host string, err error) error {
	var record tls.RecordHeaderError
	var name *net.DNSError
	switch {
	case errors.Is(context.Cause(ctx), errSlow), errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, syscall.ETIMEDOUT):
		return fmt.Errorf("%w from %s: is the host on, and does a firewall let this port through?", errSlow, w.address)
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("nobody listens at %s: start `divvy serve` there, or name another port as HOST:PORT", w.address)
	case errors.As(err, &name):
		return fmt.Errorf("the name cannot be looked up: %s", cmp.Or(name.Err, "unknown"))
	case errors.As(err, &record):
		return fmt.Errorf("what listens at %s speaks no TLS: is it `divvy serve`?", w.address)
	case w.bundle != nil:
		return w.bundle.Explain(host, err)
	}
	return err
}

// client is the name by which the host knows this client.
func (h Host) client() string {
	if first := h.ways.first(); first.bundle != nil {
		return first.bundle.Name()
	}
	return "NAME"
}

// words are an error in a line that begins with the host.
func (h Host) words(err error) string {
	return h.Name + ": " + strings.TrimPrefix(plain(err), h.Name+": ")
}

// answer is the next answer of a server. An error of the context is its cause.
func (h Host) answer(ctx context.Context, c *wire.Conn) (*wire.Answer, error) {
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	defer stop()
	var a wire.Answer
	if err := c.Receive(&a); err != nil {
		if ctx.Err() != nil {
			return nil, h.explain(ctx, context.Cause(ctx))
		}
		return nil, h.explain(ctx, err)
	}
	if a.Refused != nil {
		return nil, a.Refused
	}
	return &a, nil
}
