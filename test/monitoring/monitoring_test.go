package monitoring

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/divvy-gpu/divvy/internal/install/installtest"
)

// program is one of Prometheus' as hack/prometheus.sh unpacked it, or that of the machine.
func program(t *testing.T, name string) string {
	t.Helper()
	path := filepath.Join(installtest.Root(t), ".cache/prometheus/usr/bin", name)
	if _, err := os.Stat(path); err == nil {
		return path
	}
	path, err := exec.LookPath(name)
	if err != nil {
		installtest.Missing(t, "prometheus", errors.Join(err, errors.New("run hack/prometheus.sh .cache/prometheus")))
	}
	return path
}

func file(t *testing.T, parts ...string) string {
	t.Helper()
	return filepath.Join(append([]string{installtest.Root(t)}, parts...)...)
}

func text(t *testing.T, parts ...string) []byte {
	t.Helper()
	content, err := os.ReadFile(file(t, parts...))
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// rule is one of alerts.yaml.
type rule struct {
	Alert       string
	Expr        string
	Labels      map[string]string
	Annotations map[string]string
}

func rules(t *testing.T) (all []rule) {
	t.Helper()
	var document struct {
		Groups []struct{ Rules []rule }
	}
	if err := yaml.Unmarshal(text(t, "deploy/chart/files/alerts.yaml"), &document); err != nil {
		t.Fatal(err)
	}
	for _, g := range document.Groups {
		all = append(all, g.Rules...)
	}
	return all
}

// Prometheus takes the alerts, and each is raised by what it is for and by nothing else that the test has.
func TestAlerts(t *testing.T) {
	promtool := program(t, "promtool")
	dir := t.TempDir()
	tests := text(t, "test/monitoring/testdata/alerts_test.yaml")
	for name, content := range map[string][]byte{"alerts.yaml": text(t, "deploy/chart/files/alerts.yaml"), "alerts_test.yaml": tests} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{{"check", "rules", "--lint-fatal", "alerts.yaml"}, {"test", "rules", "alerts_test.yaml"}} {
		command := exec.Command(promtool, args...)
		command.Dir = dir
		if said, err := command.CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, said)
		}
	}
	for _, r := range rules(t) {
		if !strings.Contains(string(tests), "alertname: "+r.Alert+"\n        exp_alerts") {
			t.Errorf("%s is raised by no test", r.Alert)
		}
	}
}

// Whoever is woken by an alert reads what happened and where, and finds the page that says what to do.
func TestAlertsHaveRunbooks(t *testing.T) {
	page := string(text(t, "docs/runbooks.md"))
	metrics := string(text(t, "docs/metrics.md")) + string(text(t, "docs/scheduler.md"))
	all := rules(t)
	for _, r := range all {
		if r.Annotations["summary"] == "" || r.Labels["severity"] == "" {
			t.Errorf("%s has no summary or no severity", r.Alert)
		}
		_, anchor, _ := strings.Cut(r.Annotations["runbook_url"], "/docs/runbooks.md#")
		if anchor != strings.ToLower(r.Alert) || !strings.Contains(page, "\n## "+r.Alert+"\n") {
			t.Errorf("%s: no runbook at %q", r.Alert, r.Annotations["runbook_url"])
		}
		for _, name := range names(r.Expr) {
			if !strings.Contains(metrics, "`"+strings.TrimSuffix(name, "_bucket")+"`") {
				t.Errorf("%s: no page has the metric %s", r.Alert, name)
			}
		}
	}
	if n := strings.Count(page, "\n## "); n != len(all) {
		t.Errorf("%d runbooks for %d alerts", n, len(all))
	}
}

// names are Divvy's metrics in an expression.
func names(expression string) (all []string) {
	for _, word := range strings.FieldsFunc(expression, func(r rune) bool {
		return r != '_' && (r < 'a' || r > 'z') && (r < '0' || r > '9')
	}) {
		if strings.HasPrefix(word, "divvy_") {
			all = append(all, word)
		}
	}
	return all
}

// dashboard is what of Grafana's model the tests read.
type dashboard struct {
	UID    string
	Title  string
	Panels []struct {
		Title, Description, Type string
		Targets                  []struct{ Expr, LegendFormat string }
	}
	Templating struct {
		List []struct {
			Name  string
			Type  string
			Query any
		}
	}
}

func dashboards(t *testing.T) map[string]dashboard {
	t.Helper()
	paths, err := filepath.Glob(file(t, "deploy/chart/files/dashboards/*.json"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("%q, %v", paths, err)
	}
	all := map[string]dashboard{}
	for _, path := range paths {
		var d dashboard
		content, err := os.ReadFile(path)
		if err == nil {
			err = json.Unmarshal(content, &d)
		}
		if err != nil || d.UID == "" || d.Title == "" || len(d.Panels) == 0 {
			t.Fatalf("%s: %+v, %v", path, d, err)
		}
		all[filepath.Base(path)] = d
	}
	return all
}

// Every panel says what it shows, of metrics that a page explains.
func TestDashboardsAreExplained(t *testing.T) {
	metrics := string(text(t, "docs/metrics.md"))
	for file, d := range dashboards(t) {
		for _, p := range d.Panels {
			if p.Title == "" || p.Description == "" || len(p.Targets) == 0 {
				t.Errorf("%s: a panel without title, description or query: %+v", file, p)
			}
			for _, target := range p.Targets {
				for _, name := range names(target.Expr) {
					if !strings.Contains(metrics, "`"+name+"`") {
						t.Errorf("%s: %s: no page has the metric %s", file, p.Title, name)
					}
				}
			}
		}
	}
}
