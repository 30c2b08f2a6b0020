package backend

import (
	"context"

	"github.com/divvy-gpu/divvy/internal/alloc"
)

// Instance is a MIG instance: a GPU instance with the compute instance that fills it.
type Instance struct {
	// UUID is the driver's name of it, MIG-…, and Parent that of the GPU on which it lies.
	UUID   string `json:"uuid"`
	Parent string `json:"parent"`
	// Profile is the driver's name, such as 1g.10gb.
	Profile string `json:"profile"`
	// Start and Size are its memory slices.
	Start int `json:"start"`
	Size  int `json:"size"`
	// GPUInstance and ComputeInstance are the driver's numbers, the second within the first.
	GPUInstance     int `json:"gpuInstance"`
	ComputeInstance int `json:"computeInstance"`
	// Bytes is its memory, Multiprocessors its SMs.
	Bytes           uint64 `json:"bytes"`
	Multiprocessors int    `json:"multiprocessors"`
	// Reserved is what the driver keeps of its memory for itself, in bytes, 0 where that is not known.
	Reserved uint64 `json:"reserved,omitempty"`
	// ContextBytes is what the first context of a process takes there, 0 where only that of the GPU is known.
	ContextBytes uint64 `json:"contextBytes,omitempty"`
}

// Capacity is what the instance has for the shares that divide it.
func (i Instance) Capacity() uint64 { return i.Bytes - min(i.Reserved, i.Bytes) }

// Origin says who made an instance.
type Origin string

// The origins.
const (
	// OriginShare is an instance that Divvy made for a share, and takes away with the last one on it.
	OriginShare Origin = "share"
	// OriginLayout is an instance that Divvy made because a layout has it. It stays until another layout is applied.
	OriginLayout Origin = "layout"
	// OriginForeign is an instance that somebody else made. Shares may be on it, and Divvy never takes it away.
	OriginForeign Origin = "foreign"
	// OriginVGPU is an instance that Divvy made for a vGPU, and takes away with it. No share is on it.
	OriginVGPU Origin = "vgpu"
)

// Part is an instance of a GPU as it is.
type Part struct {
	Instance
	Origin Origin `json:"origin"`
	// Half says why no program can use it, such as a GPU instance without a compute instance; empty where one can.
	Half string `json:"half,omitempty"`
}

// Division is how a GPU is divided by MIG.
type Division struct {
	// On is whether the GPU is in MIG mode, and Pending whether it will be after its next reset.
	On, Pending bool
	// Profiles are those of a GPU in MIG mode, and Sizes what an instance of each has, in the same order.
	Profiles []alloc.Profile
	Sizes    []Instance
	// Parts are its instances, by place.
	Parts []Part
}

// Divider is a backend whose shares are on MIG instances. Its functions may be called at the same time, also about one
// GPU, and may take seconds. The agent's lock is not held.
type Divider interface {
	// Division reads how a GPU is divided. A GPU without MIG is one that is not on.
	Division(ctx context.Context, gpu GPU) (Division, error)
	// Create makes an instance, or nothing. It belongs to a share, or to a layout.
	Create(ctx context.Context, gpu GPU, profile string, start int, origin Origin) (Instance, error)
	// Destroy takes an instance of Divvy's away. One that a process uses stays whole.
	Destroy(ctx context.Context, gpu GPU, uuid string) error
	// Claim makes an instance of Divvy's one of a share's or of a layout's.
	Claim(ctx context.Context, gpu GPU, uuid string, origin Origin) error
	// SetMode turns the MIG mode of a GPU on or off at once, or leaves it. Who uses the GPU is named by the error.
	SetMode(ctx context.Context, gpu GPU, on bool) error
	// RecoverInstances finishes what an earlier agent began, and returns Divvy's instances that somebody else took away.
	RecoverInstances(ctx context.Context) (vanished []Instance, err error)
}
