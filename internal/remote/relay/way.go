package relay

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"syscall"

	"github.com/divvy-gpu/divvy/internal/remote/identity"
	"github.com/divvy-gpu/divvy/internal/remote/wire"
)

// way is how a host may be reached: where it listens, and by what both sides know each other.
type way struct {
	address string
	config  *tls.Config
	// bundle is nil where the file is read for each connection.
	bundle *identity.Bundle
}

// ways are those to one host. All copies of a [Host] share them.
type ways struct {
	mu sync.Mutex
	// list has the one first that was accepted last.
	list []way
}

// waysBy are those that bundles for a host open.
func waysBy(host string, bundles []*identity.Bundle) *ways {
	w := &ways{}
	for _, b := range bundles {
		w.list = append(w.list, way{b.Address(host), b.Config(host), b})
	}
	return w
}

// first is the way that is tried first, the zero one where there is none.
func (w *ways) first() way {
	if w == nil {
		return way{}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.list[0]
}

// now are the ways that are open now. Where the time of all bundles is over, others may have been put in their place.
func (w *ways) now(host string) ([]way, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	over := func(one way) bool { return one.bundle != nil && one.bundle.Check(host) != nil }
	if slices.ContainsFunc(w.list, func(one way) bool { return !over(one) }) {
		return slices.DeleteFunc(slices.Clone(w.list), over), nil
	}
	bundles, err := identity.FindBundles(host)
	if err != nil {
		return nil, err
	}
	w.list = waysBy(host, bundles).list
	return slices.Clone(w.list), nil
}

// accept has a way be the first from now on.
func (w *ways) accept(one way) {
	w.mu.Lock()
	defer w.mu.Unlock()
	at := slices.IndexFunc(w.list, func(has way) bool { return has.config == one.config })
	if at > 0 {
		w.list = slices.Insert(slices.Delete(w.list, at, at+1), 0, one)
	}
}

// dial connects by the first way that leads to a server of the authority of its bundle.
func (h Host) dial(ctx context.Context) (*wire.Conn, error) {
	if h.Fault != nil {
		return nil, h.Fault
	}
	open, err := h.ways.now(h.Name)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, dialTime, errSlow)
	defer cancel()
	var faults []error
	var foreign []*identity.Bundle
	for _, one := range open {
		conn, err := one.dial(ctx)
		var unknown x509.UnknownAuthorityError
		switch {
		case err == nil:
			h.ways.accept(one)
			return conn, nil
		case one.bundle != nil && errors.As(err, &unknown):
			foreign = append(foreign, one.bundle)
		case errors.Is(err, syscall.ECONNREFUSED):
			if err = one.explain(ctx, h.Name, err); !slices.ContainsFunc(faults, func(said error) bool { return said.Error() == err.Error() }) {
				faults = append(faults, err)
			}
		default:
			return nil, one.explain(ctx, h.Name, err)
		}
	}
	if len(foreign) > 0 {
		faults = append(faults, identity.Foreign(h.Name, foreign))
	}
	return nil, errors.Join(faults...)
}

// dial connects.
func (w way) dial(ctx context.Context) (*wire.Conn, error) {
	dialer := tls.Dialer{NetDialer: &net.Dialer{KeepAlive: -1}, Config: w.config}
	made, err := dialer.DialContext(ctx, "tcp", w.address)
	if err != nil {
		return nil, err
	}
	conn, ok := made.(*tls.Conn)
	if !ok {
		return nil, errors.Join(fmt.Errorf("connect to %s: it is no connection of TLS", w.address), made.Close())
	}
	if found := conn.ConnectionState().NegotiatedProtocol; found != wire.Protocol {
		return nil, errors.Join(fmt.Errorf("it does not speak %s: is it `divvy serve` that listens at %s?", wire.Protocol, w.address), conn.NetConn().Close())
	}
	return wire.New(conn), nil
}
