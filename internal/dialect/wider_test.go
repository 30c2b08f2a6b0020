package dialect

import (
	"fmt"
	"math/rand"
	"strings"
	"testing"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// form is what a dialect's documentation says of its limits, apart from how they are translated.
type form struct {
	dialect, options       string
	count                  string // a number of GPUs
	memory                 string // in units, of each GPU
	unit                   int64
	total                  bool // memory and cores are of all GPUs together
	percent                string
	cores                  string
	hundreds               bool // from 100 cores on, whole GPUs
	fullTime               bool // 100 cores are a whole GPU
	spareMemory, spareTime bool // a GPU named alone is whole, or has all memory
}

var forms = []form{
	{dialect: "plain", count: v1alpha1.ResourceGPU, memory: v1alpha1.ResourceMemory, unit: 1, percent: v1alpha1.ResourceMemoryPercent, cores: v1alpha1.ResourceCores, spareMemory: true, spareTime: true},
	{dialect: "nvidia", count: "nvidia.com/gpu", spareMemory: true, spareTime: true},
	{dialect: "hami", count: "nvidia.com/gpu", memory: "nvidia.com/gpumem", unit: 1 << 20, percent: "nvidia.com/gpumem-percentage", cores: "nvidia.com/gpucores", fullTime: true, spareMemory: true, spareTime: true},
	{dialect: "4paradigm", options: "defaultMemory: 0", count: "nvidia.com/gpu", memory: "nvidia.com/gpumem", unit: 1 << 20, percent: "nvidia.com/gpumem-percentage", cores: "nvidia.com/gpucores", fullTime: true, spareMemory: true},
	{dialect: "vcuda", memory: "tencent.com/vcuda-memory", unit: 256 << 20, cores: "tencent.com/vcuda-core", hundreds: true, spareTime: true},
	{dialect: "qgpu", memory: "tke.cloud.tencent.com/qgpu-memory", unit: 1 << 30, total: true, cores: "tke.cloud.tencent.com/qgpu-core", hundreds: true, spareTime: true},
	{dialect: "elasticgpu", memory: "elasticgpu.io/gpu-memory", unit: 1 << 20, cores: "elasticgpu.io/gpu-core", hundreds: true, spareTime: true},
	{dialect: "gpushare", memory: "aliyun.com/gpu-mem", unit: 1 << 30, total: true, cores: "aliyun.com/gpu-core.percentage"},
	{dialect: "volcano", count: "volcano.sh/vgpu-number", memory: "volcano.sh/vgpu-memory", unit: 1 << 20, percent: "volcano.sh/vgpu-memory-percentage", cores: "volcano.sh/vgpu-cores", fullTime: true, spareMemory: true},
	{dialect: "vgpu-manager", count: "nvidia.com/vgpu-number", memory: "nvidia.com/vgpu-memory", unit: 1 << 20, cores: "nvidia.com/vgpu-cores", spareMemory: true, spareTime: true},
}

var quantities = []string{
	"0", "1", "2", "3", "5", "8", "10", "16", "25", "30", "50", "95", "100", "101", "120", "150", "160", "200", "300", "1000", "3000", "4096", "100000",
	"4Gi", "512Mi", "1Gi", "800M", "-1", "-4Gi", "0.5", "500m", "1500m", "1e3", "1e18", "9E", "9223372036854775807", "18446744073709551616", "1n", "2000m",
}

// TestNeverWider asks at random, hostile amounts among them, and compares what is granted with the documentation's
// arithmetic.
func TestNeverWider(t *testing.T) {
	random := rand.New(rand.NewSource(5))
	translators := make(map[string]*Translator)
	for _, f := range forms {
		translators[f.dialect] = newTranslator(t, fmt.Sprintf("{%s: {%s}}", f.dialect, f.options))
	}
	granted := make(map[string]int)
	for range 6000 {
		f := forms[random.Intn(len(forms))]
		asked := make(map[string]resource.Quantity)
		var limits []string
		for _, name := range []string{f.count, f.memory, f.percent, f.cores} {
			if name == "" || random.Intn(3) == 0 {
				continue
			}
			asked[name] = resource.MustParse(quantities[random.Intn(len(quantities))])
			limits = append(limits, fmt.Sprintf("%s: %q", name, ptr(asked[name]).String()))
		}
		pod := limitsOf(t, limits...)
		translated(t, translators[f.dialect], pod, sixteenForty)
		_, templates, err := translate(translators[f.dialect], pod, sixteenForty)
		if err != nil || len(templates) == 0 {
			continue
		}
		granted[f.dialect]++
		for _, fault := range f.wider(asked, &templates[0].Spec.Spec) {
			t.Errorf("%s %s: %s", f.dialect, strings.Join(limits, ", "), fault)
		}
	}
	for _, f := range forms {
		if granted[f.dialect] < 20 {
			t.Errorf("only %d requests of %s were granted", granted[f.dialect], f.dialect)
		}
	}
}

func ptr[T any](v T) *T { return &v }

// wider compares what a claim asks with what the container asked.
func (f form) wider(asked map[string]resource.Quantity, spec *resourcev1.ResourceClaimSpec) (faults []string) {
	value := func(name string) int64 {
		q, ok := asked[name]
		if !ok {
			return 0
		}
		n := q.Value()
		if n < 0 || q.Cmp(*resource.NewQuantity(n, resource.DecimalSI)) != 0 {
			faults = append(faults, name+" is not a number of anything, and something was granted")
		}
		return n
	}
	count, memory, percent, cores := max(value(f.count), 1), value(f.memory), value(f.percent), value(f.cores)
	if f.hundreds && cores >= 100 {
		count = (cores + 99) / 100
	}
	request := spec.Devices.Requests[0]
	if e := request.Exactly; e != nil {
		whole := e.DeviceClassName == v1alpha1.ClassWhole
		bare := f.spareTime && memory == 0 && percent%100 == 0 && cores%100 == 0 // 100 percent says what nothing says
		hundreds := f.hundreds && cores >= 100 && cores%100 == 0
		if whole && !bare && !hundreds && (!f.fullTime || cores != 100) {
			faults = append(faults, "a whole GPU was granted")
		}
		faults = append(faults, f.widerWay(e.Count, e.Capacity, whole, count, memory, cores)...)
		if !whole && percent > 0 && percent < 100 && memory == 0 {
			faults = append(faults, "a percentage became an amount")
		}
	}
	for i, way := range request.FirstAvailable {
		faults = append(faults, f.widerWay(way.Count, way.Capacity, false, count, 0, cores)...)
		size := []int64{16 << 30, 40 << 30}[i]
		if got := ptr(way.Capacity.Requests[v1alpha1.CapacityMemory]).Value(); got > size/100*percent+percent || !strings.Contains(way.Selectors[0].CEL.Expression, fmt.Sprintf("%q", fmt.Sprint(size))) {
			faults = append(faults, fmt.Sprintf("%d of %d bytes are more than %d percent", got, size, percent))
		}
	}
	return faults
}

func (f form) widerWay(got int64, capacity *resourcev1.CapacityRequirements, whole bool, count, memory, cores int64) (faults []string) {
	if got > count {
		faults = append(faults, fmt.Sprintf("%d GPUs, not %d", got, count))
	}
	if whole {
		return faults
	}
	times := int64(1)
	if f.total {
		times = got
	}
	bytes, sized := capacity.Requests[v1alpha1.CapacityMemory]
	if memory > 0 && (!sized || bytes.Value()*times > memory*f.unit) {
		faults = append(faults, fmt.Sprintf("memory %s of each", bytes.String()))
	}
	if !sized && !f.spareMemory {
		faults = append(faults, "all memory")
	}
	bare := f.spareTime && cores == 0 && !sized
	if time := capacity.Requests[v1alpha1.CapacityCores]; time.Value()*times > cores && !bare {
		faults = append(faults, fmt.Sprintf("cores %s of each, not %d", time.String(), cores))
	}
	return faults
}
