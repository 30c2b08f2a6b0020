package chart_test

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

// The agent sees the node's VFIO groups as they come and go, also where the module is loaded after the pod began. A simulated
// machine has none.
func TestAgentSeesVFIOGroups(t *testing.T) {
	for _, kubernetes := range []string{newest, oldest} {
		for values, want := range map[string]int{"": 1, "agent: {driverRoot: /run/nvidia/driver}": 1, "agent: {simgpu: {dir: /run/divvy/simgpu/node}}": 0} {
			spec := find[*appsv1.DaemonSet](t, rendered(t, kubernetes, values))[0].Spec.Template.Spec
			name := ""
			for _, v := range spec.Volumes {
				if v.HostPath != nil && v.HostPath.Path == "/dev/vfio" && v.HostPath.Type != nil && *v.HostPath.Type == corev1.HostPathDirectoryOrCreate {
					name = v.Name
				}
			}
			mounted := 0
			for _, m := range spec.Containers[0].VolumeMounts {
				if name != "" && m.Name == name && m.MountPath == "/dev/vfio" && !m.ReadOnly && m.SubPath == "" {
					mounted++
				}
			}
			if mounted != want {
				t.Errorf("%s with %q: /dev/vfio of the node is mounted %d times, want %d", kubernetes, values, mounted, want)
			}
		}
	}
}
