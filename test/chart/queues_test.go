package chart_test

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/test/bench/plane"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"
)

// queuesOf installs the chart's kind Queue, and waits until it is served.
func queuesOf(t *testing.T, p *plane.Plane) dynamic.ResourceInterface {
	t.Helper()
	install(t, p, rendered(t, newest, "scheduler: {enabled: true}"), map[string]string{"CustomResourceDefinition": "customresourcedefinitions"})
	client, err := dynamic.NewForConfig(p.Config())
	if err != nil {
		t.Fatal(err)
	}
	queues := client.Resource(schema.GroupVersionResource{Group: v1alpha1.Domain, Version: "v1alpha1", Resource: v1alpha1.QueueResources})
	served := func(ctx context.Context) (bool, error) {
		_, err := queues.List(ctx, metav1.ListOptions{})
		return err == nil, nil
	}
	if err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, longest, true, served); err != nil {
		t.Fatalf("wait until queues are served: %v", err)
	}
	return queues
}

// queueOf is a queue with a specification, written in YAML.
func queueOf(t *testing.T, name, spec string) *unstructured.Unstructured {
	t.Helper()
	var object map[string]any
	text := fmt.Sprintf("{apiVersion: divvy.dev/v1alpha1, kind: Queue, metadata: {name: %s}, spec: %s}", name, spec)
	if err := yaml.Unmarshal([]byte(text), &object); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return &unstructured.Unstructured{Object: object}
}

// share is a queue's specification with one resource.
func share(fields string) string { return "{resources: [{" + fields + "}]}" }

// TestQueuesAreJudged makes queues at an API server, which refuses what one queue alone shows to be wrong, and what it takes is
// what our own code takes.
func TestQueuesAreJudged(t *testing.T) {
	queues := queuesOf(t, newPlane(t, ""))
	const gpus, cores, memory, below = "is no number of GPUs of a cluster", "is no percentage of GPUs", "is no whole number of Mi", "limit is below guaranteed"
	many := strings.TrimSuffix(strings.Repeat("%s, ", 1024), ", ")
	var namespaces []any
	for i := range 1024 {
		namespaces = append(namespaces, fmt.Sprint("n", i))
	}
	for _, c := range []struct{ name, spec, refused string }{
		{"vision", "{}", ""},
		{"vision.eu-1", "{parent: research, grace: 1m30s, minimumRunTime: '0', namespaces: [a, b]}", ""},
		{"many", "{namespaces: [" + fmt.Sprintf(many, namespaces...) + "]}", ""},
		{"too-many", "{namespaces: [" + fmt.Sprintf(many, namespaces...) + ", n]}", "at most 1024 items"},
		{"gpus", share(`guaranteed: 4, limit: "8500m", lendingLimit: 0, weight: 2`), ""},
		{"fraction", share(`model: H100 (80 GB), unit: gpus, guaranteed: "2.5", limit: "2.5000"`), ""},
		{"memory", share(`unit: memory, guaranteed: 80Gi, limit: 161061273600, lendingLimit: "0.5Gi"`), ""},
		{"cores", share(`unit: cores, guaranteed: 30, limit: "200"`), ""},
		{"several", "{resources: [{model: H100, guaranteed: 1}, {model: A100, guaranteed: 1}, {unit: memory}, {}]}", ""},
		{strings.Repeat("q", 63), "{}", ""},
		{strings.Repeat("q", 64), "{}", "metadata.name"},
		{"itself", "{parent: itself}", "its own parent"},
		{"capital", "{parent: Research}", "spec.parent"},
		{"typed", "{guarantee: 4}", `unknown field "spec.guarantee"`},
		{"negative", share("guaranteed: -4"), "guaranteed"},
		{"negative-text", share(`guaranteed: "-4"`), "guaranteed"},
		{"number", share("guaranteed: 2.5"), "guaranteed"},
		{"finer", share(`guaranteed: "2.0005"`), "guaranteed " + gpus},
		{"finer-milli", share(`guaranteed: "0.5m"`), "guaranteed " + gpus},
		{"words", share("guaranteed: four"), "guaranteed"},
		{"exponent", share(`guaranteed: "1e3"`), "guaranteed"},
		{"huge", share(`limit: "2G"`), "limit " + gpus},
		{"huge-memory", share(`unit: memory, lendingLimit: 2Ei`), "lendingLimit " + memory},
		{"huge-cores", share("unit: cores, guaranteed: 1099511627777"), cores},
		{"half-cores", share(`unit: cores, guaranteed: "2.5"`), cores},
		{"memory-alone", share("unit: memory, guaranteed: 80"), memory},
		{"memory-part", share("unit: memory, guaranteed: 80M"), memory},
		{"below", share(`guaranteed: 4, limit: "3999m"`), below},
		{"weight", share("weight: -1"), "weight"},
		{"weight-huge", share("weight: 1073741825"), "weight"},
		{"unit", share("unit: tons"), "unit"},
		{"model", share("model: H100;"), "model"},
		{"model-spaces", share("model: ' '"), "model"},
		{"twice", "{resources: [{guaranteed: 1}, {model: '', unit: gpus, guaranteed: 2}]}", "Duplicate"},
		{"grace", "{grace: 30}", "grace"},
		{"grace-words", "{grace: soon}", "grace"},
		{"grace-negative", "{grace: -30s}", "grace"},
		{"grace-long", "{grace: 168h1s}", "0s to 168h"},
		{"runs-long", "{minimumRunTime: 8000000h}", "0s to 168h"},
		{"rest", "{namespaces: ['*', a]}", ""},
		{"pattern", "{namespaces: ['a*']}", "namespaces"},
		{"namespace", "{namespaces: ['']}", "namespaces"},
		{"namespace-twice", "{namespaces: [a, a]}", "Duplicate"},
	} {
		t.Run(c.name, func(t *testing.T) {
			object := queueOf(t, c.name, c.spec)
			text, err := json.Marshal(object.Object)
			if err != nil {
				t.Fatal(err)
			}
			made, err := queues.Create(t.Context(), object, metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
			if c.refused != "" {
				if !apierrors.IsInvalid(err) && !apierrors.IsBadRequest(err) || !strings.Contains(err.Error(), c.refused) {
					t.Errorf("the API server says %v, want %q", err, c.refused)
				}
				if queue, err := v1alpha1.DecodeQueue(text); err == nil && queue.Spec.Validate(c.name) == nil && c.refused != "its own parent" && c.name != "too-many" {
					t.Error("our code takes it")
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			stored, err := json.Marshal(made.Object)
			if err != nil {
				t.Fatal(err)
			}
			queue, err := v1alpha1.DecodeQueue(stored)
			if err == nil {
				err = queue.Spec.Validate(c.name)
			}
			if err != nil {
				t.Errorf("our code refuses it: %v", err)
			}
		})
	}
}

// TestQueueStatus writes what the scheduler writes. It is kept whole, apart from the specification, and shown by kubectl.
func TestQueueStatus(t *testing.T) {
	p := newPlane(t, "")
	queues := queuesOf(t, p)
	if _, err := queues.Create(t.Context(), queueOf(t, "vision", "{parent: research, resources: [{guaranteed: 4}]}"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	want := v1alpha1.QueueStatus{
		ObservedGeneration: 1, Running: 3, Waiting: 2,
		Resources:  []v1alpha1.QueueUse{{Model: "H100", Unit: v1alpha1.UnitMemory, Guaranteed: 81920, Entitled: 1, Used: 2, Lent: 3, Borrowed: 4, Demand: 5}},
		Conditions: []v1alpha1.QueueCondition{{Type: "NoParent", Status: "True", ObservedGeneration: 1, LastTransitionTime: "2026-11-24T00:00:00Z", Reason: "NoParent", Message: "there is no queue research"}},
	}
	text, err := json.Marshal(map[string]any{"status": want, "spec": map[string]any{"parent": "other"}})
	if err != nil {
		t.Fatal(err)
	}
	made, err := queues.Patch(t.Context(), "vision", types.MergePatchType, text, metav1.PatchOptions{FieldValidation: metav1.FieldValidationStrict}, "status")
	if err != nil {
		t.Fatal(err)
	}
	if text, err = json.Marshal(made.Object); err != nil {
		t.Fatal(err)
	}
	got, err := v1alpha1.DecodeQueue(text)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got.Status, want) || got.Spec.Parent != "research" || got.Metadata.Generation != 1 {
		t.Errorf("%+v", got)
	}
	table, err := p.Client().CoreV1().RESTClient().Get().AbsPath("/apis/divvy.dev/v1alpha1/queues").SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").DoRaw(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var shown metav1.Table
	if err := json.Unmarshal(table, &shown); err != nil {
		t.Fatal(err)
	}
	if cells := fmt.Sprint(shown.Rows[0].Cells[:5]...); cells != fmt.Sprint("vision", "research", 3, 2, "NoParent") {
		t.Errorf("kubectl shows %s", cells)
	}
}

// The kind is there where the scheduler runs, unless a value says no, and the rights to it are there in either case.
func TestQueuesAreInstalled(t *testing.T) {
	for values, want := range map[string]bool{
		"": false, "scheduler: {enabled: true}": true, "scheduler: {replacesDefault: true}": true,
		"scheduler: {enabled: true, queues: false}": false,
	} {
		documents := rendered(t, newest, values)
		if got := len(find[*apiextensionsv1.CustomResourceDefinition](t, documents)) == 1; got != want {
			t.Errorf("%q: the kind is there: %v", values, got)
		}
		may := map[string]bool{}
		for _, role := range find[*rbacv1.ClusterRole](t, documents) {
			for _, rule := range role.Rules {
				for _, r := range rule.Resources {
					may[role.Name+" "+r] = true
				}
			}
		}
		// The kind stays when it is not installed any more, and a scheduler that may not read queues would start nothing.
		runs := values != ""
		for right, want := range map[string]bool{
			"divvy-scheduler queues": runs, "divvy-scheduler queues/status": runs, "divvy-scheduler pods/eviction": runs, "divvy-webhook queues": runs,
			"divvy-queues queues": want,
		} {
			if may[right] != want {
				t.Errorf("%q: %s: %v", values, right, may[right])
			}
		}
	}
}
