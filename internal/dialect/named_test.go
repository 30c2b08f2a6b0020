package dialect

import (
	"testing"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	corev1 "k8s.io/api/core/v1"
)

// TestOnlyWhatIsNamed looks for configuration in templates that neither the pod nor the dialect's options named: it
// would stand before what the node gives to shares that name nothing.
func TestOnlyWhatIsNamed(t *testing.T) {
	weight := readPod(t, `spec: {containers: [{name: main, env: [{name: ALIYUN_COM_GPU_SCHD_WEIGHT, value: "3"}], resources: {limits: {aliyun.com/gpu-mem: 3}}}]}`)
	limit := limitsOf(t, "tencent.com/vcuda-core: 30", "tencent.com/vcuda-memory: 4")
	limit.Annotations = map[string]string{"tencent.com/vcuda-core-limit": "60"}
	nothing := v1alpha1.ShareConfig{}
	for name, c := range map[string]struct {
		dialects string
		pod      *corev1.Pod
		want     v1alpha1.ShareConfig
	}{
		"plain memory":        {"plain: {}", limitsOf(t, "divvy.dev/gpu-memory: 4Gi"), nothing},
		"plain cores":         {"plain: {}", limitsOf(t, "divvy.dev/gpu-memory: 4Gi", "divvy.dev/gpu-cores: 30"), nothing},
		"gpushare memory":     {"gpushare: {}", limitsOf(t, "aliyun.com/gpu-mem: 3"), nothing},
		"gpushare percentage": {"gpushare: {}", limitsOf(t, "aliyun.com/gpu-mem: 3", "aliyun.com/gpu-core.percentage: 30"), nothing},
		"cGPU weight":         {"gpushare: {}", weight, v1alpha1.ShareConfig{Weight: 3}},
		"hami cores":          {"hami: {}", limitsOf(t, "nvidia.com/gpumem: 3000", "nvidia.com/gpucores: 30"), nothing},
		"hami, an option":     {"hami: {corePolicy: fixed}", limitsOf(t, "nvidia.com/gpumem: 3000", "nvidia.com/gpucores: 30"), v1alpha1.ShareConfig{Policy: "fixed"}},
		"hami, no cores":      {"hami: {corePolicy: burst}", limitsOf(t, "nvidia.com/gpumem: 3000"), nothing},
		"hami low priority":   {"hami: {}", limitsOf(t, "nvidia.com/gpumem: 3000", "nvidia.com/priority: 1"), v1alpha1.ShareConfig{Class: "offline"}},
		"qgpu":                {"qgpu: {}", limitsOf(t, "tke.cloud.tencent.com/qgpu-core: 30", "tke.cloud.tencent.com/qgpu-memory: 4"), nothing},
		"qgpu, an option":     {"qgpu: {policy: best-effort}", limitsOf(t, "tke.cloud.tencent.com/qgpu-core: 30", "tke.cloud.tencent.com/qgpu-memory: 4"), v1alpha1.ShareConfig{Policy: "weighted"}},
		"vcuda limit":         {"vcuda: {}", limit, v1alpha1.ShareConfig{Policy: "burst", MaxCores: 60}},
		"nvidia replica":      {"nvidia: {replicas: 4}", limitsOf(t, "nvidia.com/gpu.shared: 1"), nothing},
		"volcano":             {"volcano: {}", limitsOf(t, "volcano.sh/vgpu-memory: 3000", "volcano.sh/vgpu-cores: 30"), nothing},
	} {
		_, templates, err := translate(newTranslator(t, "{"+c.dialects+"}"), c.pod, sixteen)
		if err != nil || len(templates) != 1 {
			t.Errorf("%s: %d templates, %v", name, len(templates), err)
			continue
		}
		configs := templates[0].Spec.Spec.Devices.Config
		var got v1alpha1.ShareConfig
		if len(configs) > 0 {
			if got, err = v1alpha1.DecodeShareConfig(configs[0].Opaque.Parameters.Raw); err != nil {
				t.Error(err)
			}
		}
		if got != c.want || len(configs) > 0 != (c.want != nothing) {
			t.Errorf("%s: %+v in %d configurations, want %+v", name, got, len(configs), c.want)
		}
	}
}
