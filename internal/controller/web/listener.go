package web

import (
	"crypto/tls"
	"net"
	"net/http"

	"github.com/divvy-gpu/divvy/internal/listener"
)

// mostConnections bounds those that are open. An API server's proxy has a hundred browsers behind one, but opens one for each
// of those that come at the same moment. One peer may have all that nobody else needs: a pod that opens as many as it can drives
// out its own, and no API server's.
const mostConnections = 640

// note is for [http.Server.ConnState].
func note(conn net.Conn, state http.ConnState) {
	secured, ok := conn.(*tls.Conn)
	if !ok {
		return
	}
	if c, ok := secured.NetConn().(*listener.Connection); ok {
		c.Busy(state == http.StateActive)
	}
}
