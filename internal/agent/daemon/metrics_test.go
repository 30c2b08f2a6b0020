package daemon

import (
	"log/slog"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/agent/exposition"
	"github.com/divvy-gpu/divvy/internal/agentconfig"
	"github.com/divvy-gpu/divvy/internal/rundir"
)

func rulesOf(t *testing.T, text string) *agentconfig.Config {
	t.Helper()
	c, err := agentconfig.Parse("agent.yaml", []byte("apiVersion: divvy.dev/v1alpha1\nkind: AgentConfig\n"+text), accounts{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Metrics are served on the loopback interface by the machine's own agent, and otherwise where somebody says so.
func TestMetricsAddress(t *testing.T) {
	usual := ""
	if os.Getuid() == 0 {
		usual = exposition.DefaultAddress
	}
	system := control.Endpoint{Rundir: rundir.System}
	for name, c := range map[string]struct {
		options Options
		rules   string
		want    string
		asked   bool
	}{
		"the machine's":               {Options{Endpoint: system}, "", usual, false},
		"a user's own":                {Options{Endpoint: control.Endpoint{Rundir: "/dev/shm/divvy-7"}, Ephemeral: true}, "", "", false},
		"another run directory":       {Options{Endpoint: control.Endpoint{Rundir: "/tmp/run"}}, "", "", false},
		"by the configuration":        {Options{Endpoint: system}, "metrics: {address: ':9500'}", ":9500", true},
		"by a flag":                   {Options{Endpoint: system, MetricsAddress: "10.0.0.7:1"}, "metrics: {address: ':9500'}", "10.0.0.7:1", true},
		"none by the configuration":   {Options{Endpoint: system}, "metrics: {address: none}", "", false},
		"none by a flag":              {Options{Endpoint: system, MetricsAddress: "none"}, "metrics: {address: ':9500'}", "", false},
		"a user's own, when asked to": {Options{Ephemeral: true, MetricsAddress: "127.0.0.1:1"}, "", "127.0.0.1:1", true},
	} {
		if address, asked := c.options.metricsAddress(rulesOf(t, c.rules)); address != c.want || asked != c.asked {
			t.Errorf("%s: %q, asked for: %v", name, address, asked)
		}
	}
	if address, _ := (Options{MetricsAddress: ":1"}).metricsAddress(nil); address != ":1" {
		t.Errorf("without a configuration: %q", address)
	}
}

// An address that is taken, also one that somebody asked for, keeps no agent from serving, and is had once it is free.
func TestMetricsAddressInUse(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := taken.Addr().String()
	s := &service{options: Options{MetricsAddress: address, Log: slog.New(slog.DiscardHandler)}}
	if err := s.openMetrics(t.Context()); err != nil || s.metrics != nil || s.taken != address {
		t.Errorf("an address that is taken: %v, %q", err, s.taken)
	}
	had := make(chan net.Listener)
	go func() { had <- listenAgain(t.Context(), address, time.Millisecond) }()
	if err := taken.Close(); err != nil {
		t.Fatal(err)
	}
	if err := (<-had).Close(); err != nil {
		t.Error(err)
	}
	s.options.MetricsAddress = "192.0.2.1:1" // nobody's
	if err := s.openMetrics(t.Context()); err == nil || !strings.Contains(err.Error(), "--metrics-address") {
		t.Errorf("an address of no machine: %v", err)
	}
	s.options.MetricsAddress = "127.0.0.1:0"
	if err := s.openMetrics(t.Context()); err != nil {
		t.Fatal(err)
	}
	address = s.metrics.Addr().String()
	if err := s.close(); err != nil {
		t.Error(err)
	}
	if _, err := net.Dial("tcp", address); err == nil {
		t.Error("it listens after its end")
	}
}
