package web

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
)

// TestSession goes through the form, and back.
func TestSession(t *testing.T) {
	w := newWorld(t, busy()...)
	w.user("t", `ada<script>"`, "nodes")
	answer := w.post("token=t", nil)
	set := answer.Header().Get("Set-Cookie")
	if answer.Code != http.StatusSeeOther || answer.Header().Get("Location") != "./" {
		t.Fatalf("%d %v", answer.Code, answer.Header())
	}
	for _, word := range []string{"HttpOnly", "Secure", "SameSite=Strict", "Max-Age=3600"} {
		if !strings.Contains(set, word) {
			t.Errorf("the cookie lacks %s: %s", word, set)
		}
	}
	if strings.Contains(set, "Path=") || strings.Contains(set, "Domain=") {
		t.Errorf("the cookie leaves its prefix: %s", set)
	}
	value := answer.Result().Cookies()[0].Value
	with := func(value string) *httptest.ResponseRecorder {
		return w.ask(http.MethodGet, "/", http.Header{"Cookie": {cookieName + "=" + value}}, "")
	}
	page := with(value).Body.String()
	if !strings.Contains(page, "n1") || !strings.Contains(page, "Forget my token") || strings.Contains(page, "<script>\"") {
		t.Errorf("%s", page)
	}
	// What was changed, cut or made by others is none.
	flipped := []byte(value)
	for i := range flipped {
		flipped[i] ^= 1
		if a := with(string(flipped)); strings.Contains(a.Body.String(), "n1") || !strings.Contains(a.Header().Get("Set-Cookie"), "Max-Age=0") {
			t.Fatalf("a cookie with another letter %d is taken", i)
		}
		flipped[i] ^= 1
	}
	other := newWorld(t)
	other.pages.sessions.certificate = newKey(t)
	foreign, err := other.pages.sessions.seal("t")
	if err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{value[:len(value)-4], "", "t", foreign, strings.Repeat("A", 5000)} {
		if strings.Contains(with(bad).Body.String(), "n1") {
			t.Errorf("taken: %.40s", bad)
		}
	}
	// Another replica with the certificate opens it, until it ends.
	replica := newWorld(t, busy()...)
	replica.pages.sessions.certificate = w.pages.sessions.certificate
	if token, err := replica.pages.sessions.open(value); err != nil || token != "t" {
		t.Errorf("a replica: %v", err)
	}
	w.passes(sessionLife)
	if strings.Contains(with(value).Body.String(), "n1") {
		t.Error("a cookie that has ended is taken")
	}
	if a := w.post("token=", nil); a.Code != http.StatusSeeOther || !strings.Contains(a.Header().Get("Set-Cookie"), "Max-Age=0") {
		t.Errorf("to forget: %v", a.Header())
	}
}

// TestSessionRefuses posts what no form of ours does.
func TestSessionRefuses(t *testing.T) {
	w := newWorld(t)
	w.user("t", "ada", "nodes")
	large := strings.Repeat("x", 6000)
	w.user(large, "ada", "nodes")
	for name, c := range map[string]struct {
		body   string
		header http.Header
		want   int
	}{
		"another site":          {"token=t", http.Header{"Sec-Fetch-Site": {"cross-site"}}, http.StatusForbidden},
		"a neighbour":           {"token=t", http.Header{"Sec-Fetch-Site": {"same-site"}}, http.StatusForbidden},
		"no browser":            {"token=t", http.Header{}, http.StatusForbidden},
		"another origin":        {"token=t", http.Header{"Origin": {"https://evil.example"}}, http.StatusForbidden},
		"an origin of nothing":  {"token=t", http.Header{"Origin": {"null"}}, http.StatusForbidden},
		"the origin":            {"token=t", http.Header{"Origin": {"https://example.com"}}, http.StatusSeeOther},
		"the proxy's origin":    {"token=t", http.Header{"Origin": {"https://api:6443"}, "X-Forwarded-Host": {"api:6443"}}, http.StatusSeeOther},
		"an unknown token":      {"token=unknown", nil, http.StatusUnauthorized},
		"a form without end":    {"token=" + strings.Repeat("x", longestForm+1), nil, http.StatusBadRequest},
		"a token of many bytes": {"token=" + large, nil, http.StatusRequestEntityTooLarge},
	} {
		if a := w.post(c.body, c.header); a.Code != c.want || (a.Code != http.StatusSeeOther && a.Header().Get("Set-Cookie") != "") {
			t.Errorf("%s: %d %s", name, a.Code, a.Body)
		}
	}
	if a := w.get("/session?token="+url.QueryEscape("t"), ""); a.Code != http.StatusMethodNotAllowed {
		t.Errorf("GET: %d", a.Code)
	}
	if a := w.post("", nil); a.Code != http.StatusSeeOther {
		t.Errorf("an empty form: %d", a.Code)
	}
}
