package cluster

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/divvy-gpu/divvy/internal/controller/web"
	"github.com/divvy-gpu/divvy/internal/overview"
)

// pageServer is an API server with the page of namespace "here" behind its proxy.
type pageServer struct {
	answer string
	status int

	mu     sync.Mutex
	asked  []string // paths
	tokens []string // by which the page was asked
}

func (s *pageServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.asked, s.tokens = append(s.asked, r.URL.Path), append(s.tokens, r.Header.Get(web.TokenHeader))
	s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(s.status)
	_, _ = fmt.Fprint(w, s.answer)
}

func TestAskPage(t *testing.T) {
	const good, path = `{"apiVersion":"divvy.dev/v1alpha1","kind":"Overview","time":"2026-01-02T12:00:00Z","nodes":[{"name":"n1","gpus":[]}],"more":1}`,
		"/api/v1/namespaces/here/services/https:divvy-controller:https/proxy/cluster.json"
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("filed\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	given := func(c *rest.Config) { c.BearerToken = "given" }
	for name, c := range map[string]struct {
		status    int
		answer    string
		change    func(*rest.Config)
		namespace string
		token     string // "" where the page is not asked
		want      error
	}{
		"a token":            {200, good, given, "here", "Bearer given", nil},
		"a token in a file":  {200, good, func(c *rest.Config) { c.BearerTokenFile = file }, "here", "Bearer filed", nil},
		"no token":           {200, good, func(*rest.Config) {}, "here", "", errNoToken},
		"a password":         {200, good, func(c *rest.Config) { c.Username, c.Password = "a", "b" }, "here", "", errNoToken},
		"for somebody":       {200, good, func(c *rest.Config) { given(c); c.Impersonate.UserName = "eve" }, "here", "", errActsFor},
		"no namespace":       {200, good, given, "../x", "", errNotNamespace},
		"not to be reached":  {403, "no", given, "here", "Bearer given", errMayNotAsk},
		"no page":            {404, "no", given, "here", "Bearer given", errNoPage},
		"no JSON":            {200, "<html>", given, "here", "Bearer given", errAny},
		"down":               {503, "no", given, "here", "Bearer given", errAny},
		"of another version": {200, `{"apiVersion":"x","kind":"Overview"}`, given, "here", "Bearer given", overview.ErrVersion},
	} {
		t.Run(name, func(t *testing.T) {
			page := &pageServer{status: c.status, answer: c.answer}
			server := httptest.NewServer(page)
			defer server.Close()
			config := &rest.Config{Host: server.URL}
			c.change(config)
			client, err := kubernetes.NewForConfig(config)
			if err != nil {
				t.Fatal(err)
			}
			found, err := askPage(t.Context(), client, config, c.namespace)
			switch {
			case c.want == nil && (err != nil || found.Node("n1") == nil):
				t.Errorf("%+v %v", found, err)
			case c.want != nil && (err == nil || !errors.Is(c.want, errAny) && !errors.Is(err, c.want) || strings.Contains(err.Error(), "given")):
				t.Errorf("error %v, want %v", err, c.want)
			}
			if got := strings.Join(page.tokens, ","); got != c.token {
				t.Errorf("the page is asked with %q, want %q", got, c.token)
			}
			if len(page.asked) > 0 && page.asked[0] != path {
				t.Errorf("asked is %s", page.asked)
			}
		})
	}
}

// errAny stands for any error.
var errAny = errors.New("any")

// TestListByTheWebPage lists what the page tells, and asks for nothing else.
func TestListByTheWebPage(t *testing.T) {
	page := &pageServer{status: 200, answer: `{"apiVersion":"divvy.dev/v1alpha1","kind":"Overview","time":"2026-01-02T12:00:00Z","hidden":"You see nothing.","nodes":null}`}
	server := httptest.NewTLSServer(page) // over which alone a kubeconfig's token is sent
	defer server.Close()
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","current-context":"c","contexts":[{"name":"c","context":{"cluster":"c","user":"u"}}],"clusters":[{"name":"c","cluster":{"server":%q,"insecure-skip-tls-verify":true}}],"users":[{"name":"u","user":{"token":"t"}}]}`, server.URL)
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	status, out, errOut := call("ls", "--cluster", "--kubeconfig", kubeconfig, "--web", "here")
	if status != 0 || !strings.Contains(out, "not shown: You see nothing.") || len(page.asked) != 1 {
		t.Errorf("%d %s%s, asked: %s", status, out, errOut, page.asked)
	}
}
