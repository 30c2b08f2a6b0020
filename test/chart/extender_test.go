package chart_test

import (
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/test/chart/render"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"
)

// extenderOnly leaves the scheduler to the cluster.
const extenderOnly = "slots: {extender: {only: true, clients: {authority: \"-----BEGIN CERTIFICATE-----\", names: [scheduler]}}}"

// schedulerConfig is what kube-scheduler is told of extenders.
type schedulerConfig struct {
	PercentageOfNodesToScore int
	LeaderElection           struct {
		LeaderElect                     bool
		ResourceName, ResourceNamespace string
	}
	Profiles  []struct{ SchedulerName string }
	Extenders []struct {
		URLPrefix, FilterVerb, PrioritizeVerb, PreemptVerb, BindVerb string
		NodeCacheCapable, Ignorable, EnableHTTPS                     bool
		Weight                                                       int
		HTTPTimeout                                                  string
		ManagedResources                                             []struct {
			Name               string
			IgnoredByScheduler bool
		}
	}
}

func extending(t *testing.T, documents []render.Document) schedulerConfig {
	t.Helper()
	var config schedulerConfig
	if err := yaml.Unmarshal([]byte(configured(t, documents, "scheduler.yaml")), &config); err != nil {
		t.Fatal(err)
	}
	return config
}

// container returns the one of that name, and its arguments.
func container(t *testing.T, d *appsv1.Deployment, name string) corev1.Container {
	t.Helper()
	for _, c := range d.Spec.Template.Spec.Containers {
		if c.Name == name {
			return c
		}
	}
	t.Fatalf("deployment %s has no container %s", d.Name, name)
	return corev1.Container{}
}

// The scheduler asks the extender of its own pod about every node, and binds no pod with a share without it. Other pods are scored
// there, and do not wait for it.
func TestExtenderIsAsked(t *testing.T) {
	for _, kubernetes := range []string{"v1.32.10", "v1.33.7", "v1.34.4", "v1.35.4", "v1.35.4-gke.1000"} {
		documents := rendered(t, kubernetes, "")
		config := extending(t, documents)
		if config.PercentageOfNodesToScore != 100 || len(config.Profiles) != 1 || len(config.Extenders) != 2 {
			t.Fatalf("%s: the scheduler is told %+v", kubernetes, config)
		}
		if translator := translatorOf(t, documents); translator.Scheduler() != config.Profiles[0].SchedulerName {
			t.Errorf("%s: pods go to %s, and the scheduler is %s", kubernetes, translator.Scheduler(), config.Profiles[0].SchedulerName)
		}
		extender, scores := config.Extenders[0], config.Extenders[1]
		if extender.Ignorable || !extender.NodeCacheCapable || !extender.EnableHTTPS || extender.FilterVerb == "" || extender.PrioritizeVerb != "" || extender.PreemptVerb == "" || extender.BindVerb == "" {
			t.Errorf("%s: %+v", kubernetes, extender)
		}
		if !scores.Ignorable || !scores.NodeCacheCapable || !scores.EnableHTTPS || scores.FilterVerb != "" || scores.PrioritizeVerb == "" || scores.PreemptVerb != "" || scores.BindVerb != "" ||
			scores.Weight < 1 || len(scores.ManagedResources) != 0 || scores.URLPrefix != extender.URLPrefix {
			t.Errorf("%s: %+v", kubernetes, scores)
		}
		if managed := extender.ManagedResources; len(managed) != 1 || managed[0].Name != v1alpha1.SlotResource || managed[0].IgnoredByScheduler {
			t.Errorf("%s: it is asked about %+v", kubernetes, managed)
		}
		runs := deployment(t, documents, v1alpha1.SchedulerName)
		address := strings.TrimPrefix(extender.URLPrefix, "https://")
		if !strings.HasPrefix(address, "127.0.0.1:") || !slices.Contains(container(t, runs, "extender").Args, "--address="+address) {
			t.Errorf("%s: it is asked at %s, and listens elsewhere: %q", kubernetes, address, container(t, runs, "extender").Args)
		}
		version, _, _ := strings.Cut(kubernetes, "-")
		if got := container(t, runs, "scheduler").Image; got != "registry.k8s.io/kube-scheduler:"+version {
			t.Errorf("%s: the scheduler's image is %s", kubernetes, got)
		}
	}
}

// Extender and scheduler lead in one pod, by leases that their account may hold.
func TestExtenderLeadsBesideTheScheduler(t *testing.T) {
	documents := rendered(t, oldest, "")
	lease := extending(t, documents).LeaderElection
	runs := deployment(t, documents, v1alpha1.SchedulerName)
	if !lease.LeaderElect || lease.ResourceNamespace != namespace || !slices.Contains(container(t, runs, "extender").Args, "--follow-lease="+lease.ResourceName) {
		t.Errorf("the scheduler holds %+v, and the extender runs with %q", lease, container(t, runs, "extender").Args)
	}
	held := map[string]bool{}
	for _, role := range find[*rbacv1.Role](t, documents) {
		if role.Name != v1alpha1.SchedulerName {
			continue
		}
		for _, rule := range role.Rules {
			for _, name := range rule.ResourceNames {
				held[name] = slices.Contains(rule.Verbs, "get") && slices.Contains(rule.Verbs, "update")
			}
		}
	}
	if !held[lease.ResourceName] || !held[v1alpha1.SchedulerName+"-extender"] || *runs.Spec.Replicas != 2 {
		t.Errorf("%d replicas, which may hold %v", *runs.Spec.Replicas, held)
	}
	// A standby is ready, so that updates and Helm do not wait for it.
	if probe := container(t, runs, "extender").ReadinessProbe; probe.HTTPGet.Path != "/standingz" || runs.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType {
		t.Errorf("the extender is ready by %+v, %+v", probe.HTTPGet, runs.Spec.Strategy)
	}
	roles := map[string]bool{}
	for _, b := range find[*rbacv1.ClusterRoleBinding](t, documents) {
		if len(b.Subjects) == 1 && b.Subjects[0].Name == runs.Spec.Template.Spec.ServiceAccountName && b.Subjects[0].Namespace == namespace {
			roles[b.RoleRef.Name] = true
		}
	}
	if !roles["system:kube-scheduler"] || !roles["system:volume-scheduler"] || !roles["divvy-scheduler-extender"] {
		t.Errorf("the scheduler has the roles %v", roles)
	}
}

// Where the cluster's own scheduler asks, the extender runs alone, and takes nobody's word but that scheduler's.
func TestExtenderAlone(t *testing.T) {
	documents := rendered(t, oldest, extenderOnly)
	runs := deployment(t, documents, v1alpha1.SchedulerName)
	if n := len(runs.Spec.Template.Spec.Containers); n != 1 {
		t.Errorf("%d containers", n)
	}
	extender := container(t, runs, "extender")
	for _, want := range []string{"--client-authority=/etc/divvy/clients.crt", "--client-name=scheduler", "--address=:8444"} {
		if !slices.Contains(extender.Args, want) {
			t.Errorf("%s is not in %q", want, extender.Args)
		}
	}
	if extender.ReadinessProbe.HTTPGet.Path != "/readyz" || runs.Spec.Strategy.Type != appsv1.RecreateDeploymentStrategyType {
		t.Errorf("a replica is ready by %+v, %+v", extender.ReadinessProbe.HTTPGet, runs.Spec.Strategy)
	}
	if translator := translatorOf(t, documents); translator.Scheduler() != corev1.DefaultSchedulerName {
		t.Errorf("pods go to %s", translator.Scheduler())
	}
	for _, b := range find[*rbacv1.ClusterRoleBinding](t, documents) {
		if strings.HasPrefix(b.RoleRef.Name, "system:") {
			t.Errorf("the extender has the role %s", b.RoleRef.Name)
		}
	}
	service := false
	for _, s := range find[*corev1.Service](t, documents) {
		service = service || s.Name == v1alpha1.SchedulerName+"-extender"
	}
	if !service {
		t.Error("nothing leads to the extender")
	}
}

func TestExtenderRefused(t *testing.T) {
	for values, want := range map[string]string{
		"slots: {extender: {only: true}}": "say who may ask the extender",
		"slots: {extender: {only: true, clients: {authority: \"-----BEGIN CERTIFICATE-----\"}}}": "say who may ask the extender, by authority and names",
		"slots: {extender: {only: true, clients: {names: [scheduler]}}}":                         "say who may ask the extender, by authority and names",
		"scheduler: {hostNetwork: true}":                                                         "every process of the node would reach",
		"slots: {kubeScheduler: {version: v1.36.0}}":                                             "kube-scheduler v1.36.0 does not serve Kubernetes v1.35.4",
		"slots: {kubeScheduler: {version: v1.33.12}}":                                            "kube-scheduler v1.33.12 does not serve Kubernetes v1.35.4",
		"slots: {kubeScheduler: {version: latest}}":                                              "take the values",
		"slots: {extender: {ignorable: true}}":                                                   "take the values",
	} {
		_, err := render.Chart(dir, render.Options{Namespace: namespace, Kubernetes: "v1.35.4", Values: values})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", values, err)
		}
	}
	documents := rendered(t, "v1.35.4", "slots: {kubeScheduler: {repository: here/scheduler, version: v1.34.9}}")
	if got := container(t, deployment(t, documents, v1alpha1.SchedulerName), "scheduler").Image; got != "here/scheduler:v1.34.9" {
		t.Errorf("the image is %s", got)
	}
}

// What the manual has the cluster's own scheduler be told of the extender is what the chart tells its own, but for how it is reached.
func TestManualTellsTheSameOfTheExtender(t *testing.T) {
	manual, err := os.ReadFile("../../docs/kubernetes.md")
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for line := range strings.Lines(string(manual)) {
		if code, found := strings.CutPrefix(line, "       "); found && (text.Len() > 0 || strings.HasPrefix(code, "apiVersion: kubescheduler.")) {
			text.WriteString(code)
		} else if text.Len() > 0 {
			break
		}
	}
	var told, own schedulerConfig
	if err := yaml.Unmarshal([]byte(text.String()), &told); err != nil || len(told.Extenders) != 2 {
		t.Fatalf("%v: the manual's configuration is %q", err, text.String())
	}
	own = extending(t, rendered(t, oldest, ""))
	for i := range told.Extenders {
		told.Extenders[i].URLPrefix = own.Extenders[i].URLPrefix
	}
	if !reflect.DeepEqual(told.Extenders, own.Extenders) || told.PercentageOfNodesToScore != own.PercentageOfNodesToScore {
		t.Errorf("the manual tells %+v\nand the chart %+v", told, own)
	}
}

// What the notes have somebody write into a file is what the scheduler reads from it: a Secret's values are in base64.
func TestNotesReadTheAuthority(t *testing.T) {
	notes, err := render.Notes(dir, render.Options{Namespace: namespace, Kubernetes: oldest, Values: extenderOnly})
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for line := range strings.Lines(notes) {
		if strings.Contains(line, "get secret "+v1alpha1.SchedulerName+"-extender-certificates") {
			found = strings.HasSuffix(strings.TrimSpace(line), "| base64 -d")
		}
	}
	if !found {
		t.Errorf("the notes do not have the authority in PEM read:\n%s", notes)
	}
}

// A version that is newer than what has run is served, and said to be.
func TestNewerVersionIsSaid(t *testing.T) {
	for kubernetes, want := range map[string]bool{oldest: false, newest: false, "v1.37.2": true} {
		notes, err := render.Notes(dir, render.Options{Namespace: namespace, Kubernetes: kubernetes})
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(notes, "The newest that Divvy has run on"); got != want {
			t.Errorf("%s:\n%s", kubernetes, notes)
		}
	}
}
