package chart_test

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/nodelabels"
	"github.com/divvy-gpu/divvy/internal/pluginfile"
	"github.com/divvy-gpu/divvy/test/chart/render"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	apiadmission "k8s.io/apiserver/pkg/admission"
)

func node(name string, labels, annotations map[string]string, unschedulable bool) runtime.Object {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels, Annotations: annotations}, Spec: corev1.NodeSpec{Unschedulable: unschedulable}}
	n.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Node"))
	return n
}

// discovered are labels of all names that an agent may write as GPU feature discovery does; with a strategy, those of MIG
// instances too.
func discovered(strategy pluginfile.Strategy) map[string]string {
	gpu := nodelabels.DiscoveredGPU{Model: "T4", Memory: 15 << 30, Capability: "7.5"}
	if strategy != pluginfile.StrategyNone {
		gpu.MIG, gpu.Instances = true, []nodelabels.DiscoveredInstance{{Profile: "1g.10gb+me", Memory: 10 << 30}}
	}
	return nodelabels.Discovery(nodelabels.Machine{Driver: "550.90.07", CUDA: 12040, Strategy: strategy, GPUs: []nodelabels.DiscoveredGPU{gpu}})
}

func TestAgentsAreConfinedToLabelsOfTheirNode(t *testing.T) {
	type set = map[string]string
	const labels, rest = "an agent may only change labels below divvy.dev/ and those of GPU feature discovery, and not those that administrators choose", "an agent may change nothing of its node but labels"
	both := map[string]*policy{
		"claims": policies(t, rendered(t, newest, ""))["divvy-agent-nodes"],
		"slots":  policies(t, rendered(t, oldest, ""))["divvy-agent-nodes"],
	}
	for _, c := range []struct {
		name          string
		old, new      runtime.Object
		claims, slots string
	}{
		{"first label", node("n1", nil, nil, false), node("n1", set{v1alpha1.CountLabel: "2"}, nil, false), "", ""},
		{"other label", node("n1", set{"a": "b", v1alpha1.CountLabel: "2"}, nil, false), node("n1", set{"a": "b", v1alpha1.CountLabel: "1"}, nil, false), "", ""},
		{"label gone", node("n1", set{v1alpha1.CountLabel: "2"}, nil, false), node("n1", nil, nil, false), "", ""},
		{"a foreign label", node("n1", nil, nil, false), node("n1", set{"pool": "gpus"}, nil, false), labels, labels},
		{"a foreign label changed", node("n1", set{"a": "b"}, nil, false), node("n1", set{"a": "c"}, nil, false), labels, labels},
		{"a foreign label gone", node("n1", set{"a": "b"}, nil, false), node("n1", nil, nil, false), labels, labels},
		{"the label that asks for agents", node("n1", set{v1alpha1.NodeLabel: ""}, nil, false), node("n1", nil, nil, false), labels, labels},
		{"its own defaults", node("n1", nil, nil, false), node("n1", set{v1alpha1.DefaultPolicyLabel: "weighted"}, nil, false), labels, labels},
		{"its own cores", node("n1", set{v1alpha1.DefaultCoresLabel: "5"}, nil, false), node("n1", set{v1alpha1.DefaultCoresLabel: "0"}, nil, false), labels, labels},
		{"its defaults gone", node("n1", set{v1alpha1.DefaultCoresLabel: "5"}, nil, false), node("n1", nil, nil, false), labels, labels},
		{"beside its defaults", node("n1", set{v1alpha1.DefaultCoresLabel: "5"}, nil, false), node("n1", set{v1alpha1.DefaultCoresLabel: "5", v1alpha1.CountLabel: "2"}, nil, false), "", ""},
		{"labels of GPU feature discovery", node("n1", nil, nil, false), node("n1", discovered("none"), nil, false), "", ""},
		{"labels of GPU feature discovery gone", node("n1", discovered("none"), nil, false), node("n1", nil, nil, false), "", ""},
		{"labels of MIG by profile", node("n1", nil, nil, false), node("n1", discovered("mixed"), nil, false), "", ""},
		{"labels of MIG as GPUs", node("n1", discovered("mixed"), nil, false), node("n1", discovered("single"), nil, false), "", ""},
		{"what MIG's manager is to do", node("n1", nil, nil, false), node("n1", set{"nvidia.com/mig.config": "all-1g.10gb"}, nil, false), labels, labels},
		{"another label of NVIDIA's", node("n1", nil, nil, false), node("n1", set{"nvidia.com/gpu.present": "true"}, nil, false), labels, labels},
		{"another node", node("n2", nil, nil, false), node("n2", set{v1alpha1.CountLabel: "2"}, nil, false), "the agent of node n1 may only label its own node", "the agent of node n1 may only label its own node"},
		{"cordon", node("n1", nil, nil, false), node("n1", nil, nil, true), rest, rest + " and what it says of its GPUs"},
		{"annotation", node("n1", nil, set{"a": "b"}, false), node("n1", nil, set{"a": "c"}, false), rest, rest + " and what it says of its GPUs"},
		{"annotation gone", node("n1", nil, set{"a": "b"}, false), node("n1", nil, nil, false), rest, rest + " and what it says of its GPUs"},
		{"its GPUs", node("n1", nil, set{"a": "b"}, false), node("n1", nil, set{"a": "b", v1alpha1.GPUsAnnotation: "[]"}, false), rest, ""},
		{"its GPUs again", node("n1", nil, set{v1alpha1.GPUsAnnotation: "[]"}, false), node("n1", nil, set{v1alpha1.GPUsAnnotation: "[1]"}, false), rest, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			for mode, want := range map[string]string{"claims": c.claims, "slots": c.slots} {
				if got := both[mode].refused(t, attempt{agent, "n1", apiadmission.Update, "", c.old, c.new}); got != want {
					t.Errorf("%s: %q, want %q", mode, got, want)
				}
			}
			if got := both["claims"].refused(t, attempt{"admin", "", apiadmission.Update, "", c.old, c.new}); got != "" {
				t.Errorf("who is no agent is refused: %s", got)
			}
		})
	}
}

// Agents are scraped by programs of their own node alone, unless somebody is to scrape them. The kubelet's probes go where the
// agent listens, and what is scraped keeps its own labels.
func TestWhereAgentsAreScraped(t *testing.T) {
	for values, want := range map[string]struct{ listens, probed string }{
		"": {"127.0.0.1:9410", "127.0.0.1"},
		"agent: {metrics: {host: 10.0.0.7, port: 9000}}":                               {"10.0.0.7:9000", "10.0.0.7"},
		"agent: {metrics: {host: 0.0.0.0}}":                                            {"0.0.0.0:9410", ""},
		"agent: {metrics: {host: '[::]'}}":                                             {"[::]:9410", ""},
		"agent: {metrics: {host: '[::1]'}}":                                            {"[::1]:9410", "::1"},
		"metrics: {podMonitor: {enabled: true}}":                                       {":9410", ""},
		"{metrics: {podMonitor: {enabled: true}}, agent: {metrics: {host: 10.0.0.7}}}": {"10.0.0.7:9410", "10.0.0.7"},
	} {
		documents := rendered(t, newest, values)
		agent := find[*appsv1.DaemonSet](t, documents)[0].Spec.Template.Spec.Containers[0]
		if !slices.Contains(agent.Args, "--metrics-address="+want.listens) {
			t.Errorf("with %q it listens as %q", values, agent.Args)
		}
		for _, probe := range []*corev1.Probe{agent.StartupProbe, agent.LivenessProbe, agent.ReadinessProbe} {
			if probe.HTTPGet.Host != want.probed {
				t.Errorf("with %q it is probed at %q, want %q", values, probe.HTTPGet.Host, want.probed)
			}
		}
		monitors := 0
		for _, d := range documents {
			if bytes.Contains(d.Text, []byte("kind: PodMonitor")) {
				monitors++
				if !bytes.Contains(d.Text, []byte("honorLabels: true")) {
					t.Errorf("labels are not honoured:\n%s", d.Text)
				}
			}
		}
		if on := strings.Contains(values, "podMonitor"); on != (monitors == 3) {
			t.Errorf("with %q there are %d monitors", values, monitors)
		}
	}
	unreached := "{agent: {metrics: {host: 127.0.0.1}}, metrics: {podMonitor: {enabled: true}}}"
	if _, err := render.Chart(dir, render.Options{Namespace: namespace, Kubernetes: newest, Values: unreached}); err == nil || !strings.Contains(err.Error(), "agent.metrics.host") {
		t.Errorf("monitors of agents that they cannot reach: %v", err)
	}
}

// What watches agents is made where it is asked for, of the files that a server takes as they are.
func TestAlertsAndDashboards(t *testing.T) {
	if text := joined(rendered(t, newest, "")); strings.Contains(text, "PrometheusRule") || strings.Contains(text, "divvy-dashboards") {
		t.Error("they are there without being asked for")
	}
	documents := rendered(t, newest, "metrics: {prometheusRule: {enabled: true, labels: {release: p}}, dashboards: {enabled: true}}")
	maps := find[*corev1.ConfigMap](t, documents)
	at := slices.IndexFunc(maps, func(m *corev1.ConfigMap) bool { return m.Name == "divvy-dashboards" })
	if at < 0 || maps[at].Labels["grafana_dashboard"] != "1" || len(maps[at].Data) != 2 {
		t.Fatalf("dashboards: %+v", maps)
	}
	for name, text := range maps[at].Data {
		file, err := os.ReadFile(filepath.Join(dir, "files/dashboards", strings.TrimPrefix(name, "divvy-")))
		if err != nil || strings.TrimSpace(string(file)) != strings.TrimSpace(text) {
			t.Errorf("%s differs from its file: %v", name, err)
		}
	}
	alerts, err := os.ReadFile(filepath.Join(dir, "files/alerts.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	rule := joined(documents)
	for line := range strings.Lines(string(alerts)) {
		if !strings.Contains(rule, "\n  "+strings.TrimRight(line, "\n")+"\n") {
			t.Errorf("the rule lacks %q", line)
		}
	}
}
