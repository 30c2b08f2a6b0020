package v1alpha1

import (
	"fmt"
	"math"
	"slices"
)

// NodeGPUs is what a node's agent says of its GPUs.
type NodeGPUs struct {
	Version int       `json:"version"`
	GPUs    []NodeGPU `json:"gpus"`
}

// NodeGPU is one GPU. Amounts are bytes.
type NodeGPU struct {
	UUID  string `json:"uuid"`
	Index int    `json:"index"`
	Model string `json:"model,omitempty"`
	// Memory is what it has for tenants, ContextBytes what one process takes
	// of it before it allocates anything.
	Memory       uint64 `json:"memory"`
	ContextBytes uint64 `json:"contextBytes,omitempty"`
	// NUMANode is -1 where it is not known.
	NUMANode int `json:"numaNode"`
	// Fault says why nothing may be placed here; empty for a healthy GPU.
	Fault string `json:"fault,omitempty"`
	// The following are known from version 2 on, and have the values of the attributes of the same names in mode claims:
	// empty where they are unknown.
	Architecture  string `json:"architecture,omitempty"`
	DriverVersion string `json:"driverVersion,omitempty"`
	CUDAVersion   string `json:"cudaVersion,omitempty"`
	NVLinkClique  string `json:"nvlinkClique,omitempty"`
	PCIeSwitch    string `json:"pcieSwitch,omitempty"`
	PCIeRoot      string `json:"pcieRoot,omitempty"`
	PCIBusID      string `json:"pciBusID,omitempty"`
	// Suspends tells that its shares can be suspended.
	Suspends bool `json:"suspends,omitempty"`
	// Slots is how many tenants it takes; 0 is no limit.
	Slots int `json:"slots,omitempty"`
}

// NodeHeld is what a node's agent holds of its GPUs for tenants, so that whoever binds pods knows also of those that no pod
// tells of, and of pods that have ended and have not let go yet.
type NodeHeld struct {
	Version int `json:"version"`
	// GPUs has those of which tenants that are no pods of slots have something, such as those of divvy run and of claims,
	// each once.
	GPUs []GPUHeld `json:"gpus"`
	// Shares has those of pods of slots, each once.
	Shares []ShareHeld `json:"shares"`
}

// GPUHeld is the sum of what tenants other than pods of slots have of a GPU.
type GPUHeld struct {
	UUID string `json:"uuid"`
	// Memory is in bytes, Cores the percentage of its time that is guaranteed. Where the node's owner overcommits, both may
	// be more than the GPU has.
	Memory uint64 `json:"memory,omitempty"`
	Cores  int    `json:"cores,omitempty"`
	// Tenants is how many they are, at least 1.
	Tenants int `json:"tenants"`
	// Form is how they share it. A pod of slots, whose form is slice, fits beside no other one.
	Form Backend `json:"form,omitempty"`
}

// ShareHeld is the share of a pod of slots, by the pod's UID and the name in its [ShareRequired].
type ShareHeld struct {
	Pod  string `json:"pod"`
	Name string `json:"name"`
	// GPUs have the amounts of its [ShareAssigned]. Of whole GPUs, Memory is all that each has and Cores is 100.
	GPUs  []GPUAssigned `json:"gpus"`
	Whole bool          `json:"whole,omitempty"`
	// Offline tells that Cores are a cap, and guarantee nothing.
	Offline bool `json:"offline,omitempty"`
}

// Bounds of what is held.
const (
	// maxHeldShares is more than the pods of any node have, maxTenants more than any GPU has.
	maxHeldShares = 1024
	maxTenants    = 1 << 16
	// maxHeldCores is more than all tenants of a GPU are guaranteed.
	maxHeldCores = maxTenants * MaxCores
)

// ParseNodeGPUs reads a [GPUsAnnotation] as strictly.
func ParseNodeGPUs(text string) (NodeGPUs, error) {
	var n NodeGPUs
	if err := parseAnnotation(GPUsAnnotation, text, &n, n.validate); err != nil {
		return NodeGPUs{}, err
	}
	return n, nil
}

// ParseNodeHeld reads a [HeldAnnotation] as strictly.
func ParseNodeHeld(text string) (NodeHeld, error) {
	var n NodeHeld
	if err := parseAnnotation(HeldAnnotation, text, &n, n.validate); err != nil {
		return NodeHeld{}, err
	}
	return n, nil
}

// Text writes the annotation.
func (n NodeGPUs) Text() (string, error) {
	n.Version = gpusVersion
	return annotationText(GPUsAnnotation, n, n.validate)
}

// Text writes the annotation.
func (n NodeHeld) Text() (string, error) {
	n.Version = annotationVersion
	return annotationText(HeldAnnotation, n, n.validate)
}

func (n *NodeGPUs) validate() error {
	if n.Version < 1 || n.Version > gpusVersion {
		return fmt.Errorf("version %d is not 1 to %d", n.Version, gpusVersion)
	}
	if len(n.GPUs) > MaxGPUs {
		return fmt.Errorf("%d GPUs: give at most %d", len(n.GPUs), MaxGPUs)
	}
	seen := make(map[string]bool)
	for _, g := range n.GPUs {
		switch {
		case !validUUID.MatchString(g.UUID):
			return fmt.Errorf("GPU %q is not a UUID", g.UUID)
		case seen[g.UUID]:
			return fmt.Errorf("GPU %s is listed twice", g.UUID)
		case g.Index < 0 || g.Index >= maxIndex || g.NUMANode < -1 || g.NUMANode >= maxIndex:
			return fmt.Errorf("GPU %s: index %d or NUMA node %d is out of range", g.UUID, g.Index, g.NUMANode)
		case g.Slots < 0 || g.Slots > maxTenants:
			return fmt.Errorf("GPU %s: %d slots are not 0 to %d", g.UUID, g.Slots, maxTenants)
		case n.Version < gpusVersion && g != g.first():
			return fmt.Errorf("GPU %s: it says more than version %d has", g.UUID, n.Version)
		}
		seen[g.UUID] = true
	}
	return nil
}

// first is the GPU as version 1 tells of it.
func (g NodeGPU) first() NodeGPU {
	return NodeGPU{UUID: g.UUID, Index: g.Index, Model: g.Model, Memory: g.Memory, ContextBytes: g.ContextBytes, NUMANode: g.NUMANode, Fault: g.Fault}
}

// maxIndex is larger than any index of a driver or NUMA node.
const maxIndex = 4096

func (n *NodeHeld) validate() error {
	switch {
	case n.Version != annotationVersion:
		return fmt.Errorf("version %d is not %d", n.Version, annotationVersion)
	case len(n.GPUs) > MaxGPUs || len(n.Shares) > maxHeldShares:
		return fmt.Errorf("%d GPUs and %d shares: give at most %d and %d", len(n.GPUs), len(n.Shares), MaxGPUs, maxHeldShares)
	}
	seen := make(map[string]bool)
	for i := range n.GPUs {
		g := &n.GPUs[i]
		if seen[g.UUID] {
			return fmt.Errorf("GPU %s is listed twice", g.UUID)
		}
		seen[g.UUID] = true
		if err := g.validate(); err != nil {
			return fmt.Errorf("GPU %q: %w", g.UUID, err)
		}
	}
	shares := make(map[[2]string]bool)
	for i := range n.Shares {
		s := &n.Shares[i]
		id := [2]string{s.Pod, s.Name}
		if shares[id] {
			return fmt.Errorf("share %q of pod %q is listed twice", s.Name, s.Pod)
		}
		shares[id] = true
		if err := s.validate(); err != nil {
			return fmt.Errorf("share %q of pod %q: %w", s.Name, s.Pod, err)
		}
	}
	return nil
}

func (g *GPUHeld) validate() error {
	switch {
	case !validUUID.MatchString(g.UUID):
		return fmt.Errorf("it is not a UUID")
	case g.Memory > math.MaxInt64:
		return fmt.Errorf("%d bytes are more than any GPU has", g.Memory)
	case g.Cores < 0 || g.Cores > maxHeldCores:
		return fmt.Errorf("%d cores are not 0 to %d", g.Cores, maxHeldCores)
	case g.Tenants < 1 || g.Tenants > maxTenants:
		return fmt.Errorf("%d tenants are not 1 to %d", g.Tenants, maxTenants)
	case g.Form != "" && !slices.Contains(forms, g.Form):
		return fmt.Errorf("there is no form %q", g.Form)
	}
	return nil
}

// forms are the backends after which forms of GPUs are named.
var forms = []Backend{
	BackendSlice, BackendTimeslice, BackendMPS, BackendMIG, BackendPassthrough, BackendVF, BackendVGPU,
}

func (s *ShareHeld) validate() error {
	if s.Pod == "" || len(s.Pod) > maxName || s.Name == "" || len(s.Name) > maxName {
		return fmt.Errorf("a UID and a name have 1 to %d bytes", maxName)
	}
	if s.Whole && s.Offline {
		return fmt.Errorf("a whole GPU is not offline")
	}
	return validateGPUs(s.GPUs)
}

// validateGPUs wants what a share has of GPUs to be possible.
func validateGPUs(gpus []GPUAssigned) error {
	if len(gpus) < 1 || len(gpus) > MaxGPUs {
		return fmt.Errorf("%d GPUs: a share has 1 to %d", len(gpus), MaxGPUs)
	}
	seen := make(map[string]bool)
	for _, g := range gpus {
		switch {
		case !validUUID.MatchString(g.UUID):
			return fmt.Errorf("GPU %q is not a UUID", g.UUID)
		case seen[g.UUID]:
			return fmt.Errorf("GPU %s is listed twice", g.UUID)
		case g.Memory == 0 || g.Cores < 0 || g.Cores > MaxCores:
			return fmt.Errorf("a share of GPU %s needs memory, and 0 to %d cores: it has %d bytes and %d cores", g.UUID, MaxCores, g.Memory, g.Cores)
		}
		seen[g.UUID] = true
	}
	return nil
}
