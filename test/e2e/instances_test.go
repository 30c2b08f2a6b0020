package e2e

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// halfOfLayout is a layout with two instances of a quarter of the GPU and one of half of it.
const halfOfLayout = `
version: v1
mig-configs:
  mixed: [{devices: [0], mig-enabled: true, mig-devices: {1g.6gb: 2, 2g.12gb: 1}}]
`

// Instances of a fixed layout are counted by their profiles, and each pod gets the one that the kubelet chose: all of it, or
// a part.
func replicasOfInstances(l *lab) {
	const small, part, large = "nvidia.com/mig-1g.6gb", "nvidia.com/mig-1g.6gb.shared", "nvidia.com/mig-2g.12gb"
	n := l.Nodes[1]
	l.eventually("the agent of n2 divides its GPU", func() string {
		text, err := n.Exec(l.ctx, "sh", "-c", `printf '%s' "$1" | divvy gpu apply --simgpu node -f -`, "sh", halfOfLayout)
		if err != nil {
			return err.Error() + ": " + text
		}
		return ""
	})
	l.eventually("n2 counts its instances", func() string {
		found, err := l.Client().CoreV1().Nodes().Get(l.ctx, n.Name, metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		for name, want := range map[corev1.ResourceName]int64{small: 1, part: 2, large: 1, wholeGPU: 0} {
			if got := found.Status.Allocatable[name]; got.Value() != want {
				return fmt.Sprintf("there are %d of %s, want %d", got.Value(), name, want)
			}
		}
		for name, want := range map[string]string{"mig.strategy": "mixed", "mig-1g.6gb.count": "2", "mig-2g.12gb.product": "NVIDIA-A30-MIG-2g.12gb", "mig-2g.12gb.multiprocessors": "28"} {
			if got := found.Labels["nvidia.com/"+name]; got != want {
				return fmt.Sprintf("label nvidia.com/%s is %q, want %q", name, got, want)
			}
		}
		return ""
	})
	for name, asked := range map[string]struct {
		resource string
		bytes    uint64
	}{"small": {small, 5940 * mib}, "left": {part, 2970 * mib}, "right": {part, 2970 * mib}, "large": {large, 11944 * mib}} {
		l.run(asking(name, asked.resource, "1"))
		// The last allocation is refused at the instance's memory, or at the part of it.
		if f := l.fill(name, "main", 0); f.Result != "CUDA_ERROR_OUT_OF_MEMORY" || f.Total != asked.bytes {
			l.t.Errorf("%s: the last allocation: %+v, want a total of %d", name, f, asked.bytes)
		}
	}
	listing, err := l.listing(n)
	l.must(err)
	if len(listing.Tenants) != 4 {
		l.t.Errorf("there are %d tenants", len(listing.Tenants))
	}
	l.create(asking("second", large, "1"))
	l.pending("second")
	l.killAgent(n)
	l.exec("left", "main", "gpubench", "info")
	l.remove("large")
	l.running("second")
	l.remove("small", "left", "right", "second")
	if text, err := n.Exec(l.ctx, "divvy", "gpu", "ls", "--simgpu", "node"); err != nil || strings.Count(text, "1g.6gb") < 2 {
		l.t.Errorf("the layout does not outlive its tenants: %v\n%s", err, text)
	}
}
