package web

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/divvy-gpu/divvy/internal/webpage"
)

const (
	// cookieName is the cookie's. It has no path: a browser returns it below the address of the page that set it, so that
	// other services behind an API server's proxy are not sent it.
	cookieName = "divvy-session"
	// sessionLife is how long a cookie holds. The token in it may end before.
	sessionLife = time.Hour
	// longestCookie is what browsers keep of one.
	longestCookie = 4000
	// longestForm bounds what is posted, in bytes: a token with each byte escaped.
	longestForm = 3*longestToken + 64
	// sealed binds keys and cookies to their purpose.
	sealed = "divvy web session v1"
)

var (
	errNoSession = errors.New("the cookie is no session's, or has ended")
	errTooLong   = errors.New("the token is too long for a cookie")
)

// sessions seals tokens into cookies. Replicas with one certificate open each other's.
type sessions struct {
	certificate func() (*tls.Certificate, error)
	now         func() time.Time
}

// box makes the cipher of the certificate's key. With the certificate it changes, and sessions end.
func (s *sessions) box() (cipher.AEAD, error) {
	certificate, err := s.certificate()
	if err != nil {
		return nil, err
	}
	secret, err := x509.MarshalPKCS8PrivateKey(certificate.PrivateKey)
	if err != nil {
		return nil, fmt.Errorf("encode the certificate's key: %w", err)
	}
	key, err := hkdf.Key(sha256.New, secret, nil, sealed, sha256.Size)
	if err != nil {
		return nil, fmt.Errorf("derive a key for cookies: %w", err)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, fmt.Errorf("make a cipher for cookies: %w", err)
	}
	return cipher.NewGCMWithRandomNonce(block) //nolint:wrapcheck // the only error is of another block's size
}

// seal makes the value of a cookie with a token and its end. The error is errTooLong for a token that no cookie holds.
func (s *sessions) seal(token string) (string, error) {
	box, err := s.box()
	if err != nil {
		return "", err
	}
	text := binary.BigEndian.AppendUint64(nil, uint64(s.now().Add(sessionLife).Unix())) //nolint:gosec // after 1970
	value := base64.RawURLEncoding.EncodeToString(box.Seal(nil, nil, append(text, token...), []byte(sealed)))
	if len(value) > longestCookie {
		return "", errTooLong
	}
	return value, nil
}

// open returns the token in a cookie's value. The error is errNoSession for any that was not sealed here, or has ended.
func (s *sessions) open(value string) (string, error) {
	if len(value) > longestCookie {
		return "", errNoSession
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(value)
	if err != nil {
		return "", errNoSession
	}
	box, err := s.box()
	if err != nil {
		return "", err
	}
	const head = 8
	text, err := box.Open(nil, nil, raw, []byte(sealed))
	if err != nil || len(text) < head {
		return "", errNoSession
	}
	if end := binary.BigEndian.Uint64(text); uint64(max(0, s.now().Unix())) >= end { //nolint:gosec // not negative
		return "", errNoSession
	}
	return string(text[head:]), nil
}

// cookie is one with a value, or one that removes it.
func cookie(value string) *http.Cookie {
	c := &http.Cookie{Name: cookieName, Value: value, MaxAge: int(sessionLife / time.Second), HttpOnly: true, Secure: true, SameSite: http.SameSiteStrictMode}
	if value == "" {
		c.MaxAge = -1
	}
	return c
}

// session takes the token of a form, and leads back to the page with a cookie; without a token it removes the cookie.
func (p *Pages) session(w http.ResponseWriter, r *http.Request) {
	webpage.Headers(w.Header(), true)
	switch {
	case r.Method != http.MethodPost:
		w.Header().Set("Allow", "POST")
		http.Error(w, "a token is posted here", http.StatusMethodNotAllowed)
		return
	case !sameOrigin(r):
		http.Error(w, "a token is taken from the form of this page alone", http.StatusForbidden)
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, longestForm)
	if err := r.ParseForm(); err != nil { // whose text may have a part of the token
		http.Error(w, "this is no form with a token", http.StatusBadRequest)
		return
	}
	token := r.PostForm.Get("token")
	if token == "" {
		p.lead(w, "")
		return
	}
	found, err := p.readers.find(r.Context(), token, p.namespaces)
	if err != nil {
		p.unsure(w, r, err)
		return
	}
	if !found.known {
		http.Error(w, "the cluster does not take this token: go back and give another", http.StatusUnauthorized)
		return
	}
	value, err := p.sessions.seal(token)
	switch {
	case errors.Is(err, errTooLong):
		http.Error(w, "this token is too long for a browser to keep: use divvy ls --cluster", http.StatusRequestEntityTooLarge)
	case err != nil:
		p.unsure(w, r, err)
	default:
		p.lead(w, value)
	}
}

// lead sends a browser to the first page, by a way that holds below any prefix.
func (p *Pages) lead(w http.ResponseWriter, value string) {
	http.SetCookie(w, cookie(value))
	w.Header().Set("Location", "./")
	w.WriteHeader(http.StatusSeeOther)
}

// sameOrigin reports whether a page of the same origin posts: browsers say so, and those that do not name the origin. The
// API server's proxy tells by which name it was asked.
func sameOrigin(r *http.Request) bool {
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" {
		return site == "same-origin"
	}
	origin, err := url.Parse(r.Header.Get("Origin"))
	return err == nil && origin.Host != "" && (origin.Host == r.Host || origin.Host == r.Header.Get("X-Forwarded-Host"))
}
