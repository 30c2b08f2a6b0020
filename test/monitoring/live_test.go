package monitoring

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/install"
	"github.com/divvy-gpu/divvy/internal/install/installtest"
	"github.com/divvy-gpu/divvy/internal/rundir"
	"github.com/divvy-gpu/divvy/internal/simgpu"
)

// longest bounds every wait, on a busy machine.
const longest = 3 * time.Minute

func eventually(t *testing.T, what string, condition func() error) {
	t.Helper()
	deadline := time.After(longest)
	for {
		err := condition()
		if err == nil {
			return
		}
		select {
		case <-deadline:
			t.Fatalf("it did not happen that %s: %v", what, err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// start starts a program that ends with the test.
func start(t *testing.T, name string, args ...string) {
	t.Helper()
	command := exec.Command(name, args...)
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	var said strings.Builder
	command.Stderr = &said
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = syscall.Kill(-command.Process.Pid, syscall.SIGTERM)
		ended := make(chan struct{})
		go func() { _ = command.Wait(); close(ended) }()
		select {
		case <-ended:
		case <-time.After(10 * time.Second):
			_ = syscall.Kill(-command.Process.Pid, syscall.SIGKILL)
			<-ended
		}
		if t.Failed() {
			t.Logf("%s %q said:\n%s", name, args, said.String())
		}
	})
}

// free is an address where nobody listens, whose port the kernel gives to nobody who asks for any: it is free for a moment before the
// program takes it.
func free(t *testing.T) string {
	t.Helper()
	for range 100 {
		address := fmt.Sprintf("127.0.0.1:%d", 20000+rand.IntN(10000)) // below all ranges of net.ipv4.ip_local_port_range that are usual
		if listener, err := net.Listen("tcp", address); err == nil {
			_ = listener.Close()
			return address
		}
	}
	t.Fatal("no port is free")
	return ""
}

// served starts an agent of a simulated machine with two shares that compete, and returns where it tells of them.
func served(t *testing.T) (address string) {
	t.Helper()
	tree := installtest.Tree(t)
	dir, err := os.MkdirTemp("/dev/shm", "divvy-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	t.Setenv(rundir.Variable, dir)
	t.Setenv(install.Variable, string(tree))
	machine, err := simgpu.Load("a100-80g")
	if err != nil {
		t.Fatal(err)
	}
	store := simgpu.NewStore(dir, tree)
	instance, err := store.Start(t.Context(), "m", machine, "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Stop(context.Background(), instance, true); err != nil {
			t.Error(err)
		}
	})
	address = free(t)
	divvy, gpubench := filepath.Join(string(tree), "bin/divvy"), filepath.Join(string(tree), "bin/gpubench")
	start(t, divvy, "agent", "--simgpu-dir", instance.Dir, "--metrics-address", address)
	eventually(t, "the agent serves", func() error {
		answer, err := http.Get("http://" + address + "/healthz")
		if err != nil {
			return err
		}
		return answer.Body.Close()
	})
	for _, name := range []string{"one", "two"} {
		start(t, divvy, "run", "--simgpu", "m", "--name", name, "--memory", "2Gi", "--cores", "30", "--", gpubench, "load", "--ns", "2000000")
	}
	return address
}

func page(url string) (string, error) {
	answer, err := http.Get(url)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	content, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", answer.Status, content)
	}
	return string(content), err
}

// series are the labels of what a query finds in a Prometheus.
func series(address, query string) (found []map[string]string, err error) {
	text, err := page("http://" + address + "/api/v1/query?query=" + url.QueryEscape(query))
	if err != nil {
		return nil, err
	}
	var answer struct {
		Data struct {
			Result []struct{ Metric map[string]string }
		}
	}
	if err := json.Unmarshal([]byte(text), &answer); err != nil {
		return nil, err
	}
	for _, one := range answer.Data.Result {
		found = append(found, one.Metric)
	}
	return found, nil
}

// A real Prometheus scrapes a real agent as the chart's PodMonitor has it do: every query of the dashboards finds series, the
// shares' labels are their own, and the alerts load.
func TestPrometheusScrapesAnAgent(t *testing.T) {
	prometheus, promtool := program(t, "prometheus"), program(t, "promtool")
	agent := served(t)
	eventually(t, "both shares are told of", func() error {
		text, err := page("http://" + agent + "/metrics")
		if n := strings.Count(text, "\ndivvy_share_arbiter_error_ratio{"); err == nil && n != 2 {
			err = fmt.Errorf("%d shares are held back", n)
		}
		return err
	})
	text1, err := page("http://" + agent + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	check := exec.Command(promtool, "check", "metrics")
	check.Stdin = strings.NewReader(text1)
	if said, err := check.CombinedOutput(); err != nil {
		t.Errorf("promtool check metrics: %v\n%s", err, said)
	}
	dir, address := t.TempDir(), free(t)
	config := fmt.Sprintf(`
global: {scrape_interval: 1s, evaluation_interval: 1s}
rule_files: [%q]
scrape_configs:
  - job_name: divvy-system/divvy-agent
    honor_labels: true
    static_configs: [{targets: [%q], labels: {namespace: divvy-system, pod: divvy-agent-abcde, container: agent}}]
`, file(t, "deploy/chart/files/alerts.yaml"), agent)
	if err := os.WriteFile(filepath.Join(dir, "prometheus.yml"), []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	start(t, prometheus, "--config.file="+filepath.Join(dir, "prometheus.yml"), "--storage.tsdb.path="+filepath.Join(dir, "data"),
		"--web.listen-address="+address, "--log.level=warn")
	fill := strings.NewReplacer("$__rate_interval", "10s", "$node", ".*", "$namespace", ".*", "$user", ".*")
	for file, d := range dashboards(t) {
		for _, p := range d.Panels {
			for _, target := range p.Targets {
				query := fill.Replace(target.Expr)
				eventually(t, file+": "+p.Title+": "+query+" finds series", func() error {
					found, err := series(address, query)
					if err == nil && len(found) == 0 {
						err = errors.New("it finds none")
					}
					return err
				})
			}
		}
	}
	found, err := series(address, "divvy_share_info")
	if err != nil || len(found) != 2 {
		t.Fatalf("%v, %v", found, err)
	}
	for _, labels := range found {
		if labels["pod"] != "" || labels["namespace"] != "" || labels["container"] != "" || labels["user"] == "" || labels["share"] != "one" && labels["share"] != "two" {
			t.Errorf("a share of the command line is labelled %v", labels)
		}
	}
	if found, err := series(address, `divvy_gpu_info{pod="divvy-agent-abcde"}`); err != nil || len(found) == 0 {
		t.Errorf("a GPU has no agent: %v", err)
	}
	if loaded, err := page("http://" + address + "/api/v1/rules"); err != nil || strings.Count(loaded, `"type":"alerting"`) != len(rules(t)) || strings.Contains(loaded, `"health":"err"`) {
		t.Errorf("the alerts: %v, %s", err, loaded)
	}
}
