// Package render renders the chart as Helm would, without Helm and without a cluster. It serves the plain manifests and
// the chart's tests.
package render

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	chartutil "helm.sh/helm/v4/pkg/chart/v2/util"
	"helm.sh/helm/v4/pkg/engine"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"
)

// ErrVersion says that the chart is not for that version of Kubernetes.
var ErrVersion = errors.New("the chart does not serve this version of Kubernetes")

// Options are what `helm install` would be told.
type Options struct {
	// Namespace is the release's.
	Namespace string
	// Kubernetes is the cluster's version, such as v1.36.3.
	Kubernetes string
	// Values is YAML that is laid over the chart's own.
	Values string
	// Lenient takes values that are not there for empty ones, as Helm does: users take defaults away by null.
	Lenient bool
	// Cluster holds what the chart's look-ups find, by plural name: nil is no cluster, as in `helm template`. Values that are
	// not there are empty then.
	Cluster map[string][]runtime.Object
}

// Document is one object of a rendered chart.
type Document struct {
	// Template is the file that it comes from, below templates/.
	Template string
	// Text is YAML, comments included.
	Text []byte
}

// Chart renders the chart in dir: the files in order of their names, in each the objects as they come. Values that the
// schema refuses are errors.
func Chart(dir string, options Options) ([]Document, error) {
	files, err := options.render(dir)
	if err != nil {
		return nil, err
	}
	var documents []Document
	for _, name := range slices.Sorted(maps.Keys(files)) {
		base := path.Base(name)
		if strings.HasPrefix(base, "_") || path.Ext(base) != ".yaml" {
			continue
		}
		parts, err := Split([]byte(files[name]))
		if err != nil {
			return nil, fmt.Errorf("split %s: %w", base, err)
		}
		for _, part := range parts {
			documents = append(documents, Document{Template: base, Text: part})
		}
	}
	return documents, nil
}

// Notes is what Helm says when it has installed the chart in dir.
func Notes(dir string, options Options) (string, error) {
	files, err := options.render(dir)
	if err != nil {
		return "", err
	}
	for name, text := range files {
		if path.Base(name) == "NOTES.txt" {
			return text, nil
		}
	}
	return "", errors.New("the chart has no notes")
}

// render renders all files of the chart in dir.
func (o Options) render(dir string) (map[string]string, error) {
	chart, err := loader.LoadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("load the chart %s: %w", dir, err)
	}
	var values map[string]any
	if err := yaml.Unmarshal([]byte(o.Values), &values); err != nil {
		return nil, fmt.Errorf("read the values: %w", err)
	}
	version, err := common.ParseKubeVersion(o.Kubernetes)
	if err != nil {
		return nil, fmt.Errorf("read the version of Kubernetes: %w", err)
	}
	if !chartutil.IsCompatibleRange(chart.Metadata.KubeVersion, version.String()) {
		return nil, fmt.Errorf("%w: %s is not %s", ErrVersion, version, chart.Metadata.KubeVersion)
	}
	capabilities := common.DefaultCapabilities.Copy()
	capabilities.KubeVersion = *version
	release := common.ReleaseOptions{Name: "divvy", Namespace: o.Namespace, Revision: 1, IsInstall: true}
	all, err := util.ToRenderValues(chart, values, release, capabilities)
	if err != nil {
		return nil, fmt.Errorf("take the values: %w", err)
	}
	files, err := o.files(chart, all)
	if err != nil {
		return nil, fmt.Errorf("render the chart: %w", err)
	}
	return files, nil
}

// files renders the templates.
func (o Options) files(chart *chart.Chart, values common.Values) (map[string]string, error) {
	if o.Cluster == nil {
		return engine.Engine{Strict: !o.Lenient}.RenderWithContext(context.Background(), chart, values)
	}
	return engine.RenderWithClientProvider(chart, values, o)
}

// GetClientFor implements [engine.ClientProvider] for kinds of the cluster.
func (o Options) GetClientFor(apiVersion, kind string) (dynamic.NamespaceableResourceInterface, bool, error) {
	version, err := schema.ParseGroupVersion(apiVersion)
	if err != nil {
		return nil, false, fmt.Errorf("look up %s: %w", kind, err)
	}
	plural, _ := meta.UnsafeGuessKindToResource(version.WithKind(kind))
	lists := map[schema.GroupVersionResource]string{plural: kind + "List"}
	return fake.NewSimpleDynamicClientWithCustomListKinds(scheme.Scheme, lists, o.Cluster[plural.Resource]...).Resource(plural), false, nil
}

// Split returns the documents of a YAML file that hold anything but comments.
func Split(text []byte) ([][]byte, error) {
	var parts [][]byte
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	for {
		part, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return parts, nil
		}
		if err != nil {
			return nil, err
		}
		var any map[string]any
		if err := yaml.UnmarshalStrict(part, &any); err != nil {
			return nil, err
		}
		if len(any) > 0 {
			parts = append(parts, append(bytes.TrimSpace(part), '\n'))
		}
	}
}

// IsHook reports whether Helm runs the object at some moment instead of installing it.
func (d Document) IsHook() bool {
	var object struct {
		Metadata struct {
			Annotations map[string]string `json:"annotations"`
		} `json:"metadata"`
	}
	return yaml.Unmarshal(d.Text, &object) == nil && object.Metadata.Annotations["helm.sh/hook"] != ""
}
