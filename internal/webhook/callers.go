package webhook

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"
)

// Callers are who may ask for reviews: whoever has a client certificate of one of these authorities, with one of these
// common names as its subject. The zero value is everybody.
type Callers struct {
	authorities *x509.CertPool
	names       []string
}

// NewCallers reads authorities, one or more certificates in PEM.
func NewCallers(authorities []byte, names []string) (Callers, error) {
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(authorities) {
		return Callers{}, errors.New("read the callers' authority: it holds no certificate in PEM")
	}
	if len(names) == 0 || slices.Contains(names, "") {
		return Callers{}, errors.New("name the callers: the authority may have signed other certificates too")
	}
	return Callers{authorities: pool, names: names}, nil
}

// everybody reports whether no certificate is asked for.
func (c Callers) everybody() bool { return c.authorities == nil }

// require has a TLS configuration refuse all others in the handshake.
func (c Callers) require(config *tls.Config) {
	if c.everybody() {
		return
	}
	config.ClientAuth, config.ClientCAs = tls.RequireAndVerifyClientCert, c.authorities
	config.VerifyConnection = func(state tls.ConnectionState) error {
		if name := state.PeerCertificates[0].Subject.CommonName; !slices.Contains(c.names, name) {
			return fmt.Errorf("the client's certificate is of %q, who may not ask for reviews", name)
		}
		return nil
	}
}

// unexpired serves requests of connections whose client certificate is still valid. What has begun before it expires is
// answered.
func (c Callers) unexpired(now func() time.Time, next http.Handler) http.Handler {
	if c.everybody() {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 || now().After(r.TLS.PeerCertificates[0].NotAfter) {
			w.Header().Set("Connection", "close")
			http.Error(w, "the client's certificate has expired: connect with a new one", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}
