package webpage

import (
	"net/http"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/divvy-gpu/divvy/internal/overview"
)

// hostile are texts that somebody may choose for a name.
var hostile = []string{
	`<script>alert(1)</script>`, `"><img src=x onerror=alert(1)>`, `' onmouseover='alert(1)`, `</title></table></main><h1>owned</h1>`,
	`{{.Config}}`, "javascript:alert(1)", "\x1b[2J\x1b]0;owned\x07", "\xff\xfe\x00nul", "a\u202egnp.exe", "&lt;b&gt;", "--><svg onload=alert(1)>",
	strings.Repeat("<b>megabyte</b>", 1<<20/15),
}

func poisoned(text string) *overview.Overview {
	o := machine()
	o.Hidden = text
	n := &o.Nodes[0]
	n.Name, n.Notes = text, []string{text}
	n.Outside[0].User, n.Outside[0].Command = text, text
	for i := range n.GPUs {
		g := &n.GPUs[i]
		g.UUID, g.Device, g.Model, g.Profile, g.Fault = text, text, text, text, text
		for j := range g.Shares {
			s := &g.Shares[j]
			s.Name, s.User, s.Command, s.Container, s.Notes = text, text, text, text, []string{text}
		}
	}
	n.GPUs[0].Shares[1].Namespace, n.GPUs[0].Shares[1].Pods = text, []string{text, text}
	o.Waiting = []overview.Waiting{{User: text, Reason: text}, {Namespace: text, Name: text, Reason: text}}
	return o
}

func TestNoTextIsMarkup(t *testing.T) {
	for _, text1 := range hostile {
		for _, cluster := range []bool{false, true} {
			s := site(t, Config{Of: text1, Cluster: cluster, Every: time.Hour}, func() (*overview.Overview, error) { return poisoned(text1), nil })
			for _, path := range []string{"/", "/?part"} {
				answer := ask(s, http.MethodGet, path)
				page := text(t, answer)
				if answer.StatusCode != http.StatusOK {
					t.Errorf("%.30q: status %d", text1, answer.StatusCode)
				}
				for _, bad := range []string{"<script>", "<img", "<b>mega", "<svg onload", "<h1>owned", "onerror=alert(1)>", "' onmouseover", "\x1b", "\x07", "\x00", "\u202e", `href="javascript:`} {
					if strings.Contains(page, bad) {
						t.Errorf("%.30q: the page has %q", text1, bad)
					}
				}
				if !utf8.ValidString(page) {
					t.Errorf("%.30q: the page is no UTF-8", text1)
				}
				if len(page) > 64<<10 {
					t.Errorf("%.30q: the page has %d bytes", text1, len(page))
				}
			}
		}
	}
}

func TestHostsThatAreTaken(t *testing.T) {
	for host, want := range map[string]bool{
		"localhost": true, "localhost:9410": true, "LocalHost:1": true, "127.0.0.1": true, "127.0.0.1:9410": true, "127.8.9.1": true,
		"[::1]": true, "[::1]:9410": true, "[::ffff:127.0.0.1]:9410": true, "gpu1.example.org": true, "gpu1.example.org:80": true,
		"": false, ":9410": false, "127.0.0.1.evil.com": false, "evil.com": false, "localhost.evil.com": false, "evil.com:9410": false,
		"10.0.0.1:9410": false, "0.0.0.0:9410": false, "[::]:9410": false, "[::1%lo]:9410": false, "127.0.0.1:evil": false, "127.0.0.1:9410:1": false,
		"user@127.0.0.1": false, "127.1": false, "2130706433": false, "localhost.": false, "127.0.0.1@evil.com": false, "[::1": false, "gpu1.example.org.evil.com": false,
	} {
		if got := Local(host, []string{"gpu1.example.org"}); got != want {
			t.Errorf("%q: %v", host, got)
		}
	}
	if Local("", []string{""}) {
		t.Error("no name is a name")
	}
}
