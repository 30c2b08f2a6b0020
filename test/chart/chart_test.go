package chart_test

import (
	"bytes"
	"errors"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/test/chart/manifests/plain"
	"github.com/divvy-gpu/divvy/test/chart/render"
	appsv1 "k8s.io/api/apps/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "rewrite testdata")

const (
	dir       = "../../deploy/chart"
	namespace = "divvy-system"
	newest    = "v1.36.3"
	oldest    = "v1.32.0"
)

// strict decodes one object by the types of Kubernetes: a field that they lack is an error.
func strict(t *testing.T, text []byte) runtime.Object {
	t.Helper()
	if err := apiextensionsv1.AddToScheme(scheme.Scheme); err != nil {
		t.Fatal(err)
	}
	decoder := json.NewSerializerWithOptions(json.DefaultMetaFactory, scheme.Scheme, scheme.Scheme, json.SerializerOptions{Yaml: true, Strict: true})
	object, _, err := decoder.Decode(text, nil, nil)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return object
}

func rendered(t *testing.T, kubernetes, values string) []render.Document {
	t.Helper()
	lenient := strings.Contains(values, "null")
	documents, err := render.Chart(dir, render.Options{Namespace: namespace, Kubernetes: kubernetes, Values: values, Lenient: lenient})
	if err != nil {
		t.Fatal(err)
	}
	return documents
}

// find returns the objects of a type that the chart makes.
func find[T runtime.Object](t *testing.T, documents []render.Document) []T {
	t.Helper()
	var found []T
	for _, d := range documents {
		if bytes.Contains(d.Text, []byte("apiVersion: cert-manager.io/")) || bytes.Contains(d.Text, []byte("apiVersion: monitoring.coreos.com/")) {
			continue
		}
		if object, ok := strict(t, d.Text).(T); ok {
			found = append(found, object)
		}
	}
	return found
}

// everything turns on what is off by default.
const everything = `
image: {digest: "sha256:` + "0123456789012345678901234567890123456789012345678901234567890123" + `"}
imagePullSecrets: [{name: registry}]
dialects:
  plain: {}
  hami: {memoryFactor: 1, corePolicy: burst}
  vcuda: {}
  qgpu: {policy: burst-share}
  elasticgpu: {}
  gpushare: {memoryUnit: MiB}
  volcano: {memoryFactor: 10}
  kai: {}
  koordinator: {}
  kueue: {}
  vgpu-manager: {memoryFactor: 10}
schedulerName: another
agent:
  simgpu: {dir: /var/lib/divvy/simgpu}
  metrics: {host: 10.0.0.7, dcgm: true}
  nodeSelector: {pool: gpus}
  env: [{name: KUBERNETES_SERVICE_HOST, value: 10.0.0.1}]
  podAnnotations: {a: b}
  podLabels: {c: d}
webhook:
  hostNetwork: true
  nodeSelector: {pool: system}
  affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: kubernetes.io/hostname, labelSelector: {matchLabels: {app.kubernetes.io/component: webhook}}}]}}
  tolerations: [{operator: Exists}]
  env: [{name: A, value: B}]
  podAnnotations: {a: b}
  podLabels: {c: d}
certificates: cert-manager
controller:
  replicas: 2
  hostNetwork: true
  env: [{name: A, value: B}]
  podAnnotations: {a: b}
  podLabels: {c: d}
slots: {binders: ["system:serviceaccount:here:binder"]}
metrics: {podMonitor: {enabled: true, labels: {release: prometheus}}, prometheusRule: {enabled: true, labels: {release: prometheus}}, dashboards: {enabled: true, labels: {a: b}}}
networkPolicy: {enabled: true, callers: [{ipBlock: {cidr: 10.0.0.4/32}}], scrapers: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: monitoring}}}]}
`

func TestObjectsAreWhatKubernetesKnows(t *testing.T) {
	for name, values := range map[string]string{
		"as it comes":                  "",
		"everything":                   everything,
		"the scheduler":                "scheduler: {enabled: true}",
		"the scheduler and everything": everything + "scheduler: {enabled: true, hostNetwork: true, replicas: 3, env: [{name: A, value: B}], podAnnotations: {a: b}, podLabels: {c: d}}",
		"the extender alone":           strings.Replace(everything, "slots: {binders: [\"system:serviceaccount:here:binder\"]}", extenderOnly, 1),
		"next to nothing":              "{uninstall: {check: false}, webhook: {replicas: 1}, agent: {affinity: null, tolerations: null}}",
	} {
		for _, kubernetes := range []string{oldest, "v1.35.4", newest, "v1.37.2"} {
			if kubernetes < "v1.36" && strings.Contains(values, "scheduler: {enabled: true") {
				continue // mode slots has no claims to give
			}
			t.Run(name+" "+kubernetes, func(t *testing.T) {
				seen := make(map[string]bool)
				for _, d := range rendered(t, kubernetes, values) {
					var object struct {
						APIVersion string
						Kind       string
						Metadata   struct{ Name, Namespace string }
					}
					if err := yaml.Unmarshal(d.Text, &object); err != nil {
						t.Fatal(err)
					}
					id := object.Kind + " " + object.Metadata.Name
					if seen[id] {
						t.Errorf("two objects are %s", id)
					}
					seen[id] = true
					if n := object.Metadata.Namespace; n != "" && n != namespace {
						t.Errorf("%s is in namespace %s", id, n)
					}
					if foreign := strings.Contains(object.APIVersion, "cert-manager.io") || strings.Contains(object.APIVersion, "monitoring.coreos.com"); !foreign {
						strict(t, d.Text)
					}
				}
				slots := kubernetes < "v1.36"
				if seen["Deployment divvy-scheduler"] != (slots || strings.HasPrefix(name, "the scheduler")) {
					t.Error("the scheduler is there where it is off, or not where it is on")
				}
				if !seen["DaemonSet divvy-agent"] || !seen["Deployment divvy-webhook"] || seen["Deployment divvy-controller"] == slots {
					t.Errorf("missing what runs: %v", slices.Sorted(maps.Keys(seen)))
				}
			})
		}
	}
}

func TestVersions(t *testing.T) {
	for _, c := range []struct {
		kubernetes, values, mode string // no mode is a refusal
	}{
		{"v1.31.9", "", ""},
		{"v1.33.9", "", "slots"},
		{"v1.32.0", "", "slots"},
		{"v1.34.0", "", "slots"},
		{"v1.35.4-gke.1000", "", "slots"},
		{"v1.36.0", "", "claims"},
		{"v1.36.0-rc.1", "", "claims"},
		{"v1.37.2-eks-1-2", "", "claims"},
		{"v1.36.3", "mode: slots", "slots"},
		{"v1.35.4", "mode: claims", ""},
	} {
		documents, err := render.Chart(dir, render.Options{Namespace: namespace, Kubernetes: c.kubernetes, Values: c.values})
		if c.mode == "" {
			if err == nil {
				t.Errorf("%s with %q is served", c.kubernetes, c.values)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s with %q: %v", c.kubernetes, c.values, err)
			continue
		}
		text := joined(documents)
		if !strings.Contains(text, "--mode="+c.mode) || !strings.Contains(text, "mode: "+c.mode+"\n") {
			t.Errorf("%s with %q is not in mode %s", c.kubernetes, c.values, c.mode)
		}
	}
	_, err := render.Chart(dir, render.Options{Namespace: namespace, Kubernetes: "v1.31.9"})
	if !errors.Is(err, render.ErrVersion) {
		t.Errorf("1.31: %v", err)
	}
}

func joined(documents []render.Document) string {
	var all strings.Builder
	for _, d := range documents {
		all.WriteString("---\n")
		all.Write(d.Text)
	}
	return all.String()
}

func TestValuesRefused(t *testing.T) {
	for _, values := range []string{
		"agents: {}",
		"agent: {nodeselector: {a: b}}",
		"agent: {outside: punish}",
		"agent: {history: {days: 0}}",
		"agent: {defaultPolicy: fair}",
		"agent: {defaultPolicy: fixed}",
		"agent: {defaultPolicy: burst, defaultCores: 0}",
		"agent: {defaultCores: 101}",
		"agent: {defaultCores: \"5\"}",
		"agent: {metrics: {port: 0}}",
		"agent: {driverRoot: relative}",
		"agent: {simgpu: {dir: relative}}",
		"agent: {maxUnavailable: 0}",
		"agent: {maxUnavailable: 0%}",
		"agent: {resources: {limit: {}}}",
		"mode: dra",
		"certificates: letsencrypt",
		"image: {digest: latest}",
		"image: {pullPolicy: Sometimes}",
		"webhook: {replicas: 0}",
		"webhook: {timeoutSeconds: 31}",
		"dialects: {plain: null}",
		"dialects: {unknown: {}}",
		"dialects: {plain: {a: b}}",
		"dialects: {nvidia: {}, hami: {}}",
		"dialects: {hami: {}, 4paradigm: {}}",
		"dialects: {hami: {corePolicy: weighted}}",
		"dialects: {gpushare: {memoryUnit: GB}}",
		"slots: {binders: system:kube-scheduler}",
		"networkPolicy: {enabled: yes please}",
		"networkPolicy: {enabled: true}",
		"networkPolicy: {enabled: true, callers: [{}]}",
		"webhook: {clients: {authority: x, names: [a]}}",
		"webhook: {clients: {names: [a]}}",
		"webhook: {clients: {authority: -----BEGIN CERTIFICATE-----}}",
		"agent: {kubeletDir: relative}",
		"maxWeight: 1001",
		"agent: {kubeletDir: /var/lib/kubelet/}",
		"scheduler: {enable: true}",
		"scheduler: {replicas: 0}",
		"scheduler: {requestsPerSecond: 0}",
		"scheduler: {consolidation: yes please}",
		"allocators: system:kube-scheduler",
		`allocators: ["a'b"]`,
	} {
		if _, err := render.Chart(dir, render.Options{Namespace: namespace, Kubernetes: newest, Values: values}); err == nil {
			t.Errorf("%s is taken", values)
		} else if !strings.Contains(err.Error(), "take the values") {
			t.Errorf("%s is refused by another than the schema: %v", values, err)
		}
	}
}

func TestDefaultsOfShares(t *testing.T) {
	for values, want := range map[string][]string{
		"":                                 nil,
		"agent: {defaultPolicy: weighted}": {"--default-policy=weighted"},
		"agent: {defaultCores: 5}":         {"--default-cores=5"},
		"agent: {defaultPolicy: burst, defaultCores: 10}": {"--default-policy=burst", "--default-cores=10"},
	} {
		var got []string
		for _, set := range find[*appsv1.DaemonSet](t, rendered(t, newest, values)) {
			for _, arg := range set.Spec.Template.Spec.Containers[0].Args {
				if strings.HasPrefix(arg, "--default-") {
					got = append(got, arg)
				}
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q: %v, want %v", values, got, want)
		}
	}
	if _, err := render.Chart(dir, render.Options{Namespace: namespace, Kubernetes: oldest, Values: "agent: {defaultCores: 5}"}); err == nil || !strings.Contains(err.Error(), "need mode claims") {
		t.Errorf("in mode slots: %v", err)
	}
}

func TestRights(t *testing.T) {
	for mode, kubernetes := range map[string]string{"claims": newest, "slots": oldest, "scheduler": newest} {
		documents := rendered(t, kubernetes, map[string]string{"scheduler": "scheduler: {enabled: true}"}[mode])
		var all bytes.Buffer
		for _, role := range find[*rbacv1.ClusterRole](t, documents) {
			if mode == "scheduler" && role.Name != "divvy-scheduler" {
				continue // as without it
			}
			writeRules(t, &all, "ClusterRole "+role.Name, role.Rules)
		}
		for _, role := range find[*rbacv1.Role](t, documents) {
			if mode == "scheduler" && role.Name != "divvy-scheduler" {
				continue
			}
			writeRules(t, &all, "Role "+role.Name, role.Rules)
		}
		golden(t, "rights-"+mode+".yaml", all.Bytes())
	}
}

func writeRules(t *testing.T, all *bytes.Buffer, title string, rules []rbacv1.PolicyRule) {
	t.Helper()
	for _, rule := range rules {
		for _, list := range [][]string{rule.APIGroups, rule.Resources, rule.Verbs} {
			if slices.Contains(list, "*") {
				t.Errorf("%s may do anything with something: %v", title, rule)
			}
		}
	}
	text, err := yaml.Marshal(map[string]any{title: rules})
	if err != nil {
		t.Fatal(err)
	}
	all.Write(text)
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s is not as it was; -update rewrites it:\n%s", path, got)
	}
}

func TestWrittenFilesAreRendered(t *testing.T) {
	dialects, err := plain.Dialects()
	if err != nil {
		t.Fatal(err)
	}
	same(t, filepath.Join(dir, "files", "dialects.yaml"), dialects)
	for _, file := range plain.Files {
		text, err := file.Render(dir)
		if err != nil {
			t.Fatal(err)
		}
		same(t, filepath.Join("../../deploy/manifests", file.Name), text)
		parts, err := render.Split(text)
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range parts {
			strict(t, part)
			if bytes.Contains(part, []byte("helm.sh/")) {
				t.Errorf("%s holds what only Helm understands:\n%s", file.Name, part)
			}
		}
	}
}

func same(t *testing.T, path string, want []byte) {
	t.Helper()
	if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s is not what it is rendered from (%v): run make manifests", path, err)
	}
}
