package identity

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"strings"
	"testing"
	"time"
)

// bundleOf is a bundle with a certificate that is made by a template, and for which a key may be given.
func (a *Authority) bundleOf(t *testing.T, template *x509.Certificate, key crypto.Signer) *Bundle {
	t.Helper()
	b := &Bundle{Hosts: []string{"gpu1"}, authority: a.certificate, key: key}
	var err error
	if key == nil {
		b.certificate, b.key, err = sign(template, a.certificate, a.key)
	} else {
		b.certificate, err = signKey(template, a.certificate, a.key, key)
	}
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// serverOf is what a server accepts that shows a certificate made by a template.
func (a *Authority) serverOf(t *testing.T, template *x509.Certificate) *tls.Config {
	t.Helper()
	b := a.bundleOf(t, template, nil)
	return ServerConfig(a.certificate, func() (*tls.Certificate, error) {
		return &tls.Certificate{Certificate: [][]byte{b.certificate.Raw}, PrivateKey: b.key}, nil
	})
}

func newAuthority(t *testing.T) *Authority {
	t.Helper()
	a, err := NewAuthority(authorityFor)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// foreign is an authority of another make: with a key of RSA, and the same names.
func foreign(t *testing.T) *Authority {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := signKey(authorityTemplate(time.Now(), authorityFor), nil, nil, key)
	if err != nil {
		t.Fatal(err)
	}
	return &Authority{certificate: certificate, key: key}
}

// wrong is a pair of sides of which one is not what it should be.
type wrong struct {
	server *tls.Config
	client *tls.Config
	bundle *Bundle
	// want is what the client says, log what the server does.
	want, log string
}

// bent is a client's configuration that is changed.
func bent(b *Bundle, host string, change func(*tls.Config)) *tls.Config {
	config := b.Config(host)
	change(config)
	return config
}

func wrongSides(t *testing.T) map[string]wrong {
	a, other := newAuthority(t), foreign(t)
	now := time.Now()
	hosts := []string{"gpu1", "10.0.0.5"}
	server := a.serverOf(t, serverTemplate(hosts, now, now.Add(time.Hour)))
	good := a.bundleOf(t, clientTemplate("ada", now, now.Add(time.Hour)), nil)
	expired := a.bundleOf(t, clientTemplate("ada", now.Add(-48*time.Hour), now.Add(-time.Hour)), nil)
	early := a.bundleOf(t, clientTemplate("ada", now.Add(3*time.Hour), now.Add(9*time.Hour)), nil)
	strange := other.bundleOf(t, clientTemplate("ada", now, now.Add(time.Hour)), nil)
	strange.authority = a.certificate // it believes the server
	asClient := a.bundleOf(t, serverTemplate(hosts, now, now.Add(time.Hour)), nil)
	self, err := NewAuthority(time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	own := &Bundle{authority: a.certificate, certificate: self.certificate, key: self.key}
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	foreignKey := other.bundleOf(t, clientTemplate("ada", now, now.Add(time.Hour)), key)
	foreignKey.authority = a.certificate
	old := server.Clone()
	old.MinVersion, old.MaxVersion = tls.VersionTLS12, tls.VersionTLS12
	elsewhere := server.Clone()
	elsewhere.NextProtos = []string{"divvy-remote/2"}
	silent := server.Clone()
	silent.NextProtos, silent.VerifyConnection = nil, nil
	const renew, again = "`divvy serve init --renew`", "`divvy serve admit ada`"
	return map[string]wrong{
		"expired client":               {server, expired.Config("gpu1"), expired, "have `divvy serve admit ada` run there again", "`divvy serve admit` renews it"},
		"client that is not yet valid": {server, early.Config("gpu1"), early, "compare the clocks", "valid from"},
		"client of another authority":  {server, strange.Config("gpu1"), strange, again, "of another authority"},
		"client with a foreign key":    {server, foreignKey.Config("gpu1"), foreignKey, again, "of another authority"},
		"client that signed itself":    {server, own.Config("gpu1"), own, "does not know the certificate", "of another authority"},
		"a server as client":           {server, asClient.Config("gpu1"), asClient, "does not know the certificate", "not a client's"},
		"no certificate":               {server, bent(good, "gpu1", func(c *tls.Config) { c.Certificates = nil }), good, "certificate required", "didn't provide a certificate"},
		"another protocol":             {server, bent(good, "gpu1", func(c *tls.Config) { c.NextProtos = []string{"h2"} }), good, "use the same version of Divvy", "application protocol"},
		"no protocol":                  {server, bent(good, "gpu1", func(c *tls.Config) { c.NextProtos = nil }), good, "does not speak", ""},
		"TLS 1.2 from the client":      {server, bent(good, "gpu1", func(c *tls.Config) { c.MinVersion, c.MaxVersion = tls.VersionTLS12, tls.VersionTLS12 }), good, "use the same version of Divvy", "unsupported versions"},
		"TLS 1.2 of the server":        {old, good.Config("gpu1"), good, "use the same version of Divvy", "unsupported versions"},
		"another protocol there":       {elsewhere, good.Config("gpu1"), good, "use the same version of Divvy", "application protocol"},
		"no protocol there":            {silent, good.Config("gpu1"), good, "does not speak divvy-remote/1", ""},
		"another name":                 {server, good.Config("gpu2"), good, "for gpu1, 10.0.0.5: use one of these", ""},
		"another address":              {server, good.Config("10.0.0.6"), good, "for gpu1, 10.0.0.5: use one of these", ""},
		"expired server":               {a.serverOf(t, serverTemplate(hosts, now.Add(-48*time.Hour), now.Add(-time.Hour))), good.Config("gpu1"), good, renew, ""},
		"server that is not yet valid": {a.serverOf(t, serverTemplate(hosts, now.Add(3*time.Hour), now.Add(9*time.Hour))), good.Config("gpu1"), good, "compare the clocks", ""},
		"server of another authority":  {other.serverOf(t, serverTemplate(hosts, now, now.Add(time.Hour))), good.Config("gpu1"), good, again, ""},
		"a client as server":           {a.serverOf(t, withHosts(clientTemplate("gpu1", now, now.Add(time.Hour)), hosts)), good.Config("gpu1"), good, "is not a server's", ""},
	}
}

// withHosts gives a client's certificate the names of a server.
func withHosts(template *x509.Certificate, hosts []string) *x509.Certificate {
	names := serverTemplate(hosts, time.Now(), time.Now())
	template.DNSNames, template.IPAddresses = names.DNSNames, names.IPAddresses
	return template
}

func TestWrongSides(t *testing.T) {
	for name, c := range wrongSides(t) {
		t.Run(name, func(t *testing.T) {
			state, atServer, atClient := shake(t, c.server, c.client)
			if atClient == nil {
				t.Fatal("the handshake succeeded")
			}
			if got := c.bundle.Explain("gpu1", atClient); !strings.Contains(got.Error(), c.want) {
				t.Errorf("the client says %q", got)
			}
			if c.log != "" && (atServer == nil || !strings.Contains(ExplainClient(atServer).Error(), c.log)) {
				t.Errorf("the server says %v", atServer)
			}
			if who, err := Client(state); c.log != "" && err == nil {
				t.Errorf("the server knows client %s", who)
			}
		})
	}
}

// Errors of other kinds stay as they are.
func TestExplainOther(t *testing.T) {
	b := newAuthority(t).bundleOf(t, clientTemplate("ada", time.Now(), time.Now()), nil)
	for _, err := range []error{nil, net.ErrClosed, errors.New("x"), &net.OpError{Op: "read", Err: errors.New("bad certificate")}} {
		if got := b.Explain("gpu1", err); !errors.Is(got, err) || got != nil && got.Error() != err.Error() {
			t.Errorf("%v became %v", err, got)
		}
		if got := ExplainClient(err); !errors.Is(got, err) || got != nil && got.Error() != err.Error() {
			t.Errorf("%v became %v", err, got)
		}
	}
}
