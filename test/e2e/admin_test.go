package e2e

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/control"
)

// adminLabel is of namespaces in which Kubernetes allows admin access.
const adminLabel = "resource.kubernetes.io/admin-access"

// adminAccess has a monitor, in a privileged container, look at all GPUs of a node of which others have one whole and a
// share of the other. It takes nothing from them, is listed, and leaves nothing.
func adminAccess(l *lab) {
	l.only(1)
	n := l.Nodes[1]
	claim := fmt.Sprintf("{apiVersion: resource.k8s.io/v1, kind: ResourceClaim, metadata: {namespace: %s, name: look}, "+
		"spec: {devices: {requests: [{name: all, exactly: {deviceClassName: %s, allocationMode: All, adminAccess: true}}]}}}", l.namespace, v1alpha1.ClassWhole)
	if err := l.ApplyText(l.ctx, claim); err == nil || !strings.Contains(err.Error(), adminLabel) {
		l.t.Errorf("in a namespace without the label: %v", err)
	}
	l.kubectl("label", "namespace", l.namespace, adminLabel+"=true")
	l.must(l.ApplyText(l.ctx, claim))
	l.run(plain("share", "4Gi", ""))
	l.run(whole("whole", 1))
	monitor := uses(plain("monitor", "", ""), "look")
	monitor.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{Privileged: ptr.To(true)}
	l.run(monitor)
	l.event("monitor", "AdminAccess")

	listing, err := l.listing(n)
	l.must(err)
	seen := l.nvml("monitor", "main")
	if len(seen) != len(listing.GPUs) {
		l.t.Errorf("the monitor sees %+v of %d GPUs", seen, len(listing.GPUs))
	}
	for _, gpu := range listing.GPUs {
		if !slices.ContainsFunc(seen, func(s shown) bool { return s.UUID == gpu.UUID && s.Total == gpu.Total }) {
			l.t.Errorf("the monitor sees %+v, and not GPU %s as it is, of %d bytes", seen, gpu.UUID, gpu.Total)
		}
		if !slices.Equal(gpu.Open, []string{l.namespace + "/look"}) {
			l.t.Errorf("GPU %d is listed as open to %v", gpu.Index, gpu.Open)
		}
	}
	l.limited("share", "main", 4*gib, 1)
	l.agree()
	l.remove("monitor")
	l.eventually("the GPUs are open to nobody", func() string {
		listing, err := l.listing(n)
		if err == nil && slices.ContainsFunc(listing.GPUs, func(g control.GPU) bool { return len(g.Open) > 0 }) {
			return fmt.Sprintf("they are %+v", listing.GPUs)
		}
		return reason(err)
	})
	l.agree()
}
