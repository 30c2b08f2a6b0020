package dialect

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// TestGolden compares patches and templates, byte for byte, with recorded ones: a template's name is part of clusters
// that run, so a change of one must be meant. UPDATE=1 records them anew.
func TestGolden(t *testing.T) {
	pods, err := filepath.Glob("testdata/*.pod.yaml")
	if err != nil || len(pods) == 0 {
		t.Fatalf("pods %v, %v", pods, err)
	}
	translator := newTranslator(t, "{plain: {}, hami: {}}")
	for _, path := range pods {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		pod := readPod(t, string(text))
		translated(t, translator, pod, sixteenForty)
		patch, templates, err := translate(translator, pod, sixteenForty)
		if err != nil {
			t.Errorf("%s: %v", path, err)
		}
		asJSON, err := json.Marshal(map[string]any{"patch": patch, "templates": templates})
		if err != nil {
			t.Fatal(err)
		}
		got, err := yaml.JSONToYAML(asJSON)
		if err != nil {
			t.Fatal(err)
		}
		golden := strings.Replace(path, ".pod.", ".want.", 1)
		if os.Getenv("UPDATE") != "" {
			if err := os.WriteFile(golden, got, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if want, err := os.ReadFile(golden); err != nil || string(want) != string(got) {
			t.Errorf("%s: %v, got\n%s", golden, err, got)
		}
	}
}

func TestPatchKeepsWhatIsThere(t *testing.T) {
	pod := readPod(t, `
spec:
  schedulerName: hami-scheduler
  resourceClaims: [{name: divvy-main, resourceClaimName: mine}, {name: nic, resourceClaimTemplateName: nic}]
  containers:
  - name: main
    resources:
      claims: [{name: divvy-main}]
      limits: {cpu: 1, nvidia.com/gpu: 1, nvidia.com/gpumem: 1000}
      requests: {cpu: 1, nvidia.com/gpu: 1, nvidia.com/gpumem: 1000}
  - name: other
    resources: {limits: {nvidia.com/gpu: 0}}
`)
	patch, _, err := translate(newTranslator(t, "{hami: {}}"), pod, sixteen)
	if err != nil {
		t.Fatal(err)
	}
	var paths []string
	for _, step := range patch {
		paths = append(paths, step.Op+" "+step.Path)
	}
	want := strings.Join([]string{
		"remove /spec/containers/0/resources/limits/nvidia.com~1gpu",
		"remove /spec/containers/0/resources/limits/nvidia.com~1gpumem",
		"remove /spec/containers/0/resources/requests/nvidia.com~1gpu",
		"remove /spec/containers/0/resources/requests/nvidia.com~1gpumem",
		"add /spec/containers/0/resources/claims/-",
		"add /spec/resourceClaims/-",
		"replace /spec/schedulerName",
	}, "\n")
	if got := strings.Join(paths, "\n"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	patched := apply(t, pod, patch)
	if got := patched.Spec.ResourceClaims[2].Name; got != "divvy-main-2" || patched.Spec.Containers[0].Resources.Claims[1].Name != got {
		t.Errorf("the claim is named %q beside one of the pod's own", got)
	}
	if patched.Spec.SchedulerName != "default-scheduler" {
		t.Errorf("scheduler %q", patched.Spec.SchedulerName)
	}
}

func TestSchedulers(t *testing.T) {
	for name, want := range map[string]string{"hami-scheduler": "default-scheduler", "default-scheduler": "default-scheduler", "divvy-scheduler": "divvy-scheduler", "my-own": "my-own"} {
		pod := limitsOf(t, "nvidia.com/gpu: 1")
		pod.Spec.SchedulerName = name
		patch, _, err := translate(newTranslator(t, "{hami: {}}"), pod, sixteen)
		if err != nil {
			t.Fatal(err)
		}
		if got := apply(t, pod, patch).Spec.SchedulerName; got != want {
			t.Errorf("scheduler %s became %s, want %s", name, got, want)
		}
	}
	other := limitsOf(t, "cpu: 1")
	other.Spec.SchedulerName = "hami-scheduler"
	if patch, _, err := translate(newTranslator(t, "{hami: {}}"), other, sixteen); err != nil || len(patch) > 0 {
		t.Errorf("a pod without GPUs becomes %v, %v", patch, err)
	}
}

func TestLongNames(t *testing.T) {
	pod := readPod(t, pieces(t, "main "+strings.Repeat("a", 63)+" divvy.dev/gpu-memory: 1Gi", "main "+strings.Repeat("a", 62)+"b divvy.dev/gpu-memory: 1Gi"))
	if got := translated(t, newTranslator(t, "{plain: {}}"), pod, sixteen); strings.Count(got, "share") != 2 {
		t.Error(got)
	}
}

func TestSameRequestSameTemplate(t *testing.T) {
	translator := newTranslator(t, "{plain: {}, hami: {}}")
	name := func(limits ...string) string {
		_, templates, err := translate(translator, limitsOf(t, limits...), sixteen)
		if err != nil || len(templates) != 1 {
			t.Fatalf("%d templates, %v", len(templates), err)
		}
		return templates[0].Name
	}
	if a, b := name("divvy.dev/gpu-memory: 1Gi", "divvy.dev/gpu-cores: 30"), name("nvidia.com/gpumem: 1024", "nvidia.com/gpucores: 30"); a != b {
		t.Errorf("one request has the templates %s and %s", a, b)
	}
	if a, b := name("divvy.dev/gpu-memory: 1Gi"), name("divvy.dev/gpu-memory: 2Gi"); a == b {
		t.Error("two requests have one template")
	}
	two := readPod(t, pieces(t, "main a divvy.dev/gpu-memory: 1Gi", "main b divvy.dev/gpu-memory: 1Gi"))
	if _, templates, err := translate(translator, two, sixteen); err != nil || len(templates) != 1 {
		t.Errorf("equal requests of one pod have %d templates, %v", len(templates), err)
	}
}
