package dra

import (
	"errors"
	"strings"
	"testing"

	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"
)

// The handler of the pod's runtime class decides whether a share holds there, and its name where the class cannot be read.
func TestRuntimeClassHandlers(t *testing.T) {
	for name, c := range map[string]struct {
		class, handler string
		away, whole    bool
		fault          string
	}{
		"a handler of gVisor":           {class: "secure", handler: "runsc", fault: `(runtime class "secure" (handler runsc))`},
		"a harmless handler":            {class: "gvisor", handler: "nvidia"},
		"a class that is gone":          {class: "kata", fault: `(runtime class "kata")`},
		"another class that is gone":    {class: "secure"},
		"the API server is away":        {class: "gvisor", handler: "nvidia", away: true, fault: `(runtime class "gvisor")`},
		"a whole GPU has no limit":      {class: "secure", handler: "runsc", whole: true},
		"the API server is away, whole": {class: "gvisor", handler: "nvidia", away: true, whole: true},
	} {
		t.Run(name, func(t *testing.T) {
			claim, pod := simple()
			if c.whole {
				claim = claimWith(wholeResult("r", firstID))
				reserve(claim, pod)
			}
			pod.Spec.RuntimeClassName = ptr.To(c.class)
			m := newMachine(t, claim, pod)
			if c.handler != "" {
				if err := m.client.Tracker().Add(&nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: c.class}, Handler: c.handler}); err != nil {
					t.Fatal(err)
				}
			}
			if c.away {
				m.client.PrependReactor("get", "runtimeclasses", func(clienttesting.Action) (bool, runtime.Object, error) {
					return true, nil, errors.New("apiserver is away")
				})
			}
			r := m.start()
			switch err := m.prepare(r, claim).Err; {
			case c.fault == "" && err != nil:
				t.Error(err)
			case c.fault != "" && (err == nil || !strings.Contains(err.Error(), c.fault)):
				t.Errorf("%v, want %q", err, c.fault)
			}
			if c.fault != "" {
				m.mustBeEmpty(r)
			}
		})
	}
}
