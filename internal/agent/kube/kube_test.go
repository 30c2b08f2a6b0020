package kube

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/discovery"
	fakediscovery "k8s.io/client-go/discovery/fake"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/divvy-gpu/divvy/internal/agent"
	"github.com/divvy-gpu/divvy/internal/agent/daemon"
	"github.com/divvy-gpu/divvy/internal/agent/metrics"
	"github.com/divvy-gpu/divvy/internal/agent/web"
)

func TestModes(t *testing.T) {
	for name, c := range map[string]struct {
		major, minor string
		want         Mode
		fault        string
	}{
		"1.36":           {"1", "36", ModeClaims, ""},
		"a provider's":   {"1", "36+", ModeClaims, ""},
		"a later one":    {"1", "41", ModeClaims, ""},
		"1.35":           {"1", "35", ModeSlots, ""},
		"1.34":           {"1", "34+", ModeSlots, ""},
		"1.32":           {"1", "32", ModeSlots, ""},
		"1.31":           {"1", "31", "", "1.31: use 1.36 or newer, or 1.32 to 1.35 with NRI"},
		"another major":  {"2", "0", "", "2.0: use 1.36"},
		"no number":      {"1", "", "", "cannot be read"},
		"not one at all": {"", "x", "", "cannot be read"},
	} {
		t.Run(name, func(t *testing.T) {
			mode, err := modeFor(c.major, c.minor)
			if c.fault == "" && (err != nil || mode != c.want) {
				t.Errorf("%s, %v", mode, err)
			}
			if c.fault != "" && (!errors.Is(err, ErrVersion) || !strings.Contains(err.Error(), c.fault)) {
				t.Errorf("%v, want %q", err, c.fault)
			}
		})
	}
}

func TestOptions(t *testing.T) {
	good := Options{Node: "n1", KubeletDir: "/var/lib/kubelet"}
	if err := good.Validate(); err != nil {
		t.Error(err)
	}
	for field, spoil := range map[string]func(*Options){
		"NODE_NAME":     func(o *Options) { o.Node = "" },
		"--kubelet-dir": func(o *Options) { o.KubeletDir = "kubelet" },
	} {
		bad := good
		spoil(&bad)
		if err := bad.Validate(); err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: %v", field, err)
		}
	}
}

// cluster is an API server of a version, which does not answer at first.
type cluster struct {
	*fake.Clientset
	discovery versioned
}

type versioned struct {
	*fakediscovery.FakeDiscovery
	minor string
	asked *atomic.Int64
	away  int64 // questions that are not answered
}

func (c cluster) Discovery() discovery.DiscoveryInterface { return c.discovery }

func (v versioned) ServerVersion() (*version.Info, error) {
	if v.asked.Add(1) <= v.away {
		return nil, errors.New("connection refused")
	}
	return &version.Info{Major: "1", Minor: v.minor}, nil
}

func nodeIn(minor string, away int64) (*node, *atomic.Int64) {
	asked := new(atomic.Int64)
	return &node{
		Node:    daemon.Node{Log: slog.New(slog.DiscardHandler)},
		options: Options{Client: cluster{fake.NewClientset(), versioned{minor: minor, asked: asked, away: away}}},
	}, asked
}

func TestInsistOnClaims(t *testing.T) {
	for minor, refused := range map[string]bool{"36": false, "35": true, "33": true} {
		k, _ := nodeIn(minor, 0)
		if err := k.insist(t.Context()); errors.Is(err, ErrVersion) != refused {
			t.Errorf("1.%s: %v", minor, err)
		}
	}
}

// An API server that is away is no fault, and no version.
func TestChooseWaits(t *testing.T) {
	k, asked := nodeIn("36", 1<<60)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- k.insist(ctx) }()
	for asked.Load() == 0 {
		select {
		case err := <-ended:
			t.Fatalf("it ended: %v", err)
		default:
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("%v", err)
	}
}

func TestTogetherEndsBoth(t *testing.T) {
	k, _ := nodeIn("36", 0)
	broken := errors.New("broken")
	err := k.together(t.Context(),
		func(ctx context.Context) error { <-ctx.Done(); return nil },
		func(context.Context) error { return broken })
	if !errors.Is(err, broken) {
		t.Errorf("%v", err)
	}
}

// A node whose agent changes from slots to claims serves what slots granted until it has ended.
func TestSlotsLeft(t *testing.T) {
	claim, pod, nameless := agent.Tenancy{Key: "aaaaaaaa-0000-4000-8000-000000000001/r"}, agent.Tenancy{Key: agent.PodKey("u", "main")}, agent.Tenancy{}
	for _, c := range []struct {
		tenancies []agent.Tenancy
		want      bool
	}{{nil, false}, {[]agent.Tenancy{claim}, false}, {[]agent.Tenancy{claim, pod}, true}, {[]agent.Tenancy{nameless}, true}} {
		if got := slotsLeft(c.tenancies); got != c.want {
			t.Errorf("%+v: %v", c.tenancies, got)
		}
	}
	if !isClaims(claim) || isClaims(pod) || isClaims(nameless) {
		t.Error("whose a tenancy is is not told by its key")
	}
}

func TestReadiness(t *testing.T) {
	k, _ := nodeIn("36", 0)
	if err := k.readiness(); !errors.Is(err, errStarting) {
		t.Errorf("%v", err)
	}
	k.setReady(func() error { return nil })
	if err := k.readiness(); err != nil {
		t.Error(err)
	}
}

// A port that somebody has keeps no agent from its node: it goes on, says so, and answers once the port is free.
func TestMetricsAddressInUse(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := taken.Addr().String()
	log := slog.New(slog.DiscardHandler)
	pages := web.New(web.Config{Off: true, Now: time.Now, Log: log})
	k := &node{Node: daemon.Node{Log: log, Pages: pages}, metrics: metrics.New("n")}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	served, notes := make(chan error, 1), make(chan string, 2)
	go func() {
		served <- k.serveMetrics(ctx, address, nil, func(text string) {
			_ = taken.Close() // a second time that is an error
			notes <- text
		})
	}()
	for _, want := range []string{"another program has " + address, address + " is free again"} {
		if text := <-notes; !strings.Contains(text, want) {
			t.Errorf("%q, want %q", text, want)
		}
	}
	answer, err := http.Get("http://" + address + "/readyz") //nolint:noctx // the server answers at once
	if err != nil {
		t.Fatal(err)
	}
	if _ = answer.Body.Close(); answer.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("not ready: %d", answer.StatusCode)
	}
	cancel()
	if err := <-served; err != nil {
		t.Error(err)
	}
}
