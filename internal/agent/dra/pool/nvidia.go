package pool

import (
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/utils/ptr"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/alloc/layouts"
)

// What NVIDIA's DRA driver calls a GPU's properties (kubernetes-sigs/dra-driver-nvidia-gpu,
// site/content/docs/reference/resourceslice-attributes.md). Its newer versions leave out the index, which examples select
// by.
const (
	nvidiaType         = v1alpha1.NVIDIADriver + "/type"
	nvidiaUUID         = v1alpha1.NVIDIADriver + "/uuid"
	nvidiaIndex        = v1alpha1.NVIDIADriver + "/index"
	nvidiaProduct      = v1alpha1.NVIDIADriver + "/productName"
	nvidiaBrand        = v1alpha1.NVIDIADriver + "/brand"
	nvidiaArchitecture = v1alpha1.NVIDIADriver + "/architecture"
	nvidiaCapability   = v1alpha1.NVIDIADriver + "/cudaComputeCapability"
	nvidiaDriver       = v1alpha1.NVIDIADriver + "/driverVersion"
	nvidiaCUDA         = v1alpha1.NVIDIADriver + "/cudaDriverVersion"
	nvidiaMemory       = v1alpha1.NVIDIADriver + "/memory"
	nvidiaNUMANode     = "resource.kubernetes.io/numaNode"
	nvidiaProfile      = v1alpha1.NVIDIADriver + "/profile"
	nvidiaParent       = v1alpha1.NVIDIADriver + "/parentUUID"
	nvidiaProcessors   = v1alpha1.NVIDIADriver + "/multiprocessors"
)

// nvidiaEngines are the capacities of MIG instances, by the counter of which they are.
var nvidiaEngines = map[layouts.Counter]resourcev1.QualifiedName{
	layouts.CopyEngines: v1alpha1.NVIDIADriver + "/copyEngines", layouts.Decoders: v1alpha1.NVIDIADriver + "/decoders",
	layouts.Encoders: v1alpha1.NVIDIADriver + "/encoders", layouts.JPEGEngines: v1alpha1.NVIDIADriver + "/jpegEngines",
	layouts.FlowEngines: v1alpha1.NVIDIADriver + "/ofaEngines",
}

// generations are NVIDIA's names of architectures of more than one word.
var generations = map[string]string{"ada": "Ada Lovelace"}

// nvidia adds the attributes of NVIDIA's DRA driver. What is not known is left out.
func (g *GPU) nvidia(all map[resourcev1.QualifiedName]resourcev1.DeviceAttribute) {
	for name, text := range map[resourcev1.QualifiedName]string{
		nvidiaType: "gpu", nvidiaUUID: g.UUID, nvidiaProduct: g.Model, nvidiaBrand: g.Brand, nvidiaArchitecture: generation(g.Architecture),
	} {
		if text != "" {
			all[name] = resourcev1.DeviceAttribute{StringValue: ptr.To(clip(text))}
		}
	}
	for name, version := range map[resourcev1.QualifiedName]string{
		nvidiaDriver: Semver(g.DriverVersion), nvidiaCUDA: CUDASemver(g.CUDA), nvidiaCapability: Semver(g.Capability),
	} {
		if version != "" {
			all[name] = resourcev1.DeviceAttribute{VersionValue: ptr.To(version)}
		}
	}
	if g.Index >= 0 {
		all[nvidiaIndex] = resourcev1.DeviceAttribute{IntValue: ptr.To(int64(g.Index))}
	}
}

// generation is NVIDIA's spelling of an architecture.
func generation(architecture string) string {
	if name, ok := generations[architecture]; ok || architecture == "" {
		return name
	}
	return strings.ToUpper(architecture[:1]) + architecture[1:]
}
