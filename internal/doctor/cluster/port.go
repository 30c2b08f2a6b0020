package cluster

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"
)

// portTime bounds how long a port is asked.
const portTime = 2 * time.Second

// Open asks a port whether it serves who shows no client certificate. A server that wants one refuses in the handshake,
// of which the client hears when it reads.
func Open(ctx context.Context, address string) (open bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, portTime)
	defer cancel()
	// Nothing is told to the server, so it does not matter whose certificate it has.
	dialer := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}} //nolint:gosec // see above
	connection, err := dialer.DialContext(ctx, "tcp", address)
	if refusedByTLS(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("connect to %s: %w", address, err)
	}
	defer func() { _ = connection.Close() }()
	if deadline, ok := ctx.Deadline(); ok {
		if err := connection.SetDeadline(deadline); err != nil {
			return false, fmt.Errorf("ask %s: %w", address, err)
		}
	}
	if _, err := fmt.Fprint(connection, "GET / HTTP/1.0\r\n\r\n"); err != nil && !refusedByTLS(err) {
		return false, fmt.Errorf("ask %s: %w", address, err)
	}
	_, err = connection.Read(make([]byte, 1))
	switch {
	case err == nil:
		return true, nil
	case refusedByTLS(err):
		return false, nil
	}
	return false, fmt.Errorf("hear from %s: %w", address, err)
}

// refusedByTLS reports whether the other side refused the handshake.
func refusedByTLS(err error) bool {
	var operation *net.OpError
	return errors.As(err, &operation) && operation.Op == "remote error"
}
