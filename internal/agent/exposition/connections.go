package exposition

import (
	"context"
	"net"
	"net/http"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/listener"
)

const (
	// mostConnections is how many connections are open at once. A browser that shows the web page keeps one or two.
	mostConnections = 2048
	// partOfPeer is the part of them that one peer may have.
	partOfPeer = 8
)

// bounded leaves most descriptors to the agent's other work.
func bounded(l net.Listener) net.Listener {
	most := mostConnections
	var descriptors unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &descriptors) == nil {
		most = int(min(uint64(most), max(descriptors.Cur/4, 16)))
	}
	return listener.New(l, listener.Bounds{Most: most, Each: most / partOfPeer, Of: peerOf, Spared: rootPeer})
}

type connectionKey struct{}

// withConnection is for [http.Server.ConnContext].
func withConnection(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, connectionKey{}, conn)
}

// Peer says who asks by a request that [Serve] has: a user of this machine or another machine, "" for what is not known.
func Peer(r *http.Request) string {
	if conn, ok := r.Context().Value(connectionKey{}).(*listener.Connection); ok {
		return string(conn.Peer())
	}
	return ""
}

// noting marks connections whose requests are being answered.
func noting(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if conn, ok := r.Context().Value(connectionKey{}).(*listener.Connection); ok {
			conn.Busy(true)
			defer conn.Busy(false)
		}
		handler.ServeHTTP(w, r)
	})
}
