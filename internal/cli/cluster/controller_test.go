package cluster

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"
)

// TestLeaseHasItsOwnBound: whatever the controller asks leaves room to renew its lease.
func TestLeaseHasItsOwnBound(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config")
	config := `{apiVersion: v1, kind: Config, current-context: a, contexts: [{name: a, context: {cluster: a}}], clusters: [{name: a, cluster: {server: "http://127.0.0.1:1"}}]}`
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	o := controllerOptions{cluster: connection{kubeconfig: path, qps: 0.001, burst: 50}}
	client, leases, err := o.connect(slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	asked := 0
	for all := client.CoreV1().RESTClient().GetRateLimiter(); all.TryAccept(); asked++ {
	}
	if asked != 50 || client.EventsV1().RESTClient().GetRateLimiter().TryAccept() {
		t.Fatalf("%d may be asked at once, and not 50 of all kinds together", asked)
	}
	if !leases.RESTClient().GetRateLimiter().TryAccept() {
		t.Error("the lease waits for what else is asked")
	}
}
