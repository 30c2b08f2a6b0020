package cluster

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/version"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/doctor"
)

// server says which version the cluster has. It is pure.
func server(v *version.Info) doctor.Check {
	check := doctor.Check{ID: "cluster.server", Name: "API server", Status: doctor.OK, Found: v.GitVersion}
	minor, err := strconv.Atoi(strings.TrimRight(v.Minor, "+"))
	if err == nil && v.Major == "1" && minor > v1alpha1.NewestMinor {
		check.Status = doctor.Warn
		check.Found = fmt.Sprintf("%s, which is newer than 1.%d, the newest that this version of Divvy was run with", v.GitVersion, v1alpha1.NewestMinor)
		check.Next = "nothing is refused for that; look for a newer version of Divvy"
	}
	return check
}

// runtimes checks, where slots are served, that every node's container runtime asks its agent.
func (c Cluster) runtimes(ctx context.Context) doctor.Check {
	check := doctor.Check{ID: "cluster.runtimes", Name: "container runtimes", Status: doctor.OK, Found: "the agents are asked about every container"}
	all, err := c.Client.EventsV1().Events(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{})
	if err != nil {
		check.Status, check.Found, check.Next = doctor.Warn, err.Error(), "give --kubeconfig an account that may list events"
		return check
	}
	last := map[string]*eventsv1.Event{}
	for i := range all.Items {
		e := &all.Items[i]
		ours := e.Reason == v1alpha1.ReasonNRI || e.Reason == v1alpha1.ReasonNRIAgain
		if ours && e.Regarding.Kind == "Node" && (last[e.Regarding.Name] == nil || seen(e).After(seen(last[e.Regarding.Name]))) {
			last[e.Regarding.Name] = e
		}
	}
	without, first := 0, ""
	for node, e := range last {
		if e.Type != corev1.EventTypeWarning {
			continue
		}
		if without++; first == "" || node < first {
			first = node
		}
	}
	if without > 0 {
		check.Status, check.Found = doctor.Warn, fmt.Sprintf("%d nodes offer no shares, such as %s: %s", without, first, last[first].Note)
		check.Next = "switch NRI on in the container runtime of these nodes, and restart it"
	}
	return check
}

// seen is when an event was last true.
func seen(e *eventsv1.Event) time.Time {
	if e.Series != nil {
		return e.Series.LastObservedTime.Time
	}
	return e.EventTime.Time
}
