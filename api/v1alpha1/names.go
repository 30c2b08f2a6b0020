package v1alpha1

// Domain is the domain of every name of Divvy's own in a cluster.
const Domain = "divvy.dev"

// Names of what Kubernetes allocates.
const (
	// Driver is the name of the DRA driver, and the domain of its attributes and
	// capacities.
	Driver = Domain
	// ClassShare is the device class of shares with backend slice.
	ClassShare = "share." + Domain
	// ClassTimeslice and ClassMPS are those of shares with these backends.
	ClassTimeslice = "timeslice." + Domain
	ClassMPS       = "mps." + Domain
	// ClassWhole is the device class of whole GPUs: a request of this class takes all of
	// a GPU and names no amounts.
	ClassWhole = "gpu." + Domain
	// ClassMIG is the device class of MIG instances. A claim has an instance alone. Amounts that it names
	// are the least that the instance has.
	ClassMIG = "mig." + Domain
	// ClassNVIDIAMIG is the class of MIG devices of NVIDIA's DRA driver. Where the chart makes it, it selects Divvy's.
	ClassNVIDIAMIG = "mig.nvidia.com"
	// ClassNVIDIA is the class of whole GPUs of NVIDIA's DRA driver. Where the chart makes it, it selects Divvy's devices.
	ClassNVIDIA = NVIDIADriver
	// NVIDIADriver is the name of NVIDIA's DRA driver, to which its configurations are addressed, and the domain of its
	// attributes and capacities.
	NVIDIADriver = "gpu.nvidia.com"
)

// InstanceMark divides the GPU's UUID from the instance in the name of a device that is a MIG instance.
const InstanceMark = "-mig-"

// Capacities of a device.
const (
	// CapacityMemory is in bytes.
	CapacityMemory = "memory"
	// CapacityCores is the guaranteed percentage of the GPU's time.
	CapacityCores = "cores"
	// CapacitySlots counts shares; every share takes one.
	CapacitySlots = "slots"
)

// SlotsPerGPU is how many shares one GPU has room for. The driver keeps about
// half a GiB for each process, and equal time slices of 64 shares come round
// every 130 ms, so that more would be of no use.
const SlotsPerGPU = 64

// Attributes of a device, in the domain [Driver].
const (
	AttributeUUID          = "uuid"
	AttributeIndex         = "index"
	AttributeForm          = "form"
	AttributeWhole         = "whole"
	AttributeModel         = "model"
	AttributeArchitecture  = "architecture"
	AttributeDriverVersion = "driverVersion"
	AttributeCUDAVersion   = "cudaVersion"
	AttributePCIeSwitch    = "pcieSwitch"
	AttributeNVLinkClique  = "nvlinkClique"
	AttributeNUMANode      = "numaNode"
	// AttributeProfile is the driver's name of a MIG instance's profile, AttributeParent the UUID of its GPU.
	AttributeProfile = "profile"
	AttributeParent  = "parentUUID"
)

// Values of [AttributeForm].
const (
	// FormShared is the form of a GPU whose shares have backend slice. [AttributeWhole] is
	// true where a request can take all of the GPU so that nobody else gets any of it,
	// which is so in every form of shares. Agents of earlier versions do not set it,
	// because they publish a second device for that.
	FormShared = "shared"
	// FormTimeslice and FormMPS are the forms of GPUs whose shares have these backends.
	FormTimeslice = "timeslice"
	FormMPS       = "mps"
	// FormMIG is the form of a GPU in MIG mode. Its devices are instances, or places where one can be made.
	FormMIG = "mig"
	// FormWhole is that second device. It is published for a GPU, and no other device is,
	// while an allocation of it lives.
	FormWhole = "whole"
)

// UnhealthyTaint is the key of the taint on devices of a GPU that is not
// healthy. Its value is the reason.
const UnhealthyTaint = Domain + "/unhealthy"

// ChangingTaint is the key of the taint on a device of a GPU that is to get another form
// and waits until no claim has the device. Its value is that form.
const ChangingTaint = Domain + "/changing"

// HeldTaint is the key of the taint on a device of [FormWhole], which is allocated
// already and not offered any more.
const HeldTaint = Domain + "/held"

// Resources that a pod names in the plain form.
const (
	// ResourceGPU counts GPUs. Alone it asks for whole ones.
	ResourceGPU = Domain + "/gpu"
	// ResourceMemory is memory of each GPU, in bytes.
	ResourceMemory = Domain + "/gpu-memory"
	// ResourceMemoryPercent is a percentage of each GPU's memory.
	ResourceMemoryPercent = ResourceMemory + "-percent"
	// ResourceCores is a percentage of each GPU's time.
	ResourceCores = Domain + "/gpu-cores"
)

// SlotResource is the extended resource that is counted in mode slots: one for
// each container that has a share, whatever its size.
const SlotResource = Domain + "/shares"

// Annotations of pods, nodes and claim templates. Each has one writer.
const (
	// RequestAnnotation is what a pod asks, a [PodRequest]. The webhook writes
	// it when the pod is created.
	RequestAnnotation = Domain + "/request"
	// AssignmentAnnotation is what a pod was given, a [PodAssignment]. The
	// scheduler that binds the pod writes it on the Binding, so that it comes
	// with the node.
	AssignmentAnnotation = Domain + "/assignment"
	// GPUsAnnotation is what a node has, a [NodeGPUs]. Its agent writes it.
	GPUsAnnotation = Domain + "/gpus"
	// TemplatesAnnotation is what the claim templates that a pod names hold, by
	// their names. The webhook writes it when the pod is created.
	TemplatesAnnotation = Domain + "/claim-templates"
	// BackendAnnotation names the backend of the shares of a pod in any dialect. Whoever
	// makes the pod writes it; left out it is slice.
	BackendAnnotation = Domain + "/backend"
	// UsedAnnotation is the time, RFC 3339, at which a pod last asked for a claim
	// template. The controller writes it.
	UsedAnnotation = Domain + "/used"
)

// Annotations of pods that say which GPUs they accept and prefer. Whoever writes the pod writes them.
const (
	// ModelsAnnotation is a [GPUModels].
	ModelsAnnotation = Domain + "/gpu-models"
	// PreferAnnotation is a [GPUPreference].
	PreferAnnotation = Domain + "/gpu-prefer"
)

// SchedulerName is the name of Divvy's scheduler in pods, and of its service account.
const SchedulerName = "divvy-scheduler"

// Annotations of pods that Divvy's scheduler reads.
const (
	// ClaimsAnnotation is what the claims hold that a pod names and that the scheduler makes when it binds the pod: the
	// specification of each by its name, as JSON. The webhook writes it when the pod is created.
	ClaimsAnnotation = Domain + "/claims"
	// GangAnnotation is the name of the gang to which a pod belongs. Gangs are of one namespace.
	GangAnnotation = Domain + "/gang"
	// GangSizeAnnotation is how many members a gang has, 1 to 4096. All of them name the same.
	GangSizeAnnotation = Domain + "/gang-size"
	// GangMinimumAnnotation is how many members a gang needs to run, 1 to its size; left out, it is its size.
	GangMinimumAnnotation = Domain + "/gang-minimum"
	// GangTopologyAnnotation lists labels of nodes, the widest first: LABEL=required,LABEL=preferred. All members are on
	// nodes with one value of a required label, and with as few values of a preferred one as possible.
	GangTopologyAnnotation = Domain + "/gang-topology"
	// GangShareGPUsAnnotation lets members of a gang share GPUs if it is "true".
	GangShareGPUsAnnotation = Domain + "/gang-share-gpus"
)

// Labels of pods that queues read. Whoever writes the pod writes them.
const (
	// QueueLabel names the queue of a pod; left out it is that of its namespace.
	QueueLabel = Domain + "/queue"
	// QuotaLabel is a [Quota]; left out it is [QuotaBorrowing].
	QuotaLabel = Domain + "/quota"
	// MovableLabel marks a pod that may be ended to start again elsewhere, if it is "true".
	MovableLabel = Domain + "/movable"
)

// Labels of claim templates of translated pods.
const (
	// ManagedLabel marks them, with ManagedBy as its value.
	ManagedLabel = "app.kubernetes.io/managed-by"
	// ManagedBy says that a template is collected once no pod uses it.
	ManagedBy = "divvy-webhook"
)

// Labels of nodes. Administrators write the first three; the agent writes the
// others.
const (
	// NodeLabel asks for an agent on a node of which nothing else says that it has
	// GPUs.
	NodeLabel = Domain + "/node"
	// DefaultPolicyLabel is the policy of shares that name none. It replaces what
	// the agent was told.
	DefaultPolicyLabel = Domain + "/default-policy"
	// DefaultCoresLabel is the cores of shares that name none. It replaces what the
	// agent was told.
	DefaultCoresLabel = Domain + "/default-cores"
	// ModelLabel is the driver's name of the node's GPUs, with dashes for what a
	// label cannot hold.
	ModelLabel = Domain + "/gpu.model"
	// MemoryLabel is what the node's smallest GPU has for tenants, in whole MiB.
	MemoryLabel = Domain + "/gpu.memory"
	// CountLabel is the number of the node's GPUs.
	CountLabel = Domain + "/gpu.count"
)

// APIVersion is the version of everything in this package, as documents name it.
const APIVersion = Domain + "/v1alpha1"

// CDIKind is the kind of the CDI devices by which containers get their shares.
const CDIKind = Domain + "/share"

// CDIAdminKind is the kind of the CDI devices of GPUs that containers get without a share.
const CDIAdminKind = Domain + "/admin"

// Plugin is the name under which the agent is a plugin of NRI. Pods that must not
// start without the agent name it.
const Plugin = "divvy"
