package dialect

import (
	"math/rand"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// hostilePod reads a pod from lines: "main NAME" or "init NAME" or "sidecar NAME" begins a container, "limit NAME
// QUANTITY", "request NAME QUANTITY", "env NAME VALUE" and "claim NAME" go into it, "note NAME VALUE", "label NAME
// VALUE", "scheduler NAME" and "pod-claim NAME" into the pod. It is nil where a quantity could never be decoded.
func hostilePod(text string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{}, Labels: map[string]string{}}}
	always := corev1.ContainerRestartPolicyAlways
	container := &corev1.Container{}
	for _, line := range strings.Split(strings.ToValidUTF8(text, "?"), "\n") { // JSON carries nothing else
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
	"main a\nlimit koordinator.sh/gpu.shared 3\nlimit koordinator.sh/gpu-core 150\nrequest koordinator.sh/gpu-memory 9E\nnote scheduling.koordinator.sh/numa-topology-spec {\nscheduler koord-scheduler",
	"main a\nlimit nvidia.com/vgpu-number 2\nlimit nvidia.com/vgpu-cores 100\nnote nvidia.com/include-gpu-type ,\nnote scheduling.k8s.io/group-name g\nscheduler vgpu-scheduler",
	"main a\nlimit divvy.dev/gpu-memory-percent 50\nmain b\nclaim divvy-b\nnote gpu-fraction 0.NaN\nnote gpu-fraction-container-name b",
	"main a\nnote gpu-fraction 0.3333333333333333333333333\nnote gpu-fraction-num-devices 0x2",
	"note gpu-memory +Inf",
}

// hostileWords are what choices are made of: every name that a dialect reads, and values that none should trust.
var hostileWords = struct{ verbs, names, values []string }{
	verbs: []string{"main", "init", "sidecar", "limit", "limit", "limit", "request", "env", "claim", "note", "label", "scheduler"},
	names: []string{
		"a", "b", v1alpha1.ResourceGPU, v1alpha1.ResourceMemory, v1alpha1.ResourceCores, "nvidia.com/gpu", "nvidia.com/gpu.shared", "nvidia.com/mig-1g.5gb",
		"nvidia.com/gpumem", "nvidia.com/gpumem-percentage", "nvidia.com/gpucores", "nvidia.com/priority", "nvidia.com/use-gputype", "nvidia.com/nouse-gpuuuid",
		"nvidia.com/numa-bind", "tencent.com/vcuda-core", "tencent.com/vcuda-memory", "tencent.com/vcuda-core-limit", "tke.cloud.tencent.com/qgpu-core",
		"tke.cloud.tencent.com/qgpu-core-greedy", "tke.cloud.tencent.com/qgpu-memory", "tke.cloud.tencent.com/app-class", "elasticgpu.io/gpu-core",
		"elasticgpu.com/gpu-memory", "aliyun.com/gpu-mem", "aliyun.com/gpu-core.percentage", "aliyun.com/gpu-count", "ALIYUN_COM_GPU_SCHD_WEIGHT",
		"volcano.sh/vgpu-number", "volcano.sh/vgpu-memory", "volcano.sh/vgpu-cores", "volcano.sh/vgpu-memory-percentage", "volcano.sh/gpu-memory",
		"koordinator.sh/gpu", "koordinator.sh/gpu.shared", "koordinator.sh/gpu-core", "koordinator.sh/gpu-memory", "kubernetes.io/gpu-memory-ratio", "koordinator.sh/rdma",
		"nvidia.com/vgpu-number", "nvidia.com/vgpu-memory", "nvidia.com/vgpu-cores", "nvidia.com/vgpu-compute-policy", "nvidia.com/device-topology-mode",
		v1alpha1.ResourceMemoryPercent, "scheduling.k8s.io/group-name", "GPU_CORE_UTILIZATION_POLICY", "RUNAI_GPU_MEMORY_LIMIT",
		"gpu-fraction", "gpu-memory", "gpu-fraction-num-devices", "gpu-fraction-container-name", "kai-scheduler", "hami-scheduler", "divvy-a", "cpu",
	},
	values: append([]string{"", "a", "NaN", "+Inf", "0x10", "0.5", "0.999999999", "true", "online", "offline", "A100,V100", "GPU-1234-5", "\"||true||\"", "x\ty", "\u2028"}, quantities...),
}

// hostileText makes lines of a hostile pod from three bytes each.
func hostileText(choices []byte) string {
	text := "main main\n"
	for ; len(choices) >= 3; choices = choices[3:] {
		pick := func(i int, from []string) string { return from[int(choices[i])%len(from)] }
		text += pick(0, hostileWords.verbs) + " " + pick(1, hostileWords.names) + " " + pick(2, hostileWords.values) + "\n"
	}
	return text
}

// hostileTranslators have all dialects turned on that can be together.
func hostileTranslators(t testing.TB) []*Translator {
	const others = "plain: {}, vcuda: {}, qgpu: {}, elasticgpu: {}, gpushare: {}, volcano: {}, kai: {}, koordinator: {}, kueue: {}, vgpu-manager: {}"
	return []*Translator{
		newTranslator(t, "{"+others+", nvidia: {replicas: 3}}"),
		newTranslator(t, "{"+others+", hami: {}}"),
		newTranslator(t, "{"+others+", 4paradigm: {corePolicy: burst}}"),
	}
}

// FuzzTranslate gives hostile pods to all dialects at once: what must hold of a translation is checked by translated.
func FuzzTranslate(f *testing.F) {
	translators := hostileTranslators(f)
	for _, pod := range hostilePods {
		f.Add(pod, []byte{}, uint64(16<<30))
	}
	f.Add("", []byte{3, 3, 20, 3, 4, 8, 1, 0, 0, 3, 3, 21}, uint64(1))
	f.Fuzz(func(t *testing.T, text string, choices []byte, size uint64) {
		pod := hostilePod(hostileText(choices) + text)
		if pod == nil {
			return
		}
		for _, translator := range translators {
			translated(t, translator, pod, Inventory{Sizes: []uint64{size >> 16, 16 << 30}})
		}
	})
}

// TestHostileChoices plays a fixed part of what the fuzzer plays at length.
func TestHostileChoices(t *testing.T) {
	random := rand.New(rand.NewSource(7))
	translators := hostileTranslators(t)
	pods, changed := 0, 0
	for range 4000 {
		choices := make([]byte, 3*random.Intn(6))
		random.Read(choices)
		pod := hostilePod(hostileText(choices))
		if pod == nil {
			continue
		}
		pods++
		if translated(t, translators[random.Intn(len(translators))], pod, sixteenForty) != "" {
			changed++
		}
	}
	if pods < 1000 || changed < 100 {
		t.Errorf("of %d pods %d asked for anything", pods, changed)
	}
}

func FuzzConfig(f *testing.F) {
	f.Add("apiVersion: divvy.dev/v1alpha1\nkind: WebhookConfig\ndialects: {hami: {memoryFactor: 1e400}}")
	f.Fuzz(func(t *testing.T, text string) {
		if translator, err := NewTranslator([]byte(text)); err == nil && translator == nil {
			t.Error("neither a translator nor an error")
		}
	})
}
