package e2e

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/test/e2e/cluster"
)

// published waits until a node publishes just these devices, and fails the test if any of them takes counters.
func (l *lab) published(n *cluster.Machine, want ...string) {
	l.t.Helper()
	l.eventually(fmt.Sprintf("%s publishes %v", n.Name, want), func() string {
		list, err := l.Client().ResourceV1().ResourceSlices().List(l.ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + n.Name})
		if err != nil {
			return err.Error()
		}
		var got []string
		for i := range list.Items {
			spec := &list.Items[i].Spec
			for _, d := range spec.Devices {
				got = append(got, d.Name)
				if len(d.ConsumesCounters)+len(spec.SharedCounters) > 0 {
					l.t.Fatalf("%s of node %s takes counters", d.Name, n.Name)
				}
			}
		}
		if !slices.Equal(got, want) {
			return fmt.Sprintf("it publishes %v", got)
		}
		return ""
	})
}

// wholeByHand writes the claims of whole GPUs itself, with and without amounts.
func wholeByHand(l *lab) {
	l.only(1)
	byHand := func(name, rest string) string {
		return fmt.Sprintf("{apiVersion: resource.k8s.io/v1, kind: ResourceClaim, metadata: {namespace: %s, name: %s}, "+
			"spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: %s%s}}]}}}", l.namespace, name, v1alpha1.ClassWhole, rest)
	}
	err := l.ApplyText(l.ctx, byHand("less", `, capacity: {requests: {memory: 4Gi}}`))
	if err == nil || !strings.Contains(err.Error(), "must not set amounts") {
		l.t.Errorf("4Gi of a whole GPU: %v", err)
	}
	l.run(plain("share", "1Gi", ""))
	l.must(l.ApplyText(l.ctx, byHand("one", "")))
	l.run(uses(plain("one", "", ""), "one"))
	listing, err := l.listing(l.Nodes[1])
	l.must(err)
	l.limited("one", "main", listing.GPUs[0].Capacity, 1)
	if got := l.nvml("one", "main")[0].UUID; got == l.nvml("share", "main")[0].UUID {
		l.t.Errorf("GPU %s has a share and is given as a whole", got)
	}
	l.agree()
	l.must(l.ApplyText(l.ctx, byHand("both", ", count: 2")))
	l.create(uses(plain("both", "", ""), "both"))
	l.event("both", "NoShareFits")
	l.pending("both")
	l.remove("one")
	l.pending("both")
	l.remove("share")
	l.running("both")
	if got := l.nvml("both", "main"); len(got) != 2 || got[0].UUID == got[1].UUID {
		l.t.Errorf("two GPUs are %+v", got)
	}
	l.agree()
}
