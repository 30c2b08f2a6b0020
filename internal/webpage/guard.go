package webpage

import (
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// policy is what a page may load and do: what comes from where it came from, and nothing written into it.
const policy = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self'; base-uri 'none'; frame-ancestors 'none'; form-action "

// Headers sets those that keep a browser from doing more with an answer than to show it. Pages may post forms if form is
// true.
func Headers(h http.Header, form bool) {
	action := "'none'"
	if form {
		action = "'self'"
	}
	h.Set("Content-Security-Policy", policy+action)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
}

// Guard sets [Headers], and refuses what changes things and what another site's page asks for. It reports whether to go on.
func Guard(w http.ResponseWriter, r *http.Request, form bool) bool {
	Headers(w.Header(), form)
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "these pages only show things: GET or HEAD", http.StatusMethodNotAllowed)
		return false
	}
	// Browsers say so themselves. Who follows a link is not kept away.
	if site := r.Header.Get("Sec-Fetch-Site"); (site == "cross-site" || site == "same-site") && r.Header.Get("Sec-Fetch-Mode") != "navigate" {
		http.Error(w, "another site's page asks for this", http.StatusForbidden)
		return false
	}
	return true
}

// Local reports whether a Host header names this machine for itself: localhost, or an address of the loopback interface,
// or one of the given names, with any port. A page of another site, whose name was made to lead here, names that site.
func Local(host string, names []string) bool {
	name := strings.ToLower(hostOf(host))
	if name == "localhost" || slices.Contains(names, name) && name != "" {
		return true
	}
	address, err := netip.ParseAddr(name)
	return err == nil && address.Zone() == "" && address.Unmap().IsLoopback()
}

// hostOf is a Host header without its port, "" where it is not one.
func hostOf(host string) string {
	if bracketed, ok := strings.CutPrefix(host, "["); ok && strings.HasSuffix(bracketed, "]") {
		return strings.TrimSuffix(bracketed, "]")
	}
	if strings.Count(host, ":") == 0 {
		return host
	}
	name, port, err := net.SplitHostPort(host)
	if err != nil || port == "" || strings.Trim(port, "0123456789") != "" {
		return ""
	}
	return name
}
