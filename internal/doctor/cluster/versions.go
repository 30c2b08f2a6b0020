package cluster

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/divvy-gpu/divvy/internal/doctor"
	"github.com/divvy-gpu/divvy/internal/version"
)

// versionLabel is what the chart writes on each pod of Divvy.
const versionLabel = "app.kubernetes.io/version"

// versions compares the versions of Divvy's pods with each other and with this program's. Pods that are about to end, as
// during a rollout, do not count.
func (c Cluster) versions(ctx context.Context) []doctor.Check {
	pods, err := c.Client.CoreV1().Pods(c.Namespace).List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=divvy"})
	if err != nil {
		return nil
	}
	found := map[string][]string{}
	for i := range pods.Items {
		pod := &pods.Items[i]
		if is := pod.Labels[versionLabel]; is != "" && pod.DeletionTimestamp == nil {
			found[is] = append(found[is], pod.Name)
		}
	}
	check := doctor.Check{ID: "cluster.versions", Name: "versions", Status: doctor.OK}
	var parts []string
	for _, is := range slices.Sorted(maps.Keys(found)) {
		slices.Sort(found[is])
		parts = append(parts, fmt.Sprintf("%s in %d pods, such as %s", is, len(found[is]), found[is][0]))
	}
	switch {
	case len(found) == 0:
		return nil
	case len(found) > 1:
		check.Status, check.Found = doctor.Warn, strings.Join(parts, "; ")
		check.Next = fmt.Sprintf("wait until the rollout has ended: `kubectl -n %s rollout status daemonset/%s`; if it has, `helm upgrade` again", c.Namespace, agentName)
	case found[version.Number()] == nil:
		check.Status, check.Found = doctor.Warn, fmt.Sprintf("%s, and this program is %s", parts[0], version.Number())
		check.Next = "use the program of the cluster's version, or upgrade the chart"
	default:
		check.Found = parts[0]
	}
	return []doctor.Check{check}
}
