package webpage

import (
	"compress/gzip"
	"context"
	"errors"
	"flag"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/overview"
)

var update = flag.Bool("update", false, "rewrite goldens")

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// machine is one with a GPU of every kind.
func machine() *overview.Overview {
	o := overview.New(noon)
	held := 90 * time.Second
	o.Hidden = "You see sums of all shares, and none of them."
	o.Nodes = []overview.Node{{
		Name: "gpu1", Notes: []string{"GPU 2 is left out: the driver has not answered about it yet"},
		GPUs: []overview.GPU{
			{Index: new(0), UUID: "GPU-0", Model: "NVIDIA H100", Form: "slice", Capacity: 80 << 30, Granted: 24 << 30, Used: new(uint64(5 << 30)), Cores: 130, Utilisation: new(42), Temperature: new(61), Count: 3, Shares: []overview.Share{
				{Name: "train", User: "ada", Command: "python train.py", Since: noon.Add(-time.Hour), Memory: 16 << 30, Used: new(uint64(4 << 30)), Cores: 50, Percent: new(48.6), HeldBack: &held, Refused: 1, Policy: "fixed", Notes: []string{"it holds more than it may"}},
				{Name: "batch", User: "ada", Memory: 8 << 30, Policy: "weighted", Class: "offline"},
			}},
			{Index: new(1), UUID: "GPU-1", Model: "NVIDIA H100", Capacity: 80 << 30, Fault: "XID 79: it has fallen off the bus"},
		},
		Outside: []overview.Outside{{PID: 4711, User: "eve", Command: "hashcat", GPU: 0, Used: new(uint64(1 << 30))}},
	}}
	o.Waiting = []overview.Waiting{{User: "ada", Since: noon.Add(-time.Minute), Reason: "no GPU has 60Gi free"}}
	o.WaitingUnseen = 2
	return o
}

func clusterOf(nodes, gpus, shares int) *overview.Overview {
	o := overview.New(noon)
	for n := range nodes {
		node := overview.Node{Name: "node-" + string(rune('a'+n%26)) + "-" + time.Duration(n).String()}
		for g := range gpus {
			gpu := overview.GPU{Index: new(g), Device: "gpu", Model: "NVIDIA A100-SXM4-80GB", Form: "slice", Capacity: 80 << 30, Granted: uint64(n%80) << 30, Cores: n % 100, Count: shares}
			for range shares {
				gpu.Shares = append(gpu.Shares, overview.Share{Name: "claim", Namespace: "team", Pods: []string{"pod-0"}, Memory: 8 << 30, Cores: 10})
			}
			node.GPUs = append(node.GPUs, gpu)
		}
		o.Nodes = append(o.Nodes, node)
	}
	o.Waiting = []overview.Waiting{{Namespace: "team", Name: "pod-1", Reason: "no GPU has 100Gi"}}
	return o
}

// site serves an overview below /.
func site(t *testing.T, c Config, shown func() (*overview.Overview, error)) *Site {
	t.Helper()
	c.Version, c.Log = "0.1", slog.New(slog.NewTextHandler(t.Output(), nil))
	if c.Of == "" {
		c.Of = "gpu1"
	}
	c.Overview = func(context.Context, string) (*overview.Overview, error) { return shown() }
	return New(c)
}

// served is a server of it, stopped at the end of the test.
func served(t *testing.T, s *Site, tune func(*http.Server)) string {
	t.Helper()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.Answer(w, r, Reader{}, strings.TrimPrefix(r.URL.Path, "/"))
	}))
	if tune != nil {
		tune(server.Config)
	}
	server.Start()
	t.Cleanup(server.Close)
	return server.URL
}

func ask(s *Site, method, target string, header ...string) *http.Response {
	r := httptest.NewRequest(method, target, http.NoBody)
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	s.Answer(w, r, Reader{}, strings.TrimPrefix(r.URL.Path, "/"))
	return w.Result()
}

func text(t *testing.T, answer *http.Response) string {
	t.Helper()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

func TestPagesAreAsTheGoldens(t *testing.T) {
	always := func(o *overview.Overview) func() (*overview.Overview, error) {
		return func() (*overview.Overview, error) { return o, nil }
	}
	empty := overview.New(noon)
	empty.Nodes, empty.Hidden = nil, "You may see nothing."
	for _, c := range []struct {
		name, path string
		config     Config
		shown      *overview.Overview
	}{
		{"machine.html", "/", Config{Advice: "`divvy web` prints a link."}, machine()},
		{"machine-part.html", "/?part", Config{}, machine()},
		{"cluster.html", "/", Config{Cluster: true, Of: "the cluster"}, clusterOf(3, 2, 1)},
		{"node.html", "/node/node-a-0s", Config{Cluster: true, Of: "the cluster"}, clusterOf(1, 2, 2)},
		{"missing.html", "/node/other", Config{Cluster: true, Of: "the cluster"}, clusterOf(1, 2, 2)},
		{"form.html", "/", Config{Cluster: true, Of: "the cluster", Form: true}, empty},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.config.Every = time.Hour
			got := text(t, ask(site(t, c.config, always(c.shown)), http.MethodGet, c.path))
			golden := filepath.Join("testdata", c.name)
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("not as %s, which -update rewrites:\n%s", golden, got)
			}
		})
	}
}

func TestAnswersBindTheBrowser(t *testing.T) {
	s := site(t, Config{Every: time.Hour}, func() (*overview.Overview, error) { return machine(), nil })
	for _, c := range []struct {
		method, path string
		header       []string
		status       int
	}{
		{"GET", "/", nil, 200},
		{"HEAD", "/", nil, 200},
		{"GET", "/?anything", nil, 200},
		{"GET", "/overview.json", nil, 200},
		{"GET", "/style.css", nil, 200},
		{"GET", "/script.js", nil, 200},
		{"POST", "/", nil, 405},
		{"PUT", "/", nil, 405},
		{"OPTIONS", "/", nil, 405},
		{"DELETE", "/style.css", nil, 405},
		{"GET", "/page.html.tmpl", nil, 404},
		{"GET", "/assets/style.css", nil, 404},
		{"GET", "/../site.go", nil, 404},
		{"GET", "/%2e%2e/site.go", nil, 404},
		{"GET", "/cluster.json", nil, 404},
		{"GET", "/node/gpu1", nil, 404},
		{"GET", "/?part", []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "no-cors"}, 403},
		{"GET", "/?events", []string{"Sec-Fetch-Site", "same-site", "Sec-Fetch-Mode", "cors"}, 403},
		{"GET", "/", []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate"}, 200},
		{"GET", "/?part", []string{"Sec-Fetch-Site", "same-origin", "Sec-Fetch-Mode", "cors"}, 200},
	} {
		answer := ask(s, c.method, c.path, c.header...)
		if answer.StatusCode != c.status {
			t.Errorf("%s %s %q: status %d and not %d", c.method, c.path, c.header, answer.StatusCode, c.status)
		}
		csp := answer.Header.Get("Content-Security-Policy")
		if !strings.HasPrefix(csp, "default-src 'none';") || strings.Contains(csp, "unsafe") || !strings.HasSuffix(csp, "form-action 'none'") {
			t.Errorf("%s %s: policy %q", c.method, c.path, csp)
		}
		for header, want := range map[string]string{"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Set-Cookie": "", "Access-Control-Allow-Origin": ""} {
			if got := answer.Header.Get(header); got != want {
				t.Errorf("%s %s: %s is %q", c.method, c.path, header, got)
			}
		}
		if body := text(t, answer); c.method == "HEAD" && body != "" {
			t.Errorf("HEAD has a body: %q", body)
		}
	}
}

func TestWhatTheBrowserHasIsNotSentAgain(t *testing.T) {
	s := site(t, Config{Every: time.Hour}, func() (*overview.Overview, error) { return machine(), nil })
	first := ask(s, "GET", "/?part", "Accept-Encoding", "gzip, br")
	unpacked, err := gzip.NewReader(first.Body)
	if err != nil {
		t.Fatal(err)
	}
	small, err := io.ReadAll(unpacked)
	if err != nil || !strings.Contains(string(small), "python train.py") {
		t.Errorf("compressed: %v, %.100s", err, small)
	}
	again := ask(s, "GET", "/?part", "If-None-Match", first.Header.Get("ETag"))
	if again.StatusCode != http.StatusNotModified || text(t, again) != "" {
		t.Errorf("status %d", again.StatusCode)
	}
	if page := text(t, ask(s, "GET", "/")); !strings.Contains(page, `data-version=`+first.Header.Get("ETag")) {
		t.Error("the page does not name what it shows")
	}
}

func TestManyReadersShareOneRendering(t *testing.T) {
	s := site(t, Config{Every: time.Hour}, func() (*overview.Overview, error) { return machine(), nil })
	var asking sync.WaitGroup
	for range 500 {
		asking.Go(func() {
			if answer := ask(s, "GET", "/"); answer.StatusCode != http.StatusOK {
				t.Errorf("status %d", answer.StatusCode)
			}
		})
	}
	asking.Wait()
	if s.Rendered() != 1 {
		t.Errorf("%d renderings", s.Rendered())
	}
}

func TestRenderingsAreBounded(t *testing.T) {
	s := site(t, Config{Every: time.Hour, Cluster: true}, func() (*overview.Overview, error) { return clusterOf(1, 1, 0), nil })
	for i := range 3 * mostViews {
		ask(s, "GET", "/node/"+strings.Repeat("x", i%200+1))
	}
	if len(s.views) > mostViews {
		t.Errorf("%d views are kept", len(s.views))
	}
	if answer := ask(s, "GET", "/node/"+strings.Repeat("x", longestView)); answer.StatusCode != http.StatusNotFound {
		t.Errorf("a long name: status %d", answer.StatusCode)
	}
}

func TestTroubleIsSaid(t *testing.T) {
	s := site(t, Config{}, func() (*overview.Overview, error) { return nil, errors.New("secret of the agent's") })
	for _, path := range []string{"/", "/?part", "/overview.json"} {
		answer := ask(s, "GET", path)
		if body := text(t, answer); answer.StatusCode != http.StatusServiceUnavailable || strings.Contains(body, "secret") {
			t.Errorf("%s: status %d: %s", path, answer.StatusCode, body)
		}
	}
}
