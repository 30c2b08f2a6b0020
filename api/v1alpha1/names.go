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
	// ClassRemote is that of shares of GPUs that nodes reach through the network, with backend remote.
	ClassRemote = FormRemote + "." + Domain
	// ClassWhole is the device class of whole GPUs: a request of this class takes all of
	// a GPU and names no amounts.
	ClassWhole = "gpu." + Domain
	// ClassMIG is the device class of MIG instances. A claim has an instance alone. Amounts that it names
	// are the least that the instance has.
	ClassMIG = "mig." + Domain
	// ClassNIC is the device class of RDMA cards that several claims share, ClassNICFunction that of virtual functions of
	// such cards, each of which one claim has alone.
	ClassNIC         = "nic." + Domain
	ClassNICFunction = "nic-vf." + Domain
	// ClassPassthrough, ClassVF and ClassVGPU are the device classes of devices for virtual machines.
	ClassPassthrough = FormPassthrough + "." + Domain
	ClassVF          = FormVF + "." + Domain
	ClassVGPU        = FormVGPU + "." + Domain
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
	// CapacitySwapMemory is memory of the host, in bytes, on nodes whose agents have some for swap shares. Such a share takes
	// its limit of it, and of [CapacityMemory] what never leaves the GPU.
	CapacitySwapMemory = "swapMemory"
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
	// AttributeSwitch is where a GPU or an RDMA card meets others without the host bridge: the PCI address of the outermost
	// upstream port above it, and its own address where it is below no switch, so that it then matches no other device.
	AttributeSwitch       = "switch"
	AttributeNVLinkClique = "nvlinkClique"
	AttributeNUMANode     = "numaNode"
	// AttributeSuspends is true of a GPU whose shares can be suspended; others do not have it.
	AttributeSuspends = "suspends"
	// AttributeProfile is the driver's name of a MIG instance's profile, AttributeParent the UUID of its GPU.
	AttributeProfile = "profile"
	AttributeParent  = "parentUUID"
	// AttributePCIID is the PCI function's vendor and device such as 10de:2331, AttributeIOMMUGroup the number of its IOMMU
	// group. AttributePCIParent is the address of the function on which a virtual one, or a mediated device, is.
	AttributePCIID      = "pciID"
	AttributeIOMMUGroup = "iommuGroup"
	AttributePCIParent  = "pciParent"
	// AttributeVGPUType is the number of a vGPU's type as the driver counts them, AttributeVGPUName the type's name.
	AttributeVGPUType = "vgpuType"
	AttributeVGPUName = "vgpuName"
)

// Attributes of a GPU that nodes reach through the network, in the domain [Driver].
const (
	// AttributeHost is the name of the node that has the GPU. Several GPUs for one container are of one host.
	AttributeHost = "host"
	// AttributeAddress is where that node serves its GPUs: an IP address and a port.
	AttributeAddress = "address"
)

// Attributes of an RDMA card, in the domain [Driver].
const (
	// AttributeRDMADevice is the kernel's name of the adapter, AttributeNetdev that of its network device.
	AttributeRDMADevice = "rdmaDevice"
	AttributeNetdev     = "netdev"
	// AttributeLinkType is [LinkEthernet] or [LinkInfiniBand].
	AttributeLinkType = "linkType"
	// AttributeRail is the number of the card among those of its node, from 0. Virtual functions have that of their card.
	AttributeRail = "rail"
)

// Values of [AttributeLinkType].
const (
	LinkEthernet   = "ethernet"
	LinkInfiniBand = "infiniband"
)

// Attributes by which Multus finds the device to attach: its PCI address, and the name that a network definition has in its
// annotation of the same name. Each rail has a resource name of its own, because Multus sorts the devices of one.
const (
	AttributeMultusDevice   = "k8s.cni.cncf.io/deviceID"
	AttributeMultusResource = "k8s.cni.cncf.io/resourceName"
	// RailResource begins the resource names of rails; the rail's number follows.
	RailResource = Domain + "/rail-"
)

// AttributeMdevUUID is the UUID of a mediated device in the metadata of a claim, as KubeVirt reads it. No domain is before
// it.
const AttributeMdevUUID = "mdevUUID"

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
	// FormRemote is the form of GPUs that nodes reach through the network. They have no other device.
	FormRemote = "remote"
	// FormMIG is the form of a GPU in MIG mode. Its devices are instances, or places where one can be made.
	FormMIG = "mig"
	// FormPassthrough is the form of physical functions for virtual machines, FormVF that of virtual functions. FormVGPU is
	// that of vGPUs.
	FormPassthrough = "passthrough"
	FormVF          = "vf"
	FormVGPU        = "vgpu"
	// FormWhole is that second device. It is published for a GPU, and no other device is,
	// while an allocation of it lives.
	FormWhole = "whole"
	// FormNIC and FormNICFunction are those of RDMA cards that are shared and of their virtual functions.
	FormNIC         = "nic-shared"
	FormNICFunction = "nic-vf"
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

// HostTaint is the key of the taint on devices of [FormRemote] whose host is away. The controller writes it; its value is
// the reason.
const HostTaint = Domain + "/host-away"

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
	// ResourcePairs counts pairs of a GPU and an RDMA card. It stands in place of [ResourceGPU].
	ResourcePairs = Domain + "/pairs"
)

// SlotResource is the extended resource that is counted in mode slots: one for
// each container that has a share, whatever its size.
const SlotResource = Domain + "/shares"

// FitsCondition is the type of the condition of a pod that the extender refused and that fits since. It has the scheduler ask
// again.
const FitsCondition = Domain + "/fits"

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
	// HeldAnnotation is what is given of a node's GPUs, a [NodeHeld]. Its agent writes it.
	HeldAnnotation = Domain + "/held"
	// TemplatesAnnotation is what the claim templates that a pod names hold, by
	// their names. The webhook writes it when the pod is created.
	TemplatesAnnotation = Domain + "/claim-templates"
	// BackendAnnotation names the backend of the shares of a pod in any dialect. Whoever
	// makes the pod writes it; left out it is slice.
	BackendAnnotation = Domain + "/backend"
	// SwapAnnotation is "true" where the shares of a pod, in any dialect, are swap shares, and "false" where they are none
	// although its dialect says so. KeptAnnotation is how much of each never leaves the GPU, a [Memory], and
	// SuspendAfterAnnotation after how long without use one is suspended. Whoever makes the pod writes them.
	SwapAnnotation         = Domain + "/swap"
	KeptAnnotation         = Domain + "/kept-memory"
	SuspendAfterAnnotation = Domain + "/suspend-after"
	// PairsFallbackAnnotation is the [PairReach] of a pod's pairs. Whoever makes the pod writes it.
	PairsFallbackAnnotation = Domain + "/pairs-fallback"
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

// What Divvy's scheduler writes on claims, and nobody else.
const (
	// SuspendAnnotation is a [Suspension]. While it is there the claim's shares stay out of their GPUs, whatever their programs call;
	// when it goes, the node's agent brings them back. It comes and goes together with SuspendNodeLabel, in the same write.
	SuspendAnnotation = Domain + "/suspend"
	// SuspendNodeLabel is [SuspendNode] of the node on which the claim's shares are. The API selects claims by labels and not by nodes,
	// and an agent that watched all claims of a cluster for the few that leave its GPUs would have every one of them sent to every node.
	SuspendNodeLabel = Domain + "/suspend-node"
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

// CDINICKind is the kind of the CDI devices of RDMA cards.
const CDINICKind = Domain + "/nic"

// CDIRemoteKind is the kind of the CDI devices by which containers get shares on other hosts.
const CDIRemoteKind = Domain + "/remote"

// CDIMachineKind is the kind of the CDI devices of virtual machines.
const CDIMachineKind = Domain + "/machine"

// Plugin is the name under which the agent is a plugin of NRI.
const Plugin = "divvy"
