package pool

import (
	"fmt"
	"math/rand"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/dialect"
)

// modelsAndDrivers are GPUs of four models under three drivers, which is more sizes than a claim has alternatives.
func modelsAndDrivers() []GPU {
	var gpus []GPU
	for _, model := range []uint64{15 << 10, 40 << 10, 80 << 10, 141 << 10} {
		for driver := range uint64(3) {
			gpus = append(gpus, GPU{UUID: uuidOf(len(gpus)), Index: len(gpus), Memory: (model - 23*driver) << 20})
		}
	}
	return gpus
}

// part is the claim that the webhook makes for a percentage of one GPU's memory.
func part(t *testing.T, gpus []GPU, percent int) resourcev1.ResourceClaimSpec {
	t.Helper()
	translator, err := dialect.NewTranslator([]byte("apiVersion: " + v1alpha1.APIVersion + "\nkind: WebhookConfig\ndialects: {plain: {}}"))
	if err != nil {
		t.Fatal(err)
	}
	var published []resourcev1.ResourceSlice
	for _, slice := range slicesOf(t, gpus) {
		published = append(published, *slice)
	}
	pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{
		Name: "main", Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{v1alpha1.ResourceMemoryPercent: resource.MustParse(fmt.Sprint(percent))}},
	}}}}
	made, err := translator.Translate(pod, dialect.InventoryOf(published))
	if err != nil {
		t.Fatal(err)
	}
	return made.Templates[0].Spec.Spec
}

// Two halves fit every GPU of a node, whatever its size, and nothing else does then.
func TestHalvesFill(t *testing.T) {
	gpus := modelsAndDrivers()
	s := newScheduler(t, gpus)
	on := make(map[string]int)
	for i := range 2 * len(gpus) {
		for _, device := range s.fits(fmt.Sprint(i), true, part(t, gpus, 50)) {
			on[device]++
		}
	}
	for device, n := range on {
		if n != 2 {
			t.Errorf("%d halves are on %s", n, device)
		}
	}
	s.fits("a third half", false, part(t, gpus, 50))
	s.fits("all of a GPU", false, asks(v1alpha1.ClassWhole, 1))
}

// Shares in percent, shares in bytes and whole GPUs never come to more than a GPU has, in whatever order they come and
// go, and a share in percent takes no more of its GPU than it asks for.
func TestPartsAndBytesSum(t *testing.T) {
	random := rand.New(rand.NewSource(11))
	gpus := modelsAndDrivers()
	sizes := make(map[string]uint64)
	for _, gpu := range gpus {
		sizes[Name(gpu.UUID, Shared)] = gpu.Memory
	}
	s := newScheduler(t, gpus)
	percents := make(map[string]int)
	for i := range 120 {
		name := fmt.Sprint(i)
		switch random.Intn(4) {
		case 0:
			for held := range s.held {
				s.release(held)
				break
			}
		case 1:
			s.take(name, share("memory", fmt.Sprintf("%dMi", 1+random.Intn(90<<10))))
		case 2:
			s.take(name, asks(v1alpha1.ClassWhole, 1))
		default:
			percents[name] = 1 + random.Intn(99)
			s.take(name, part(t, gpus, percents[name]))
		}
		taken := make(map[string]uint64)
		for name, allocation := range s.held {
			for _, result := range allocation.Devices.Results {
				memory := result.ConsumedCapacity[v1alpha1.CapacityMemory]
				taken[result.Device] += uint64(memory.Value())
				if percent, ok := percents[name]; ok && uint64(memory.Value()) > v1alpha1.PartOf(uint64(percent), 100).Of(sizes[result.Device]) {
					t.Errorf("%d percent of %s are %s", percent, result.Device, memory.String())
				}
			}
		}
		for device, sum := range taken {
			if sum > sizes[device] {
				t.Fatalf("after %d claims %s has %d of %d bytes taken", i, device, sum, sizes[device])
			}
		}
	}
	if len(s.held) == 0 || len(percents) == 0 {
		t.Error("nothing is held")
	}
}
