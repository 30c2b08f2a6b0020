package dialect

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	kjson "sigs.k8s.io/json"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// ErrGPUConfig marks every error of [DecodeGPUConfig].
var ErrGPUConfig = errors.New("configuration for " + v1alpha1.NVIDIADriver)

// GPUConfig is what a GpuConfig of NVIDIA's DRA driver asks of the whole GPUs of a request. The zero value asks nothing.
type GPUConfig struct {
	// Backend is how the claim's processes share the GPU: timeslice, mps, or "" where nothing is said.
	Backend v1alpha1.Backend
	// Interval is the length of time slices, short, medium or long; "" is the driver's own.
	Interval string
	// Threads is a ceiling on the SMs of each process, in percent; 0 is none.
	Threads int
	// Memory bounds each process, in bytes and whole MiB; 0 does not. MemoryOf does the same for single GPUs of the
	// request, named by UUID or by their place in it from 0, and goes before Memory.
	Memory   uint64
	MemoryOf map[string]uint64
}

// gpuConfigVersion is what its documents name.
const gpuConfigVersion, gpuConfigKind = "resource.nvidia.com/v1beta1", "GpuConfig"

// otherKinds are the kinds of the same version that ask what is not offered.
var otherKinds = map[string]string{
	migConfigKind:                "it is for MIG devices, of class " + v1alpha1.ClassNVIDIAMIG,
	"VfioDeviceConfig":           "virtual machines get GPUs by claims of class " + v1alpha1.ClassPassthrough,
	"ComputeDomainChannelConfig": "compute domains are not offered",
	"ComputeDomainDaemonConfig":  "compute domains are not offered",
}

// gpuConfig is the document, with the names of its fields.
type gpuConfig struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Sharing    *sharing `json:"sharing"`
}

type sharing struct {
	Strategy    string       `json:"strategy"`
	TimeSlicing *timeSlicing `json:"timeSlicingConfig"`
	MPS         *mpsConfig   `json:"mpsConfig"`
}

type timeSlicing struct {
	Interval *string `json:"interval"`
}

type mpsConfig struct {
	Threads   *int                         `json:"defaultActiveThreadPercentage"`
	Memory    *resource.Quantity           `json:"defaultPinnedDeviceMemoryLimit"`
	MemoryOf  map[string]resource.Quantity `json:"defaultPerDevicePinnedMemoryLimit"`
	MultiUser *bool                        `json:"multiUser"`
}

func gpuFault(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrGPUConfig, fmt.Errorf(format, args...))
}

// DecodeGPUConfig reads the opaque parameters of a configuration that is addressed to NVIDIA's DRA driver. Nothing is
// ignored: unknown and repeated fields, other kinds, and what cannot be kept are errors that name the field.
func DecodeGPUConfig(text []byte) (GPUConfig, error) {
	if err := checkHead(text, gpuConfigKind); err != nil {
		return GPUConfig{}, err
	}
	var document gpuConfig
	if err := decodeStrictly(text, &document); err != nil || document.Sharing == nil {
		return GPUConfig{}, err
	}
	return document.Sharing.read()
}

// nvidiaHead is what all documents begin with.
type nvidiaHead struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
}

// checkHead returns why a document is not one of a kind.
func checkHead(text []byte, kind string) error {
	var head nvidiaHead
	if err := kjson.UnmarshalCaseSensitivePreserveInts(text, &head); err != nil {
		return gpuFault("%w", err)
	}
	reason, other := otherKinds[head.Kind]
	switch {
	case head.APIVersion == gpuConfigVersion && head.Kind == kind:
		return nil
	case head.APIVersion != gpuConfigVersion || !other:
		return gpuFault("it is %q %q: write %s %s", head.APIVersion, head.Kind, gpuConfigVersion, kind)
	}
	return gpuFault("kind %s: %s", head.Kind, reason)
}

// decodeStrictly takes no unknown and no repeated field.
func decodeStrictly(text []byte, document any) error {
	faults, err := kjson.UnmarshalStrict(text, document)
	if err := errors.Join(append(faults, err)...); err != nil {
		return gpuFault("%s", strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	return nil
}

func (s *sharing) read() (GPUConfig, error) {
	switch s.Strategy {
	case "TimeSlicing":
		if s.MPS != nil {
			return GPUConfig{}, gpuFault("sharing.mpsConfig is for strategy MPS: leave it out")
		}
		return s.TimeSlicing.read()
	case "MPS":
		if s.TimeSlicing != nil {
			return GPUConfig{}, gpuFault("sharing.timeSlicingConfig is for strategy TimeSlicing: leave it out")
		}
		return s.MPS.read()
	}
	return GPUConfig{}, gpuFault("sharing.strategy %q: use TimeSlicing or MPS", s.Strategy)
}

// intervals are NVIDIA's words for the lengths of time slices.
var intervals = map[string]string{"Default": "", "Short": "short", "Medium": "medium", "Long": "long"}

func (t *timeSlicing) read() (GPUConfig, error) {
	c := GPUConfig{Backend: v1alpha1.BackendTimeslice}
	if t == nil || t.Interval == nil {
		return c, nil
	}
	interval, ok := intervals[*t.Interval]
	if !ok {
		return GPUConfig{}, gpuFault("sharing.timeSlicingConfig.interval %q: use Default, Short, Medium or Long", *t.Interval)
	}
	c.Interval = interval
	return c, nil
}

func (m *mpsConfig) read() (GPUConfig, error) {
	c := GPUConfig{Backend: v1alpha1.BackendMPS}
	if m == nil {
		return c, nil
	}
	if m.Threads != nil {
		if c.Threads = *m.Threads; c.Threads < 1 || c.Threads > v1alpha1.MaxCores {
			return GPUConfig{}, gpuFault("sharing.mpsConfig.defaultActiveThreadPercentage %d: give 1 to %d, or leave it out", c.Threads, v1alpha1.MaxCores)
		}
	}
	if m.Memory != nil {
		var err error
		if c.Memory, err = memoryLimit(*m.Memory, "sharing.mpsConfig.defaultPinnedDeviceMemoryLimit"); err != nil {
			return GPUConfig{}, err
		}
	}
	for _, name := range sortedKeys(m.MemoryOf) {
		field := "sharing.mpsConfig.defaultPerDevicePinnedMemoryLimit." + name
		if n, err := strconv.ParseUint(name, 10, 16); !strings.HasPrefix(name, "GPU-") && (err != nil || strconv.FormatUint(n, 10) != name) {
			return GPUConfig{}, gpuFault("%s: name a GPU by its UUID, or by its place in the request from 0", field)
		}
		limit, err := memoryLimit(m.MemoryOf[name], field)
		if err != nil {
			return GPUConfig{}, err
		}
		if c.MemoryOf == nil {
			c.MemoryOf = make(map[string]uint64)
		}
		c.MemoryOf[name] = limit
	}
	if m.MultiUser != nil && *m.MultiUser {
		return GPUConfig{}, gpuFault("sharing.mpsConfig.multiUser: whether one MPS server serves several users is for the node's administrator to say, in the agent's configuration: leave it out")
	}
	return c, nil
}

// memoryLimit is an amount in bytes, rounded down to whole MiB as NVIDIA's driver does.
func memoryLimit(q resource.Quantity, field string) (uint64, error) {
	if near := q.AsApproximateFloat64(); !(near >= mebibyte && near < 1<<50) {
		return 0, gpuFault("%s %s: give at least 1Mi, and no more than a GPU can have", field, q.String())
	}
	return uint64(q.Value()) / mebibyte * mebibyte, nil
}

// LimitOf returns the bound of a process's memory on the GPU with this UUID at this place of the request, and 0 for
// none. Names of GPUs that the request does not have are for [GPUConfig.Unknown].
func (c *GPUConfig) LimitOf(uuid string, place int) uint64 {
	if limit, ok := c.MemoryOf[uuid]; ok {
		return limit
	}
	if limit, ok := c.MemoryOf[strconv.Itoa(place)]; ok {
		return limit
	}
	return c.Memory
}

// Unknown returns an error if a limit names a GPU that is not one of these, the request's in order: CUDA would drop all
// limits then.
func (c *GPUConfig) Unknown(uuids []string) error {
	known := make(map[string]bool)
	for place, uuid := range uuids {
		known[uuid], known[strconv.Itoa(place)] = true, true
	}
	for _, name := range sortedKeys(c.MemoryOf) {
		if !known[name] {
			return gpuFault("sharing.mpsConfig.defaultPerDevicePinnedMemoryLimit names GPU %s, and the request has %s", name, strings.Join(uuids, ", "))
		}
	}
	return nil
}
