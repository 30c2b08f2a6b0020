package webhook

import (
	"strings"
	"testing"

	nodev1 "k8s.io/api/node/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// What a RuntimeClass does follows from its handler, whatever it is called; without the class its name decides.
func TestRuntimeClasses(t *testing.T) {
	w := newWorld(t, "{plain: {}}")
	judged := func(class string) string {
		t.Helper()
		_, err := w.judge.mutatePod(t.Context(), podRequest(t, strings.Replace(asking, "spec: {", "spec: {runtimeClassName: "+class+", ", 1)))
		if err == nil {
			return ""
		}
		return err.Error()
	}
	refused := func(class, why string) {
		t.Helper()
		if got := judged(class); (got == "") != (why == "") || !strings.Contains(got, why) {
			t.Errorf("class %s: %q, want %q", class, got, why)
		}
	}
	refused("secure", "")
	refused("my-gvisor", `runtime class "my-gvisor" runs`)
	w.know(t, w.runtimes, &nodev1.RuntimeClass{}, `{metadata: {name: secure}, handler: runsc}`)
	w.know(t, w.runtimes, &nodev1.RuntimeClass{}, `{metadata: {name: my-gvisor}, handler: nvidia}`)
	refused("secure", `runtime class "secure" (handler runsc) runs`)
	refused("my-gvisor", "")
	claim := `{spec: {runtimeClassName: secure, resourceClaims: [{name: gpu, resourceClaimName: mine}], containers: [{name: main, resources: {claims: [{name: gpu}]}}]}}`
	var mine resourcev1.ResourceClaim
	if err := yaml.UnmarshalStrict([]byte(`{metadata: {namespace: space, name: mine}, spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: share.divvy.dev}}]}}}`), &mine); err != nil {
		t.Fatal(err)
	}
	if err := w.client.Tracker().Add(&mine); err != nil {
		t.Fatal(err)
	}
	if _, err := w.judge.validatePod(t.Context(), podRequest(t, claim)); err == nil || !strings.Contains(err.Error(), "(handler runsc)") {
		t.Errorf("a claim written by hand: %v", err)
	}
	if err := w.runtimes.Delete(&nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: "secure"}}); err != nil {
		t.Fatal(err)
	}
	refused("secure", "")
	if err := w.runtimes.Replace(nil, "1"); err != nil {
		t.Fatal(err)
	}
	refused("my-gvisor", `runtime class "my-gvisor" runs`)
}
