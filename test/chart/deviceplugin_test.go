package chart_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/pluginfile"
	"github.com/divvy-gpu/divvy/test/chart/render"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
)

const pluginConfigs = `
agent:
  devicePlugin:
    configs:
      default: |
        version: v1
        sharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 4}]}}
`

// The agents find the configurations in a folder, and may read the label that names one.
func TestDevicePluginConfigs(t *testing.T) {
	for values, want := range map[string]string{
		pluginConfigs: "divvy-device-plugin", "agent: {devicePlugin: {configMap: theirs}}": "theirs",
		"mode: claims\ndialects: {nvidia: {replicas: 4}}\nagent: {devicePlugin: {configMap: theirs}}": "theirs",
	} {
		version := oldest
		if strings.Contains(values, "claims") {
			version = newest
		}
		documents := rendered(t, version, values)
		pod := find[*appsv1.DaemonSet](t, documents)[0].Spec.Template.Spec
		if !slices.Contains(pod.Containers[0].Args, "--device-plugin-configs=/etc/divvy/device-plugin") {
			t.Errorf("%s: the agent's arguments are %v", want, pod.Containers[0].Args)
		}
		if !slices.ContainsFunc(pod.Volumes, func(v corev1.Volume) bool {
			return v.Name == "device-plugin-configs" && v.ConfigMap != nil && v.ConfigMap.Name == want
		}) {
			t.Errorf("%s: the volumes are %v", want, pod.Volumes)
		}
		for _, m := range find[*corev1.ConfigMap](t, documents) {
			if m.Name == "divvy-device-plugin" {
				if _, err := pluginfile.Parse("default", []byte(m.Data["default"])); err != nil {
					t.Error(err)
				}
			}
		}
		for _, role := range find[*rbacv1.ClusterRole](t, documents) {
			if role.Name == "divvy-agent" && !slices.Contains(role.Rules[0].Verbs, "get") {
				t.Errorf("%s: the agent may not read its node: %v", want, role.Rules)
			}
		}
	}
}

func TestDevicePluginRefused(t *testing.T) {
	for values, want := range map[string]string{
		"agent: {devicePlugin: {configMap: a, configs: {default: \"version: v1\"}}}": "give either configs or configMap",
		"agent: {devicePlugin: {configMap: a}}\ndialects: {nvidia: {}}":              "the dialect nvidia reads nvidia.com/gpu too",
		"agent: {devicePlugin: {configMap: a}}\ndialects: {hami: {memoryFactor: 1}}": "the dialect hami reads nvidia.com/gpu too",
		"agent: {devicePlugin: {configs: {\"../x\": \"version: v1\"}}}":              "",
		"agent: {devicePlugin: {config: {}}}":                                        "",
	} {
		_, err := render.Chart(dir, render.Options{Namespace: namespace, Kubernetes: oldest, Values: values})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, not %s", values, err, want)
		}
	}
}
