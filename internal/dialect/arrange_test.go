package dialect

import (
	"fmt"
	"math/rand"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// pieces writes a pod from "init|sidecar|main NAME LIMITS" lines.
func pieces(t *testing.T, lines ...string) string {
	t.Helper()
	var initial, regular []string
	for _, line := range lines {
		words := strings.SplitN(line, " ", 3)
		container := "{name: " + words[1] + ", resources: {limits: {" + words[2] + "}}"
		switch words[0] {
		case "init":
			initial = append(initial, container+"}")
		case "sidecar":
			initial = append(initial, container+", restartPolicy: Always}")
		default:
			regular = append(regular, container+"}")
		}
	}
	return "spec: {initContainers: [" + strings.Join(initial, ", ") + "], containers: [" + strings.Join(regular, ", ") + "]}"
}

func TestInitContainers(t *testing.T) {
	translator := newTranslator(t, "{plain: {}, nvidia: {replicas: 4}}")
	for _, c := range []struct {
		name, want string
		containers []string
	}{
		{"smaller than the container after it", "first in divvy-main: 1 share memory=8Gi weighted; main: 1 share memory=8Gi weighted",
			[]string{"init first divvy.dev/gpu-memory: 4Gi", "main main divvy.dev/gpu-memory: 8Gi"}},
		{"larger", "first in divvy-main: 1 share memory=8Gi weighted; main: 1 share memory=8Gi weighted",
			[]string{"init first divvy.dev/gpu-memory: 8Gi", "main main divvy.dev/gpu-memory: 4Gi"}},
		{"larger in one, smaller in the other", "first in divvy-main: 1 share memory=8Gi cores=50 fixed; main: 1 share memory=8Gi cores=50 fixed",
			[]string{"init first divvy.dev/gpu-memory: 8Gi, divvy.dev/gpu-cores: 20", "main main divvy.dev/gpu-memory: 4Gi, divvy.dev/gpu-cores: 50"}},
		{"the one that need not grow", "first in divvy-b: 1 share memory=8Gi weighted; a: 1 share memory=4Gi weighted; b: 1 share memory=8Gi weighted",
			[]string{"init first divvy.dev/gpu-memory: 6Gi", "main a divvy.dev/gpu-memory: 4Gi", "main b divvy.dev/gpu-memory: 8Gi"}},
		{"one after the other", "first in divvy-main: 1 share memory=9Gi weighted; second in divvy-main: 1 share memory=9Gi weighted; main: 1 share memory=9Gi weighted",
			[]string{"init first divvy.dev/gpu-memory: 9Gi", "init second divvy.dev/gpu-memory: 6Gi", "main main divvy.dev/gpu-memory: 4Gi"}},
		{"nobody later", "first: 1 share memory=6Gi weighted; second in divvy-first: 1 share memory=6Gi weighted",
			[]string{"init first divvy.dev/gpu-memory: 4Gi", "init second divvy.dev/gpu-memory: 6Gi", "main main cpu: 1"}},
		{"sidecars add", "side: 1 share memory=4Gi weighted; main: 1 share memory=8Gi weighted",
			[]string{"sidecar side divvy.dev/gpu-memory: 4Gi", "main main divvy.dev/gpu-memory: 8Gi"}},
		{"a sidecar that runs already", "side: 1 share memory=8Gi weighted; first in divvy-main: 1 share memory=8Gi weighted; main: 1 share memory=8Gi weighted",
			[]string{"sidecar side divvy.dev/gpu-memory: 8Gi", "init first divvy.dev/gpu-memory: 8Gi", "main main divvy.dev/gpu-memory: 4Gi"}},
		{"a sidecar that starts later", "first in divvy-side: 1 share memory=8Gi weighted; side: 1 share memory=8Gi weighted; main: 1 share memory=4Gi weighted",
			[]string{"init first divvy.dev/gpu-memory: 8Gi", "sidecar side divvy.dev/gpu-memory: 8Gi", "main main divvy.dev/gpu-memory: 4Gi"}},
		{"whole GPUs", "first in divvy-main: 2 gpu; main: 2 gpu", []string{"init first divvy.dev/gpu: 2", "main main divvy.dev/gpu: 1"}},
		{"another behaviour", "first: 1 share memory=4Gi cores=20 fixed; main: 1 share memory=4Gi weighted",
			[]string{"init first divvy.dev/gpu-memory: 4Gi, divvy.dev/gpu-cores: 20", "main main divvy.dev/gpu-memory: 4Gi"}},
		{"a whole GPU and a share", "first: 1 gpu; main: 1 share memory=4Gi weighted",
			[]string{"init first divvy.dev/gpu: 1", "main main divvy.dev/gpu-memory: 4Gi"}},
		{"an amount and a part", `first: 1 share memory=4Gi [device.capacity["divvy.dev"].memory.compareTo(quantity("17179869184")) == 0] weighted; main: 1 share memory=4Gi weighted`,
			[]string{"init first nvidia.com/gpu.shared: 1", "main main divvy.dev/gpu-memory: 4Gi"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := translated(t, translator, readPod(t, pieces(t, c.containers...)), sixteen); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

func TestTwoDialectsInOneContainer(t *testing.T) {
	translator := newTranslator(t, "{plain: {}, nvidia: {}}")
	checkExamples(t, translator, sixteen, []example{
		{"one container", limitsOf(t, "divvy.dev/gpu: 1", "nvidia.com/gpu: 1"), `container "main" asks for GPUs in two dialects, nvidia and plain: use one`},
		{"two containers", readPod(t, pieces(t, "main a divvy.dev/gpu-memory: 1Gi", "main b nvidia.com/gpu: 1")), "a: 1 share memory=1Gi weighted; b: 1 gpu"},
	})
}

// TestClaimsAreAsLargeAsTheLargestUser asks at random in all kinds of containers and compares each claim with those
// who use it: none gets less than it asked, and no claim is larger than its most demanding user.
func TestClaimsAreAsLargeAsTheLargestUser(t *testing.T) {
	random := rand.New(rand.NewSource(11))
	translator := newTranslator(t, "{plain: {}}")
	for range 400 {
		var lines []string
		asked := make(map[string]int64)
		for i := range 1 + random.Intn(6) {
			name := string(rune('a' + i))
			asked[name] = int64(1 + random.Intn(9))
			kind := []string{"init", "sidecar", "main"}[random.Intn(3)]
			lines = append(lines, fmt.Sprintf("%s %s divvy.dev/gpu-memory: %dGi", kind, name, asked[name]))
		}
		pod := readPod(t, pieces(t, append(lines, "main none cpu: 1")...))
		translated(t, translator, pod, sixteen)
		patch, templates, err := translate(translator, pod, sixteen)
		if err != nil {
			t.Fatal(err)
		}
		sizes, largest := make(map[string]int64), make(map[string]int64)
		patched := apply(t, pod, patch)
		for _, c := range patched.Spec.ResourceClaims {
			for _, template := range templates {
				if template.Name == *c.ResourceClaimTemplateName {
					memory := template.Spec.Spec.Devices.Requests[0].Exactly.Capacity.Requests[v1alpha1.CapacityMemory]
					sizes[c.Name] = memory.Value() >> 30
				}
			}
		}
		together := make(map[string]int) // containers of a claim that can run at one time
		for _, ref := range containersOf(patched) {
			container := ref.of(patched)
			for _, use := range container.Resources.Claims {
				largest[use.Name] = max(largest[use.Name], asked[container.Name])
				if !ref.Init || ref.sidecar(patched) {
					together[use.Name]++
				}
			}
		}
		for name, size := range sizes {
			if size != largest[name] || together[name] > 1 {
				t.Errorf("%v: claim %s has %d GiB for users that want %d, %d at one time", lines, name, size, largest[name], together[name])
			}
		}
	}
}
