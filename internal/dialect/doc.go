// Package dialect turns what a pod asks in the plain form, or in the words of another system, into claims that the
// cluster's driver for divvy.dev allocates: [Translator.Translate] goes from a pod and an inventory to a patch and
// claim templates, or to a refusal of one line.
//
// It is pure: no server, no client, no clock. The same pod, configuration and inventory give the same bytes, a patched
// pod is left as it is, and a request that cannot be honoured is refused, never granted wider.
package dialect

// Names that the cluster's driver and its classes go by.
const (
	// Driver is the name of the DRA driver, and the domain of its attributes and capacities.
	Driver = "divvy.dev"
	// ClassShare is the device class of shares.
	ClassShare = "share.divvy.dev"
	// ClassWhole is the device class of whole GPUs.
	ClassWhole = "gpu.divvy.dev"
	// ClassMIG is the device class of MIG devices.
	ClassMIG = "mig.divvy.dev"
)

// Capacities of a shared GPU.
const (
	capacityMemory = "memory"
	capacityCores  = "cores"
	capacitySlots  = "slots"
)

// MaxGPUs is how many GPUs one container can ask for: a claim holds no more devices.
const MaxGPUs = 32
