package main

import (
	"os"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// What is measured is the scheduler's configuration that the chart ships, but for how the extender is reached.
func TestSchedulerIsConfiguredAsShipped(t *testing.T) {
	manifests, err := os.ReadFile("../../../deploy/manifests/divvy-slots.yaml")
	if err != nil {
		t.Fatal(err)
	}
	shipped := ""
	for document := range strings.SplitSeq(string(manifests), "\n---\n") {
		var m corev1.ConfigMap
		if err := yaml.Unmarshal([]byte(document), &m); err == nil && m.Kind == "ConfigMap" && strings.Contains(m.Data["scheduler.yaml"], "extenders:") {
			shipped = m.Data["scheduler.yaml"]
		}
	}
	if a, b := decisive(t, schedulerConfigOf("file", "https://127.0.0.1:1", "certificate", "key")), decisive(t, shipped); !reflect.DeepEqual(a, b) {
		t.Errorf("measured is %v\nand shipped %v", a, b)
	}
}

// decisive is what of a configuration decides where pods go.
func decisive(t *testing.T, text string) map[string]any {
	t.Helper()
	var all map[string]any
	if err := yaml.UnmarshalStrict([]byte(text), &all); err != nil {
		t.Fatal(err)
	}
	extenders, ok := all["extenders"].([]any)
	if !ok || len(extenders) == 0 {
		t.Fatalf("no extender in %q", text)
	}
	for i := range extenders {
		extender, ok := extenders[i].(map[string]any)
		if !ok {
			t.Fatalf("extender %d is %v", i, extenders[i])
		}
		for _, key := range []string{"urlPrefix", "tlsConfig", "httpTimeout"} {
			delete(extender, key)
		}
	}
	delete(all, "clientConnection")
	delete(all, "leaderElection")
	return all
}
