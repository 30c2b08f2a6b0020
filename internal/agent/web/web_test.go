package web

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/agent/exposition"
	"github.com/divvy-gpu/divvy/internal/nvml"
	"github.com/divvy-gpu/divvy/internal/overview"
)

const (
	ada = 1001
	bob = 1002
)

func user(uid int) string {
	return map[int]string{0: "root", ada: "ada", bob: "bob"}[uid]
}

type source struct{ *control.Listing }

func (s source) Recent(context.Context) (*control.Listing, error) { return s.Listing, nil }

// listing has a share of each user's, a process without one, and who waits.
func listing() *control.Listing {
	l := &control.Listing{
		Time:    time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC),
		GPUs:    []control.GPU{{Index: 3, UUID: "GPU-3", Name: "H100", Capacity: 80 << 30, Granted: 24 << 30, Used: new(uint64(9 << 30)), Cores: 50, Reading: &nvml.Reading{Utilisation: new(70)}}},
		LeftOut: []int{4},
		Outside: []control.Outside{{PID: 7, User: "bob", Command: "outside-bob", UUID: "GPU-3"}, {PID: 8, Command: "outside-nobody", UUID: "GPU-3"}},
	}
	for _, uid := range []int{ada, bob} {
		l.Tenants = append(l.Tenants, control.Tenant{Name: "share-" + user(uid), UID: uid, User: user(uid), Command: []string{"/usr/bin/python", "--secret=" + user(uid)}, Shares: []control.Share{{UUID: "GPU-3", Limit: 12 << 30, Used: 1}}})
		w := control.Waiting{User: user(uid), Reason: "reason-" + user(uid)}
		w.Request.Name = "wait-" + user(uid)
		l.Waiting = append(l.Waiting, w)
	}
	return l
}

// served are pages at an address.
func served(t *testing.T, address string, c Config) (*Pages, string) {
	t.Helper()
	var config net.ListenConfig
	listener, err := config.Listen(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	if c.Source == nil {
		c.Source = source{listing()}
	}
	c.Node, c.User, c.Now, c.Log = "gpu1", user, time.Now, slog.New(slog.DiscardHandler)
	p := New(c)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	others := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "others "+r.URL.Path) })
	handler := p.Beside(listener, others)
	go func() { ended <- exposition.Serve(ctx, listener, handler) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return p, listener.Addr().String()
}

// get asks as a browser that follows nothing.
func get(t *testing.T, method, address, host string) (status int, body, location string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, address, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	r.Host = host
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	answer, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	if answer.Header.Get("Set-Cookie") != "" {
		t.Errorf("%s: a cookie", address)
	}
	return answer.StatusCode, string(text), answer.Header.Get("Location")
}

// own opens a user's link and returns the page's address.
func own(t *testing.T, p *Pages, uid int) string {
	t.Helper()
	link, err := p.Link(uid)
	if err != nil {
		t.Fatal(err)
	}
	status, _, location := get(t, "GET", link, "")
	if status != http.StatusSeeOther || !strings.HasPrefix(location, "/s/") {
		t.Fatalf("status %d, location %s", status, location)
	}
	return link[:strings.Index(link, "/open/")] + location
}

func TestWhoSeesWhat(t *testing.T) {
	p, address := served(t, "127.0.0.1:0", Config{})
	pages := map[string]string{"anybody": "http://" + address + "/", "ada": own(t, p, ada), "bob": own(t, p, bob), "root": own(t, p, 0), "a stranger": own(t, p, 4000)}
	for who, page := range pages {
		for _, path := range []string{"", "?part", "overview.json"} {
			status, body, _ := get(t, "GET", page+path, "")
			if status != http.StatusOK {
				t.Errorf("%s%s: status %d", who, path, status)
			}
			for _, of := range []string{"ada", "bob"} {
				for _, text := range []string{"share-" + of, "--secret=" + of, "wait-" + of, "reason-" + of} {
					if sees := strings.Contains(body, text); sees != (who == of || who == "root") {
						t.Errorf("%s%s: sees %s: %v", who, path, text, sees)
					}
				}
			}
			if sees := strings.Contains(body, "outside-bob"); sees != (who == "bob" || who == "root") {
				t.Errorf("%s%s: sees the process of bob: %v", who, path, sees)
			}
			if sees := strings.Contains(body, "outside-nobody"); sees != (who == "root") {
				t.Errorf("%s%s: sees the process of nobody: %v", who, path, sees)
			}
		}
		_, body, _ := get(t, "GET", page+"overview.json", "")
		var o overview.Overview
		if err := json.Unmarshal([]byte(body), &o); err != nil || o.Check() != nil {
			t.Fatal(err, o.Check())
		}
		g := o.Nodes[0].GPUs[0]
		if g.Count != 2 || g.Granted != 24<<30 || *g.Used != 9<<30 || *g.Utilisation != 70 || len(o.Nodes[0].Notes) != 1 {
			t.Errorf("%s: sums: %+v", who, o.Nodes[0])
		}
	}
}

func TestLinksAreSecretsThatEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSecrets(time.Now)
		link := s.invite(ada)
		page, ok := s.open(link)
		if !ok || page == link {
			t.Fatal("a link cannot be opened, or is the page")
		}
		if _, ok := s.open(link); ok {
			t.Error("a link works twice")
		}
		if _, ok := s.open(page); ok {
			t.Error("a page is a link")
		}
		if _, ok := s.reader(link); ok {
			t.Error("a link is a page")
		}
		for _, guess := range []string{"", "/", page[:len(page)-1], page + "x", strings.ToUpper(page)} {
			if _, ok := s.reader(guess); ok {
				t.Errorf("%q is taken", guess)
			}
		}
		late := s.invite(ada)
		time.Sleep(linkLife) //nolint:forbidigo // the clock is the bubble's
		if _, ok := s.open(late); ok {
			t.Error("an old link works")
		}
		for range 7 {
			if uid, ok := s.reader(page); !ok || uid != ada {
				t.Fatal("a page that is looked at ends")
			}
			time.Sleep(idleLife - time.Minute) //nolint:forbidigo // the clock is the bubble's
		}
		if _, ok := s.reader(page); ok {
			t.Error("a page lasts for ever")
		}
		unused, _ := s.open(s.invite(bob))
		time.Sleep(idleLife + time.Second) //nolint:forbidigo // the clock is the bubble's
		if _, ok := s.reader(unused); ok {
			t.Error("a page lasts at which nobody looks")
		}
	})
}

func TestAUserHasAFewLinks(t *testing.T) {
	s := newSecrets(time.Now)
	others := s.invite(bob)
	var links []string
	for range 10 * mostOfUser {
		links = append(links, s.invite(ada))
	}
	slices.Reverse(links)
	worked := 0
	for _, link := range links {
		if _, ok := s.open(link); ok {
			worked++
		}
	}
	if worked != mostOfUser {
		t.Errorf("%d links of one user work", worked)
	}
	if _, ok := s.open(others); !ok {
		t.Error("a user takes links from another")
	}
}

// A browser that is told of a page's changes is told no more once the page has ended.
func TestStreamsEndWithTheirPage(t *testing.T) {
	p, _ := served(t, "127.0.0.1:0", Config{})
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, own(t, p, ada)+"?events", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	for range mostOfUser {
		p.secrets.open(p.secrets.invite(ada)) // the oldest page ends
	}
	if _, err := io.Copy(io.Discard, answer.Body); err != nil {
		t.Error(err)
	}
}

func TestHeadersAloneUseNoLink(t *testing.T) {
	p, _ := served(t, "127.0.0.1:0", Config{})
	link, err := p.Link(ada)
	if err != nil {
		t.Fatal(err)
	}
	for _, method := range []string{"HEAD", "POST", "OPTIONS"} {
		get(t, method, link, "")
	}
	if status, _, _ := get(t, "GET", link, ""); status != http.StatusSeeOther {
		t.Errorf("status %d", status)
	}
	if status, _, _ := get(t, "GET", link, ""); status != http.StatusNotFound {
		t.Errorf("used again: status %d", status)
	}
}

func TestTheHostIsThisMachine(t *testing.T) {
	_, address := served(t, "127.0.0.1:0", Config{Hosts: []string{"gpu1.example.org"}})
	_, port, _ := net.SplitHostPort(address)
	for _, c := range []struct {
		path, host string
		status     int
	}{
		{"/", address, 200}, {"/", "localhost:" + port, 200}, {"/", "localhost:8080", 200}, {"/", "gpu1.example.org", 200}, {"/", "[::1]:1", 200},
		{"/", "127.0.0.1.evil.com", 421}, {"/", "evil.com:" + port, 421}, {"/overview.json", "evil.com", 421}, {"/open/x", "evil.com", 421}, {"/s/x/", "evil.com", 421},
		{"/metrics", "evil.com", 421}, {"/metrics", "localhost", 200}, {"/healthz", "10.0.0.1:9410", 200}, {"/s/unknown/", "localhost", 404}, {"/open/unknown", "localhost", 404},
	} {
		if status, body, _ := get(t, "GET", "http://"+address+c.path, c.host); status != c.status {
			t.Errorf("%s by %s: status %d: %s", c.path, c.host, status, body)
		}
	}
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "GET / HTTP/1.0\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if text, _ := io.ReadAll(conn); !strings.HasPrefix(string(text), "HTTP/1.0 421 ") {
		t.Errorf("no host: %s", text)
	}
}

func TestOtherMachinesSeeNoPage(t *testing.T) {
	p, address := served(t, "0.0.0.0:0", Config{})
	_, port, _ := net.SplitHostPort(address)
	link, err := p.Link(ada)
	if err != nil || !strings.HasPrefix(link, "http://127.0.0.1:"+port+"/open/") {
		t.Errorf("%s, %v", link, err)
	}
	if status, body, _ := get(t, "GET", "http://127.0.0.1:"+port+"/", ""); status != 200 || !strings.Contains(body, "<h1>") {
		t.Errorf("from this machine: %d %s", status, body)
	}
	if status, _, _ := get(t, "GET", "http://127.0.0.1:"+port+"/", "evil.com"); status != http.StatusMisdirectedRequest {
		t.Errorf("another site's page: %d", status)
	}
	if status, _, _ := get(t, "GET", "http://127.0.0.1:"+port+"/metrics", "gpu1"); status != 200 {
		t.Errorf("a scraper that knows the machine by a name: %d", status)
	}
	outer := outerAddress(t)
	if _, body, _ := get(t, "GET", "http://"+net.JoinHostPort(outer, port)+"/", "localhost"); body != "others /" {
		t.Errorf("by the machine's own address: %s", body)
	}
}

// outerAddress is one of the machine's that is not the loopback interface's.
func outerAddress(t *testing.T) string {
	t.Helper()
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addresses {
		if of, ok := a.(*net.IPNet); ok && of.IP.To4() != nil && !of.IP.IsLoopback() {
			return of.IP.String()
		}
	}
	t.Skip("this machine has the loopback interface alone")
	return ""
}

func TestThePageCanBeOff(t *testing.T) {
	p, address := served(t, "127.0.0.1:0", Config{Off: true})
	if _, err := p.Link(ada); control.CodeOf(err) != control.CodeRefused || !strings.Contains(err.Error(), "web: {enabled: true}") {
		t.Errorf("a link: %v", err)
	}
	if _, err := New(Config{Now: time.Now}).Link(ada); control.CodeOf(err) != control.CodeRefused || !strings.Contains(err.Error(), "divvy agent --metrics-address 127.0.0.1:9410") {
		t.Errorf("a link where none is served: %v", err)
	}
	if _, body, _ := get(t, "GET", "http://"+address+"/", ""); body != "others /" {
		t.Errorf("a page: %s", body)
	}
	if status, _, _ := get(t, "GET", "http://"+address+"/metrics", "evil.com"); status != http.StatusMisdirectedRequest {
		t.Errorf("metrics: status %d", status)
	}
}

func TestLargeRequestsAreRefused(t *testing.T) {
	_, address := served(t, "127.0.0.1:0", Config{})
	for _, request := range []string{
		"GET / HTTP/1.1\r\nHost: localhost\r\nCookie: " + strings.Repeat("x", 1<<20) + "\r\n\r\n",
		"GET /" + strings.Repeat("x", 1<<20) + " HTTP/1.1\r\nHost: localhost\r\n\r\n",
	} {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(conn, request) // it may be refused before it is read
		text := make([]byte, 64)
		n, _ := conn.Read(text)
		if got := string(text[:n]); got != "" && !strings.HasPrefix(got, "HTTP/1.1 431 ") {
			t.Errorf("%s", got)
		}
		_ = conn.Close()
	}
}

func TestForeignTextIsCut(t *testing.T) {
	long := strings.Repeat("\xff<b>", 1<<18)
	l := listing()
	t0 := &l.Tenants[0]
	t0.Name, t0.User, t0.Command, t0.Fault, t0.Namespace, t0.Container, t0.Pods = long, long, []string{long, long}, long, long, long, []string{long}
	l.Waiting[0].Reason, l.Waiting[0].User, l.Waiting[0].Request.Name = long, long, long
	l.Outside[0].Command, l.Outside[0].User, l.GPUs[0].Fault = long, long, long
	text, err := json.Marshal(overviewOf("gpu1", l, strconv.Itoa(0), user))
	if err != nil || len(text) > 128<<10 {
		t.Errorf("%d bytes, %v", len(text), err)
	}
}
