package chart_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/dialect"
	"github.com/divvy-gpu/divvy/internal/queue"
	"github.com/divvy-gpu/divvy/internal/queuefile"
	"github.com/divvy-gpu/divvy/test/chart/render"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// options of the dialects whose own defaults are no use to an example.
var exampleOptions = map[string]string{"nvidia": "{replicas: 4}"}

// translator knows the plain form and the dialect that an example's name says.
func translator(t *testing.T, file string) *dialect.Translator {
	t.Helper()
	text := "apiVersion: divvy.dev/v1alpha1\nkind: WebhookConfig\ndialects:\n  plain: {}\n"
	if dialect, ok := strings.CutPrefix(file, "dialect-"); ok {
		dialect = strings.TrimSuffix(dialect, ".yaml")
		text += "  " + dialect + ": " + exampleOptions[dialect] + "\n"
	}
	made, err := dialect.NewTranslator([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// podOf returns the pod that an object makes, if it makes one.
func podOf(object runtime.Object) *corev1.Pod {
	var template *corev1.PodTemplateSpec
	switch o := object.(type) {
	case *corev1.Pod:
		return o
	case *appsv1.Deployment:
		template = &o.Spec.Template
	case *batchv1.Job:
		template = &o.Spec.Template
	default:
		return nil
	}
	return &corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
}

func TestExamples(t *testing.T) {
	files, err := filepath.Glob("../../docs/examples/*.yaml")
	if err != nil || len(files) < 15 {
		t.Fatalf("%d examples (%v)", len(files), err)
	}
	missing := dialect.OwnedNames()
	delete(missing, "plain")
	inventory := dialect.Inventory{Sizes: []uint64{16 << 30, 80 << 30}}
	for _, file := range files {
		name := filepath.Base(file)
		delete(missing, strings.TrimSuffix(strings.TrimPrefix(name, "dialect-"), ".yaml"))
		t.Run(name, func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.HasPrefix(string(text), "# ") {
				t.Error("it does not say what it shows")
			}
			parts, err := render.Split(text)
			if err != nil {
				t.Fatal(err)
			}
			translate := translator(t, name)
			templates := make(map[string]*resourcev1.ResourceClaimSpec)
			var pods int
			tree := queuesOfExample(t, name, text)
			for _, part := range parts {
				if strings.Contains(string(part), "\nkind: "+v1alpha1.KindQueue+"\n") {
					continue // our own reader has judged it
				}
				object := strict(t, part)
				switch o := object.(type) {
				case *resourcev1.ResourceClaimTemplate:
					templates[o.Name] = &o.Spec.Spec
				case *resourcev1.ResourceClaim:
					templates[o.Name] = &o.Spec
				}
				if pod := podOf(object); pod != nil {
					pods++
					asks(t, translate, pod, inventory, templates)
					queues(t, tree, pod, object.(metav1.Object).GetNamespace())
				}
			}
			if pods == 0 {
				t.Error("nothing in it runs")
			}
			for name, spec := range templates {
				if err := (dialect.Classes{NVIDIA: true}).ValidateClaim(spec); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
		})
	}
	for dialect := range missing {
		t.Errorf("no example of dialect %s", dialect)
	}
}

// queuesOfExample reads the queues of an example, nil where it has none.
func queuesOfExample(t *testing.T, name string, text []byte) *queue.Tree {
	t.Helper()
	if !strings.Contains(string(text), "\nkind: "+v1alpha1.KindQueue+"\n") {
		return nil
	}
	specs, err := queuefile.Read(name, text)
	if err != nil {
		t.Fatal(err)
	}
	return queue.NewTree(specs)
}

// queues checks that a pod of an example with queues is in one of them, and that its labels are read.
func queues(t *testing.T, tree *queue.Tree, pod *corev1.Pod, namespace string) {
	t.Helper()
	if tree == nil {
		return
	}
	if tree.Name(tree.Of(namespace)) == "" {
		t.Errorf("namespace %q has no queue", namespace)
	}
	if name := pod.Labels[v1alpha1.QueueLabel]; name != "" && !tree.Admits(name, namespace) {
		t.Errorf("queue %s is not for pods of namespace %q", name, namespace)
	}
	if _, err := v1alpha1.ParseQuota(pod.Labels[v1alpha1.QuotaLabel]); err != nil {
		t.Error(err)
	}
}

// asks checks that a pod asks for a GPU, in words that are understood or by a claim that the example defines.
func asks(t *testing.T, translate *dialect.Translator, pod *corev1.Pod, inventory dialect.Inventory, templates map[string]*resourcev1.ResourceClaimSpec) {
	t.Helper()
	made, err := translate.Translate(pod, inventory)
	if err != nil {
		t.Error(err)
	}
	for _, claim := range pod.Spec.ResourceClaims {
		names := []*string{claim.ResourceClaimName, claim.ResourceClaimTemplateName}
		if !slices.ContainsFunc(names, func(n *string) bool { return n != nil && templates[*n] != nil }) {
			t.Errorf("pod %s names a claim %s that is not there", pod.Name, claim.Name)
		}
	}
	switch {
	case len(pod.Spec.ResourceClaims) == 0 && (len(made.Patch) == 0 || len(made.Templates) == 0):
		t.Errorf("pod %s asks for no GPU", pod.Name)
	case len(pod.Spec.ResourceClaims) > 0 && len(made.Patch) > 0:
		t.Errorf("pod %s asks twice", pod.Name)
	}
	for i := range made.Templates {
		if err := (dialect.Classes{NVIDIA: true}).ValidateClaim(&made.Templates[i].Spec.Spec); err != nil {
			t.Error(err)
		}
	}
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		if c.Image != "ghcr.io/divvy-gpu/gpubench:0.1.0" {
			t.Errorf("image %s is not built here", c.Image)
		}
		if slices.Contains(c.Command, "hold") && !c.Stdin {
			t.Errorf("container %s ends at once: gpubench hold ends with its input", c.Name)
		}
	}
}
