package chart_test

import (
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

// What the webhook is told of the scheduler is what its pods are: their name and their account.
func TestWebhookKnowsTheScheduler(t *testing.T) {
	for values, name := range map[string]string{
		"":                           "default-scheduler",
		"scheduler: {enabled: true}": v1alpha1.SchedulerName,
		"scheduler: {enabled: true}\nschedulerName: default-scheduler": "default-scheduler",
	} {
		documents := rendered(t, newest, values)
		var config struct {
			SchedulerName string
			Scheduler     *struct{ Users []string }
		}
		text := configured(t, documents, "webhook.yaml")
		if err := yaml.Unmarshal([]byte(text), &config); err != nil {
			t.Fatal(err)
		}
		translatorOf(t, documents)
		if on := values != ""; (config.Scheduler != nil) != on {
			t.Errorf("%q: the webhook is told\n%s", values, text)
			continue
		} else if !on {
			continue
		}
		account := strings.Split(config.Scheduler.Users[0], ":") // system:serviceaccount:NAMESPACE:NAME
		runs := deployment(t, documents, v1alpha1.SchedulerName)
		if len(account) != 4 || account[2] != runs.Namespace || account[3] != runs.Spec.Template.Spec.ServiceAccountName {
			t.Errorf("%q: the webhook knows users %v, and the scheduler is %s of %s", values, config.Scheduler.Users, runs.Spec.Template.Spec.ServiceAccountName, runs.Namespace)
		}
		if !strings.Contains(configured(t, documents, "scheduler.yaml"), "\n  - schedulerName: "+name) {
			t.Errorf("%q: the scheduler is not %s", values, name)
		}
	}
}

// In the place of the cluster's own scheduler it is that one's user and has that one's name, and the chart runs none.
func TestSchedulerInPlaceOfTheDefault(t *testing.T) {
	documents := rendered(t, newest, "scheduler: {replacesDefault: true}\nallocators: []")
	text := configured(t, documents, "webhook.yaml")
	if !strings.Contains(text, "\nschedulerName: default-scheduler\n") || !strings.Contains(text, "\n  users: [\""+stock+"\"]\n") {
		t.Errorf("the webhook is told\n%s", text)
	}
	if translator := translatorOf(t, documents); translator.Scheduler() != "default-scheduler" || len(translator.Makers()) != 1 {
		t.Errorf("pods get scheduler %s, whose claims %v make", translator.Scheduler(), translator.Makers())
	}
	for _, d := range find[*appsv1.Deployment](t, documents) {
		if d.Name == v1alpha1.SchedulerName {
			t.Error("the chart runs a scheduler too")
		}
	}
	if args := deployment(t, documents, "divvy-controller").Spec.Template.Spec.Containers[0].Args; !slices.Contains(args, "--scheduler=default-scheduler") {
		t.Errorf("the controller is told %q, and would give reasons beside the scheduler", args)
	}
	bound := false
	for _, b := range find[*rbacv1.ClusterRoleBinding](t, documents) {
		bound = bound || b.RoleRef.Name == v1alpha1.SchedulerName && len(b.Subjects) == 1 && b.Subjects[0].Kind == rbacv1.UserKind && b.Subjects[0].Name == stock
	}
	if !bound {
		t.Errorf("%s may not make claims", stock)
	}
}

func deployment(t *testing.T, documents []render.Document, name string) *appsv1.Deployment {
	t.Helper()
	for _, d := range find[*appsv1.Deployment](t, documents) {
		if d.Name == name {
			return d
		}
	}
	t.Fatalf("no deployment %s", name)
	return nil
}

// Only one replica may work: they compete for a lease that their account may hold, where it may.
func TestSchedulersLease(t *testing.T) {
	documents := rendered(t, newest, "scheduler: {enabled: true}")
	var config struct {
		LeaderElection struct {
			LeaderElect                     bool
			ResourceName, ResourceNamespace string
		}
	}
	if err := yaml.Unmarshal([]byte(configured(t, documents, "scheduler.yaml")), &config); err != nil {
		t.Fatal(err)
	}
	held := false
	for _, role := range find[*rbacv1.Role](t, documents) {
		if role.Name != v1alpha1.SchedulerName || role.Namespace != config.LeaderElection.ResourceNamespace {
			continue
		}
		for _, rule := range role.Rules {
			held = held || len(rule.ResourceNames) == 1 && rule.ResourceNames[0] == config.LeaderElection.ResourceName
		}
	}
	if !config.LeaderElection.LeaderElect || !held {
		t.Errorf("nobody can hold the lease of %+v", config.LeaderElection)
	}
	runs := deployment(t, documents, v1alpha1.SchedulerName)
	if *runs.Spec.Replicas != 2 {
		t.Errorf("%d replicas", *runs.Spec.Replicas)
	}
	container := runs.Spec.Template.Spec.Containers[0]
	for _, probe := range []*corev1.Probe{container.LivenessProbe, container.ReadinessProbe, container.StartupProbe} {
		open := "--authorization-always-allow-paths="
		for _, arg := range container.Args {
			if strings.HasPrefix(arg, open) {
				open = arg
			}
		}
		if probe.HTTPGet.Scheme != corev1.URISchemeHTTPS || !strings.Contains(open, probe.HTTPGet.Path) {
			t.Errorf("the kubelet may not ask %s", probe.HTTPGet.Path)
		}
	}
}

// Pods move where that is asked for, and not as it comes.
func TestConsolidation(t *testing.T) {
	for values, want := range map[string]bool{
		"scheduler: {enabled: true}":                       false,
		"scheduler: {enabled: true, consolidation: false}": false,
		"scheduler: {enabled: true, consolidation: true}":  true,
	} {
		container := deployment(t, rendered(t, newest, values), v1alpha1.SchedulerName).Spec.Template.Spec.Containers[0]
		if slices.Contains(container.Args, "--consolidate") != want {
			t.Errorf("%s: %v", values, container.Args)
		}
	}
}

func TestNoSchedulerInModeSlots(t *testing.T) {
	_, err := render.Chart(dir, render.Options{Namespace: namespace, Kubernetes: oldest, Values: "scheduler: {enabled: true}"})
	if err == nil || !strings.Contains(err.Error(), "needs mode claims") {
		t.Errorf("in mode slots: %v", err)
	}
}
