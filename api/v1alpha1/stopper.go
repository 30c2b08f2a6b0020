package v1alpha1

// Stopper is where a container with a slot or a replica has a mount that no runtime can make: below /proc the kernel
// creates nothing. The agent's device plugin has it mounted, and the agent takes it out when it puts the share in by NRI,
// so that a container never starts without its share. Runtimes name the path in their error, so it says what is wrong.
const Stopper = "/proc/divvy-agent-away-or-NRI-off"

// The reasons of events of a node in mode slots.
const (
	// ReasonNRI is of nodes whose container runtime asks the agent about no container.
	ReasonNRI = "NoSharesWithoutNRI"
	// ReasonNRIAgain follows it when the runtime asks again.
	ReasonNRIAgain = "SharesAgain"
	// ReasonFenced is of nodes with a GPU that takes no more shares, because what is said of it contradicts itself.
	ReasonFenced = "GPUFenced"
)

// NewestMinor is the minor version of the newest Kubernetes 1 with which Divvy was run.
const NewestMinor = 36
