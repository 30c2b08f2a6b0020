package webhook

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// hostilePod reads a pod from lines: "main NAME" or "init NAME" or "sidecar NAME" begins a container, "limit NAME
// QUANTITY", "request NAME QUANTITY", "env NAME VALUE" and "claim NAME" go into it, "note NAME VALUE", "label NAME
// VALUE", "scheduler NAME" and "pod-claim NAME" into the pod. It is nil where a quantity could never be decoded.
func hostilePod(text string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{}, Labels: map[string]string{}}}
	always := corev1.ContainerRestartPolicyAlways
	container := &corev1.Container{}
	for _, line := range strings.Split(text, "\n") {
		words := strings.SplitN(line, " ", 3)
		for len(words) < 3 {
			words = append(words, "")
		}
		what, name, value := words[0], words[1], words[2]
		list := func(of *corev1.ResourceList) bool {
			quantity, err := resource.ParseQuantity(value)
			if *of == nil {
				*of = corev1.ResourceList{}
			}
			(*of)[corev1.ResourceName(name)] = quantity
			return err == nil
		}
		ok := true
		switch what {
		case "main":
			pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: name})
			container = &pod.Spec.Containers[len(pod.Spec.Containers)-1]
		case "init", "sidecar":
			pod.Spec.InitContainers = append(pod.Spec.InitContainers, corev1.Container{Name: name})
			container = &pod.Spec.InitContainers[len(pod.Spec.InitContainers)-1]
			if what == "sidecar" {
				container.RestartPolicy = &always
			}
		case "limit":
			ok = list(&container.Resources.Limits)
		case "request":
			ok = list(&container.Resources.Requests)
		case "env":
			container.Env = append(container.Env, corev1.EnvVar{Name: name, Value: value})
		case "claim":
			container.Resources.Claims = append(container.Resources.Claims, corev1.ResourceClaim{Name: name})
			pod.Spec.ResourceClaims = append(pod.Spec.ResourceClaims, corev1.PodResourceClaim{Name: name})
		case "note":
			pod.Annotations[name] = value
		case "label":
			pod.Labels[name] = value
		case "scheduler":
			pod.Spec.SchedulerName = name
		}
		if !ok {
			return nil
		}
	}
	return pod
}

var hostilePods = []string{
	"main a\nlimit divvy.dev/gpu-memory 4Gi\nlimit divvy.dev/gpu-cores 30\ninit b\nlimit divvy.dev/gpu-memory 8Gi\nsidecar c\nlimit divvy.dev/gpu 1",
	"main a\nlimit divvy.dev/gpu -1\nlimit divvy.dev/gpu-memory 99999999999999999999999",
	"main a\nlimit nvidia.com/gpu 1\nlimit nvidia.com/gpumem 3000\nnote nvidia.com/use-gputype A100,\"\\\nscheduler hami-scheduler",
	"main a\nrequest nvidia.com/gpumem-percentage 33\nnote nvidia.com/use-gpuuuid GPU-1234,,",
	"main a\nlimit nvidia.com/gpu.shared 1\nlimit nvidia.com/mig-1g.5gb 1",
	"main a\nlimit tencent.com/vcuda-core 50\nlimit tencent.com/vcuda-memory 30\nnote tencent.com/vcuda-core-limit 9e9",
	"main a\nlimit tke.cloud.tencent.com/qgpu-core 121\nlimit tke.cloud.tencent.com/qgpu-memory 31\nnote tke.cloud.tencent.com/app-class online",
	"main a\nlimit elasticgpu.io/gpu-core 200\nmain b\nlimit elasticgpu.com/gpu-memory 1",
	"main a\nlimit aliyun.com/gpu-mem 8\nlabel aliyun.com/gpu-count 2\nenv ALIYUN_COM_GPU_SCHD_WEIGHT 18446744073709551616",
	"main a\nlimit volcano.sh/vgpu-number 2\nlimit volcano.sh/vgpu-memory-percentage 100\nmain b\nlimit volcano.sh/gpu-memory 1n",
	"main a\nmain b\nclaim divvy-b\nnote gpu-fraction 0.NaN\nnote gpu-fraction-container-name b",
	"main a\nnote gpu-fraction 0.3333333333333333333333333\nnote gpu-fraction-num-devices 0x2",
	"note gpu-memory +Inf",
}

// FuzzTranslate gives hostile pods to all dialects at once: what must hold of a translation is checked by translated.
func FuzzTranslate(f *testing.F) {
	others := "plain: {}, vcuda: {}, qgpu: {}, elasticgpu: {}, gpushare: {}, volcano: {}, kai: {}"
	translators := []*Translator{
		newTranslator(f, "{"+others+", nvidia: {replicas: 3}}"),
		newTranslator(f, "{"+others+", hami: {}}"),
		newTranslator(f, "{"+others+", 4paradigm: {corePolicy: burst}}"),
	}
	for _, pod := range hostilePods {
		f.Add(pod, uint64(16<<30))
	}
	f.Fuzz(func(t *testing.T, text string, size uint64) {
		if !strings.ContainsFunc(text, func(r rune) bool { return r == '\uFFFD' }) {
			for _, translator := range translators {
				if pod := hostilePod(text); pod != nil {
					translated(t, translator, pod, Inventory{Sizes: []uint64{size >> 16, 16 << 30}})
				}
			}
		}
	})
}

func FuzzConfig(f *testing.F) {
	f.Add("apiVersion: divvy.dev/v1alpha1\nkind: WebhookConfig\ndialects: {hami: {memoryFactor: 1e400}}")
	f.Fuzz(func(t *testing.T, text string) {
		if translator, err := NewTranslator([]byte(text)); err == nil && translator == nil {
			t.Error("neither a translator nor an error")
		}
	})
}

func FuzzShareConfig(f *testing.F) {
	f.Add([]byte(`{"apiVersion":"divvy.dev/v1alpha1","kind":"ShareConfig","policy":"burst","maxCores":1e9}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		config, err := DecodeShareConfig(text)
		if err != nil {
			return
		}
		again, err := encodeShareConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		if back, err := DecodeShareConfig(again); err != nil || back != config {
			t.Errorf("%s became %+v, %v", again, back, err)
		}
	})
}
