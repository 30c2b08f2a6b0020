package cluster

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/doctor"
)

func TestServerVersions(t *testing.T) {
	for minor, want := range map[string]doctor.Status{"32": doctor.OK, "36+": doctor.OK, "37": doctor.Warn, "x": doctor.OK} {
		if check := server(&version.Info{Major: "1", Minor: minor, GitVersion: "v1." + minor + ".0"}); check.Status != want || !strings.Contains(check.Found, "v1."+minor) {
			t.Errorf("1.%s: %+v", minor, check)
		}
	}
}

// The last event of each node counts.
func TestRuntimes(t *testing.T) {
	at := func(node, kind, reason string, minute int) runtime.Object {
		return &eventsv1.Event{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: node + reason}, Type: kind, Reason: reason, Note: "NRI is off",
			Regarding: corev1.ObjectReference{Kind: "Node", Name: node}, EventTime: metav1.NewMicroTime(time.Unix(int64(60*minute), 0)),
		}
	}
	repeated := at("n3", corev1.EventTypeWarning, v1alpha1.ReasonNRI, 1).(*eventsv1.Event)
	repeated.Series = &eventsv1.EventSeries{Count: 2, LastObservedTime: metav1.NewMicroTime(time.Unix(600, 0))}
	for name, c := range map[string]struct {
		events []runtime.Object
		want   string
	}{
		"nothing":          {nil, ""},
		"off":              {[]runtime.Object{at("n2", corev1.EventTypeWarning, v1alpha1.ReasonNRI, 1), at("n1", corev1.EventTypeWarning, v1alpha1.ReasonNRI, 2)}, "2 nodes offer no shares, such as n1: NRI is off"},
		"on again":         {[]runtime.Object{at("n1", corev1.EventTypeWarning, v1alpha1.ReasonNRI, 1), at("n1", corev1.EventTypeNormal, v1alpha1.ReasonNRIAgain, 2)}, ""},
		"off once more":    {[]runtime.Object{at("n1", corev1.EventTypeNormal, v1alpha1.ReasonNRIAgain, 2), at("n1", corev1.EventTypeWarning, v1alpha1.ReasonNRI, 3)}, "such as n1"},
		"off again, later": {[]runtime.Object{repeated, at("n3", corev1.EventTypeNormal, v1alpha1.ReasonNRIAgain, 5)}, "such as n3"},
		"somebody else's":  {[]runtime.Object{at("n1", corev1.EventTypeWarning, "Rebooted", 3)}, ""},
	} {
		check := Cluster{Client: fake.NewClientset(c.events...)}.runtimes(t.Context())
		if (check.Status == doctor.OK) != (c.want == "") || !strings.Contains(check.Found, c.want) {
			t.Errorf("%s: %+v", name, check)
		}
	}
}
