package v1alpha1

import (
	"errors"
	"fmt"
	"strings"

	"regexp"
	"strconv"
)

// Policy says what happens to GPU time beyond or below a share's cores.
type Policy string

// The policies.
const (
	// PolicyFixed is a hard cap: never more than the share's cores.
	PolicyFixed Policy = "fixed"
	// PolicyWeighted divides the time that is wanted by weight and leaves
	// none idle; cores, if given, are guaranteed.
	PolicyWeighted Policy = "weighted"
	// PolicyBurst guarantees the cores and lends idle time above them.
	PolicyBurst Policy = "burst"
)

// Class says who gives way when tenants meet on one GPU.
type Class string

// The classes.
const (
	// ClassOnline is latency first.
	ClassOnline Class = "online"
	// ClassOffline takes what is left and gives way at once.
	ClassOffline Class = "offline"
)

// Backend names the way in which a share is made real.
type Backend string

// The backends. A GPU is shared in one of these ways at a time.
const (
	// BackendSlice enforces shares in the library put in front of the driver's.
	BackendSlice Backend = "slice"
	// BackendTimeslice leaves GPU time to the driver's time slices, which are the same
	// for all processes. Memory is limited as with BackendSlice.
	BackendTimeslice Backend = "timeslice"
	// BackendMPS runs the processes side by side by NVIDIA's MPS, whose control daemon
	// gives each at most its cores in SMs. Memory is limited as with BackendSlice.
	BackendMPS Backend = "mps"
	// BackendMIG gives each share a MIG instance of its own, whose memory and SMs the hardware keeps apart.
	BackendMIG Backend = "mig"
	// BackendRemote makes shares as BackendSlice does, and the driver is called by a process beside the command, which sees
	// neither the driver nor a device node.
	BackendRemote Backend = "remote"
	// BackendPassthrough gives a whole device, with all others of its IOMMU group, to a virtual machine. No process of this
	// machine has a share of it.
	BackendPassthrough Backend = "passthrough"
	// BackendVF gives one virtual function of a device to a virtual machine.
	BackendVF Backend = "vf"
	// BackendVGPU gives a part of an NVIDIA GPU to a virtual machine, by NVIDIA's host driver for vGPU.
	BackendVGPU Backend = "vgpu"
	// BackendAuto lets the agent choose one of the others. No share has it.
	BackendAuto Backend = "auto"
)

// ForMachines reports whether what the backend makes is for virtual machines, so that no process has a share of it.
func (b Backend) ForMachines() bool {
	return b == BackendPassthrough || b == BackendVF || b == BackendVGPU
}

// Form is the backend after which the form of GPUs with such shares is named. A share of [BackendRemote] is one of
// [BackendSlice] to its GPU; any other backend has a form of its own.
func (b Backend) Form() Backend {
	if b == BackendRemote {
		return BackendSlice
	}
	return b
}

// Bounds of a request.
const (
	// MaxCores is the whole GPU time of one GPU, in percent.
	MaxCores = 100
	// MaxWeight bounds the ratio between two tenants.
	MaxWeight = 1000
	// MaxGPUs bounds the GPUs of one request: more than any host has.
	MaxGPUs = 64
)

// ErrRequest marks every error of [ShareRequest.Validate].
var ErrRequest = errors.New("invalid request")

// ShareConfig is how a share behaves, as opposed to how large it is.
type ShareConfig struct {
	// Policy left out is fixed when cores are given, weighted otherwise.
	Policy Policy `json:"policy,omitempty"`
	// MaxCores is the percentage of GPU time up to which a burst share takes
	// idle time, its cores to 100; left out it is 100. Other policies have none.
	MaxCores int `json:"maxCores,omitempty"`
	// Weight is 1 to MaxWeight, for weighted shares; left out it is 1.
	Weight int `json:"weight,omitempty"`
	// Class left out is online.
	Class Class `json:"class,omitempty"`
	// Backend left out is slice.
	Backend Backend `json:"backend,omitempty"`
	// Swap lets the share's linear memory leave the GPU, so that it takes turns there with others. What the share has in
	// all is its memory.
	Swap bool `json:"swap,omitempty"`
	// Kept is the part of a swap share's memory that never leaves the GPU: contexts, code, pools, arrays, graphs. A part is
	// one of the share's memory. Left out it is a tenth, see [ShareConfig.KeptOf].
	Kept Memory `json:"kept,omitzero"`
	// SuspendAfter is how long the share's programs do not use the GPU before they are taken off it; 0 for never.
	SuspendAfter Duration `json:"suspendAfter,omitempty"`
	// GPUModels are the models that serve, and GPUPrefer says which are wanted first. Only who chooses among several
	// GPUs looks at them.
	GPUModels GPUModels     `json:"gpuModels,omitempty"`
	GPUPrefer GPUPreference `json:"gpuPrefer,omitempty"`
}

// ShareRequest asks for shares of one or more GPUs for one tenant. Memory and
// cores are per GPU.
type ShareRequest struct {
	// Name is what lists show and what set and stop accept; left out, the
	// agent makes one.
	Name string `json:"name,omitempty"`
	// GPUs is how many different GPUs, 1 to MaxGPUs; left out it is all of Among,
	// or 1.
	GPUs int `json:"gpus,omitempty"`
	// Among names the GPUs that may serve, each by UUID, by the beginning of one, or
	// by NVML's index; left out, every GPU may.
	Among []string `json:"among,omitempty"`
	// Memory left out is all that a GPU has for tenants.
	Memory Memory `json:"memory,omitzero"`
	// Cores is the percentage of GPU time, 1 to MaxCores; 0 guarantees none. With
	// [BackendMPS] it is the percentage of SMs that are used at most, and 0 is all of them.
	Cores int `json:"cores,omitempty"`
	// Profile is the driver's name of a MIG profile, such as 1g.10gb. With [BackendMIG], which a profile means unless
	// a backend is named, the share is such an instance, without a profile the smallest that has its memory and cores. With another backend the share is a part of such
	// an instance, and memory and cores are relative to it.
	Profile string `json:"profile,omitempty"`
	// Isolate is what neighbours on the GPU must not reach; left out, whatever the
	// backend leaves open is accepted.
	Isolate Isolation `json:"isolate,omitempty"`
	// Overcommit allows the memory and the guaranteed cores of all shares on a
	// GPU to exceed it.
	Overcommit bool `json:"overcommit,omitempty"`

	ShareConfig
}

// Default fills in what was left out.
func (r *ShareRequest) Default() {
	if r.GPUs == 0 {
		r.GPUs = max(1, len(r.Among))
	}
	if r.Memory.IsZero() {
		r.Memory = Percent(100)
	}
	switch {
	case r.Backend != "":
	case r.Profile != "": // a part of an instance is asked for by its backend
		r.Backend = BackendMIG
	case r.Isolate != "":
		r.Backend = BackendAuto
	}
	r.ShareConfig.Default(r.Cores)
}

// Default fills in what was left out of the config of a share with this many
// cores.
func (c *ShareConfig) Default(cores int) {
	if c.Policy == "" {
		c.Policy = PolicyWeighted
		if cores > 0 {
			c.Policy = PolicyFixed
		}
	}
	if c.MaxCores == 0 && c.Policy == PolicyBurst {
		c.MaxCores = MaxCores
	}
	if c.Weight == 0 {
		c.Weight = 1
	}
	if c.Class == "" {
		c.Class = ClassOnline
	}
	if c.Backend == "" {
		c.Backend = BackendSlice
	}
}

// Validate returns every fault of a request joined into one error that wraps
// [ErrRequest], or nil. It expects [ShareRequest.Default] to have run.
func (r *ShareRequest) Validate() error {
	var faults []error
	fault := func(format string, args ...any) {
		faults = append(faults, fmt.Errorf("%w: %w", ErrRequest, fmt.Errorf(format, args...)))
	}
	if r.Name != "" && !IsName(r.Name) {
		fault("name %q: use at most 63 lower-case letters, digits, '-', '_' and '.', starting with a letter or digit", r.Name)
	}
	if r.GPUs < 1 || r.GPUs > MaxGPUs {
		fault("%d GPUs: ask for 1 to %d", r.GPUs, MaxGPUs)
	}
	r.validateAmong(fault)
	if r.Memory.IsZero() {
		fault("memory must be greater than zero")
	}
	if r.Cores < 0 || r.Cores > MaxCores {
		fault("cores %d: give 1 to %d percent of the GPU's time", r.Cores, MaxCores)
	}
	if r.Backend == BackendMPS && r.GPUs > 1 {
		fault("%d GPUs with backend mps: ask for one, because each has a control daemon of its own and a process can be the client of one only", r.GPUs)
	}
	if r.Swap && r.GPUs > MaxSwapGPUs {
		fault("%d GPUs with swap: ask for at most %d", r.GPUs, MaxSwapGPUs)
	}
	r.validateInstance(fault)
	config := r.ShareConfig
	if config.Backend == BackendAuto {
		config.Backend = BackendSlice // which can make all that any other one can
	}
	if err := config.Validate(r.Cores); err != nil {
		faults = append(faults, err)
	}
	r.validateIsolation(fault)
	return errors.Join(faults...)
}

// IsName reports whether something that users name can have that name.
func IsName(name string) bool { return validName.MatchString(name) }

// validateInstance tells of faults in what is asked of MIG instances.
func (r *ShareRequest) validateInstance(fault func(format string, args ...any)) {
	if r.Profile != "" && !validProfile.MatchString(r.Profile) {
		fault("profile %q is no MIG profile: `divvy gpu ls --profiles` lists those of each GPU, such as 1g.10gb", r.Profile)
	}
	if what := r.away(); r.Profile != "" && what != "" {
		fault("%s with profile %s: the driver moves no memory of MIG instances to the host: leave out one of both", what, r.Profile)
	}
	if (r.Profile != "" || r.Backend == BackendMIG) && r.GPUs > 1 {
		fault("%d GPUs with MIG instances: ask for one, because a process can use one instance only", r.GPUs)
	}
	if r.Profile != "" && r.Backend == BackendMIG && (r.Memory != Percent(100) || r.Cores > 0) {
		fault("profile %s says the memory and the cores of the instance: leave out --memory and --cores, or add --backend slice to have a part of the instance", r.Profile)
	}
}

// validateAmong tells of faults in the names of GPUs.
func (r *ShareRequest) validateAmong(fault func(format string, args ...any)) {
	if len(r.Among) > MaxGPUs {
		fault("%d GPUs are named: name at most %d", len(r.Among), MaxGPUs)
		return
	}
	if len(r.Among) > 0 && r.GPUs > len(r.Among) {
		fault("%d GPUs are asked for and only %d named (%s): name more, or leave out the number or the names",
			r.GPUs, len(r.Among), strings.Join(r.Among, ", "))
	}
	named := map[string]bool{}
	for _, name := range r.Among {
		switch {
		case strings.HasPrefix(strings.ToUpper(name), "MIG-"):
			fault("GPU %q is a MIG instance, and Divvy chooses or makes the instance itself: name the GPU, and ask for an instance with --profile", name)
		case !validGPU(name):
			fault("GPU %q is neither an index nor a UUID such as GPU-6e5f…: `divvy ls` lists them", name)
		case named[strings.ToLower(name)]:
			fault("GPU %s is named twice", name)
		}
		named[strings.ToLower(name)] = true
	}
}

// Guaranteed returns the percentage of GPU time that a share with this config
// and this many cores can count on: none in class offline, with backend mps, where
// cores are only a cap, and with backend mig, which divides no time.
func (c *ShareConfig) Guaranteed(cores int) int {
	if c.Class == ClassOffline || c.Backend == BackendMPS || c.Backend == BackendMIG {
		return 0
	}
	return cores
}

// Validate returns every fault of the config of a share with this many cores,
// joined into one error that wraps [ErrRequest], or nil.
func (c *ShareConfig) Validate(cores int) error {
	var faults []error
	fault := func(format string, args ...any) {
		faults = append(faults, fmt.Errorf("%w: %w", ErrRequest, fmt.Errorf(format, args...)))
	}
	c.validatePolicy(cores, fault)
	if c.Weight < 1 || c.Weight > MaxWeight {
		fault("weight %d: give 1 to %d", c.Weight, MaxWeight)
	}
	if c.Weight > 1 && c.Policy != PolicyWeighted && c.Backend.Form() == BackendSlice { // no other one has weights at all
		fault("weight %d needs policy weighted, not %s", c.Weight, c.Policy)
	}
	switch {
	case c.Class != ClassOnline && c.Class != ClassOffline:
		fault("class %q: use online or offline", c.Class)
	case c.Class == ClassOffline && cores > 0 && c.Policy != PolicyFixed:
		fault("class offline guarantees nothing, and policy %s guarantees cores: leave out --cores, or add --policy fixed, which makes them a cap", c.Policy)
	}
	c.validateBackend(cores, fault)
	c.validateSwap(fault)
	_, models := ParseGPUModels(string(c.GPUModels))
	_, prefer := ParseGPUPreference(string(c.GPUPrefer))
	return errors.Join(append(faults, models, prefer)...)
}

// validatePolicy tells of faults in what belongs to the policy.
func (c *ShareConfig) validatePolicy(cores int, fault func(format string, args ...any)) {
	switch c.Policy {
	case PolicyFixed:
		if cores == 0 {
			fault("policy fixed needs cores: add --cores, 1 to %d", MaxCores)
		}
	case PolicyWeighted:
	case PolicyBurst:
		if cores == 0 && c.Backend != BackendMIG && c.Backend != BackendMPS { // which have no such policy
			fault("policy burst needs the cores it guarantees: add --cores, 1 to %d", MaxCores)
		}
	default:
		fault("policy %q: use fixed, weighted or burst", c.Policy)
	}
	switch {
	case c.Policy != PolicyBurst && c.MaxCores != 0:
		fault("max cores %d need policy burst, not %s", c.MaxCores, c.Policy)
	case c.Policy == PolicyBurst && (c.MaxCores < cores || c.MaxCores > MaxCores):
		fault("max cores %d: give the share's cores, %d, to %d percent of the GPU's time", c.MaxCores, cores, MaxCores)
	}
}

// ParseCores reads a percentage of GPU time written as "30" or "30%".
func ParseCores(s string) (int, error) {
	n, err := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(s), "%"))
	if err != nil || n < 1 || n > MaxCores {
		return 0, fmt.Errorf("%w: cores %q: give a whole number from 1 to %d, the percentage of the GPU's time", ErrRequest, s, MaxCores)
	}
	return n, nil
}

var (
	validName = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,62}$`)
	validUUID = regexp.MustCompile(`^(?i:gpu)-[0-9a-fA-F-]{1,36}$`)
	// validProfile is a GPU instance's profile. Those of compute instances, such as 1c.3g.40gb, are none.
	validProfile = regexp.MustCompile(`^[1-9][0-9]?g\.[1-9][0-9]{0,3}gb([+-][a-z]+(\.[a-z]+)?)?$`)
	// validIndex has no leading zero, so that one GPU has one name.
	validIndex = regexp.MustCompile(`^(0|[1-9][0-9]{0,3})$`)
)

func validGPU(s string) bool {
	return validIndex.MatchString(s) || validUUID.MatchString(s)
}
