package cni

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
)

// api stands in for a cluster's API server: it keeps objects of any kind by their paths, with versions. It refuses what an API
// server refuses: an object that is there already, a change of an old version, and a patch one of whose tests fails. Its patches
// are made by the library that an API server makes them by.
type api struct {
	mu      sync.Mutex
	objects map[string]map[string]any
	version int
}

// newAPI starts one on the loopback device, and returns it with a kubeconfig for it.
func newAPI(t *testing.T) (a *api, kubeconfig string) {
	t.Helper()
	a = &api{objects: map[string]map[string]any{}}
	server := httptest.NewServer(a)
	t.Cleanup(server.Close)
	kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: it, clusters: [{name: it, cluster: {server: %q}}], `+
		`contexts: [{name: it, context: {cluster: it, user: it, namespace: kube-system}}], users: [{name: it, user: {token: none}}]}`, server.URL)
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return a, kubeconfig
}

// ServeHTTP implements [http.Handler].
func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // whoever asked has gone
	}
	code, object := a.answer(r, body)
	if object == nil {
		object = map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reasons[code]}
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(object)
}

// reasons are those by which clients tell failures apart, by the number of each.
var reasons = map[int]string{http.StatusNotFound: "NotFound", http.StatusConflict: "Conflict", http.StatusUnprocessableEntity: "Invalid", http.StatusBadRequest: "BadRequest"}

// answer does what is asked. There is no object where it fails.
func (a *api) answer(r *http.Request, body []byte) (code int, object map[string]any) {
	path := r.URL.Path
	there := a.objects[path]
	switch {
	case r.Method == http.MethodPost:
		return a.create(path, body)
	case r.Method == http.MethodGet && strings.Count(path, "/") == strings.Count(group, "/"): // without a name
		return http.StatusOK, a.list(path)
	case there == nil:
		return http.StatusNotFound, nil
	case r.Method == http.MethodGet:
		return http.StatusOK, there
	case r.Method == http.MethodDelete:
		delete(a.objects, path)
		return http.StatusOK, map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Success"}
	case r.Method == http.MethodPut:
		if object = decoded(body); object == nil {
			return http.StatusBadRequest, nil
		}
		if versionOf(object) != versionOf(there) {
			return http.StatusConflict, nil
		}
		return http.StatusOK, a.keep(path, object)
	case r.Method == http.MethodPatch && r.Header.Get("Content-Type") == "application/json-patch+json":
		return a.patch(path, body)
	}
	return http.StatusBadRequest, nil
}

// decoded is an object that a client sent, nil where it is none. Clients send those of Kubernetes' own kinds as protocol buffers;
// of these there are leases alone.
func decoded(body []byte) (object map[string]any) {
	if json.Unmarshal(body, &object) == nil {
		return object
	}
	kinds := runtime.NewScheme()
	if coordinationv1.AddToScheme(kinds) != nil {
		return nil
	}
	sent, kind, err := serializer.NewCodecFactory(kinds).UniversalDeserializer().Decode(body, nil, nil)
	if err != nil {
		return nil
	}
	text, err := json.Marshal(sent)
	if err != nil || json.Unmarshal(text, &object) != nil {
		return nil
	}
	object["apiVersion"], object["kind"] = kind.GroupVersion().String(), kind.Kind
	return object
}

func (a *api) create(folder string, body []byte) (code int, object map[string]any) {
	object = decoded(body)
	metadata, is := object["metadata"].(map[string]any)
	if !is {
		return http.StatusBadRequest, nil
	}
	metadata["namespace"] = filepath.Base(filepath.Dir(folder))
	path := fmt.Sprintf("%s/%v", folder, metadata["name"])
	if a.objects[path] != nil {
		return http.StatusConflict, map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": http.StatusConflict, "reason": "AlreadyExists"}
	}
	return http.StatusCreated, a.keep(path, object)
}

func (a *api) patch(path string, body []byte) (code int, object map[string]any) {
	patch, err := jsonpatch.DecodePatch(body)
	if err != nil {
		return http.StatusBadRequest, nil
	}
	before, err := json.Marshal(a.objects[path])
	if err != nil {
		return http.StatusBadRequest, nil
	}
	after, err := patch.Apply(before)
	if err != nil || json.Unmarshal(after, &object) != nil {
		return http.StatusUnprocessableEntity, nil
	}
	return http.StatusOK, a.keep(path, object)
}

// keep gives an object its next version.
func (a *api) keep(path string, object map[string]any) map[string]any {
	a.version++
	metadata, _ := object["metadata"].(map[string]any)
	metadata["resourceVersion"] = strconv.Itoa(a.version)
	a.objects[path] = object
	return object
}

func (a *api) list(folder string) map[string]any {
	items := []any{}
	for _, path := range a.below(folder) {
		items = append(items, a.objects[path])
	}
	return map[string]any{"metadata": map[string]any{"resourceVersion": strconv.Itoa(a.version)}, "items": items}
}

func (a *api) below(folder string) []string {
	paths := slices.Sorted(maps.Keys(a.objects))
	return slices.DeleteFunc(paths, func(path string) bool { return !strings.HasPrefix(path, folder+"/") })
}

func versionOf(object map[string]any) any {
	metadata, _ := object["metadata"].(map[string]any)
	return metadata["resourceVersion"]
}

// group is where whereabouts keeps what it has given away.
const group = "/apis/whereabouts.cni.cncf.io/v1alpha1/namespaces/kube-system/"

// keeps sees that the addresses of a range are with these pods and no others: in the pool, by their numbers, and by
// the reservations that hold over all pools.
func (a *api) keeps(t *testing.T, want map[string]string) {
	t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	pooled, reserved := map[string]string{}, map[string]string{}
	for _, path := range a.below(group + "ippools") {
		spec, _ := a.objects[path]["spec"].(map[string]any)
		allocations, _ := spec["allocations"].(map[string]any)
		for number, one := range allocations {
			allocation, _ := one.(map[string]any)
			pooled["192.168.10."+number] = strings.TrimPrefix(fmt.Sprint(allocation["podref"]), "default/")
		}
	}
	for _, path := range a.below(group + "overlappingrangeipreservations") {
		spec, _ := a.objects[path]["spec"].(map[string]any)
		reserved[filepath.Base(path)] = strings.TrimPrefix(fmt.Sprint(spec["podref"]), "default/")
	}
	if !maps.Equal(pooled, want) || !maps.Equal(reserved, want) {
		t.Errorf("the pool has %v, and %v are reserved; want %v", pooled, reserved, want)
	}
}
