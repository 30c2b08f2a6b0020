package dialect

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// ErrConfig marks every error of [NewTranslator].
var ErrConfig = errors.New("invalid webhook configuration")

// ModeClaims translates requests into claims, which Kubernetes 1.36 and later allocate.
const ModeClaims = "claims"

// schedulers maps each mode to the scheduler that pods get there when the configuration names none.
var schedulers = map[string]string{ModeClaims: defaultScheduler, ModeSlots: v1alpha1.SchedulerName}

const configKind = "WebhookConfig"

// config is the configuration file. Every dialect reads its own options.
type config struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	// Mode is the form that requests are given; left out it is claims.
	Mode string `json:"mode,omitempty"`
	// SchedulerName replaces the scheduler of a translated dialect in pods that name it. In mode slots, and where Scheduler
	// is set, it also replaces the default scheduler. Left out, it is the mode's own, and with Scheduler Divvy's.
	SchedulerName string `json:"schedulerName,omitempty"`
	// Scheduler says that Divvy's scheduler runs, under the name SchedulerName. It makes the claims of its pods itself.
	Scheduler *schedulerConfig `json:"scheduler,omitempty"`
	// Binders are the users who bind pods to GPUs in mode slots.
	Binders []string `json:"binders,omitempty"`
	// MaxWeight is the most that a claim or a pod may name as the weight of a share; left out, every weight is allowed.
	MaxWeight int `json:"maxWeight,omitempty"`
	// OwnKernels are the handlers of RuntimeClasses whose containers run on a kernel of their own; left out, the usual ones.
	OwnKernels v1alpha1.Kernels `json:"ownKernels,omitempty"`
	// NVIDIAClass is true where the device class gpu.nvidia.com selects Divvy's devices, so that claims of it are checked.
	NVIDIAClass bool `json:"nvidiaClass,omitempty"`
	// Dialects are those that are turned on, each with its options.
	Dialects map[string]*raw `json:"dialects"`
}

// schedulerConfig is what the webhook has to know of Divvy's scheduler.
type schedulerConfig struct {
	// Users are the names of the users as which it asks the API server.
	Users []string `json:"users"`
	// Queues says that it serves queues. Then the webhook follows them.
	Queues bool `json:"queues,omitempty"`
}

// mostUsers bounds the users of the scheduler: one, and another one while it moves.
const mostUsers = 8

// userPattern allows what service accounts and common names of certificates have, and nothing that ends a CEL string.
var userPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9:._@/-]{0,252}$`)

func (s *schedulerConfig) check(mode string) error {
	switch {
	case s == nil:
		return nil
	case mode != ModeClaims:
		return fmt.Errorf("%w: scheduler: mode %s has no claims that it could make: leave it out", ErrConfig, mode)
	case len(s.Users) == 0 || len(s.Users) > mostUsers:
		return fmt.Errorf("%w: scheduler: users: name 1 to %d, such as system:serviceaccount:divvy-system:%s", ErrConfig, mostUsers, v1alpha1.SchedulerName)
	}
	for _, user := range s.Users {
		if !userPattern.MatchString(user) {
			return fmt.Errorf("%w: scheduler: users: %q is no user's name, such as system:serviceaccount:divvy-system:%s", ErrConfig, user, v1alpha1.SchedulerName)
		}
	}
	return nil
}

// raw keeps JSON as it is.
type raw []byte

func (r *raw) UnmarshalJSON(text []byte) error {
	*r = append((*r)[:0], text...)
	return nil
}

// options are what the configuration says of one dialect.
type options struct {
	dialect, mode string
	json          raw
}

func (o options) fault(format string, args ...any) error {
	return fmt.Errorf("%w: dialect %s: %w", ErrConfig, o.dialect, fmt.Errorf(format, args...))
}

// decode reads the options strictly: unknown and repeated fields are errors, and case counts.
func (o options) decode(into any) error {
	if len(o.json) == 0 {
		return nil
	}
	faults, err := kjson.UnmarshalStrict(o.json, into)
	if err := errors.Join(append(faults, err)...); err != nil {
		return o.fault("%w", err)
	}
	return nil
}

// checkFactor returns an error unless memoryFactor is a valid number of MiB for one unit of memory.
func (o options) checkFactor(memoryFactor uint64) error {
	if memoryFactor < 1 || memoryFactor > gibibyte/mebibyte {
		return o.fault("memoryFactor %d: give 1 to %d MiB", memoryFactor, gibibyte/mebibyte)
	}
	return nil
}

// dialects maps the name of each dialect to the function that makes it from its options. A new dialect adds a row.
var dialects = map[string]func(options) (Dialect, error){
	"plain":        plain,
	"nvidia":       nvidia,
	"hami":         hami,
	"4paradigm":    paradigm,
	"vcuda":        vcuda,
	"qgpu":         qgpu,
	"elasticgpu":   elasticGPU,
	"gpushare":     gpushare,
	"volcano":      volcano,
	"kai":          newKAI,
	"koordinator":  koordinator,
	"kueue":        newKueue,
	"vgpu-manager": vgpuManager,
}

// NewTranslator reads a configuration, YAML or JSON. Unknown fields, unknown dialects and two dialects that own one
// name are errors that wrap [ErrConfig].
func NewTranslator(text []byte) (*Translator, error) {
	var c config
	asJSON, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	faults, err := kjson.UnmarshalStrict(asJSON, &c)
	if err := errors.Join(append(faults, err)...); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	t, err := c.translator()
	if err != nil {
		return nil, err
	}
	for _, name := range sortedKeys(c.Dialects) {
		made, ok := dialects[name]
		if !ok {
			return nil, fmt.Errorf("%w: dialect %q is not one of %s", ErrConfig, name, strings.Join(sortedKeys(dialects), ", "))
		}
		given := options{dialect: name, mode: c.Mode}
		if text := c.Dialects[name]; text != nil && string(*text) != "null" {
			given.json = *text
		}
		dialect, err := made(given)
		if err != nil {
			return nil, err
		}
		t.dialects = append(t.dialects, dialect)
	}
	return t, t.overlap()
}

// translator checks all but the dialects, and returns a translator that has none yet.
func (c *config) translator() (*Translator, error) {
	if c.APIVersion != v1alpha1.APIVersion || c.Kind != configKind {
		return nil, fmt.Errorf("%w: it is %s %s, not %s %s", ErrConfig, c.APIVersion, c.Kind, v1alpha1.APIVersion, configKind)
	}
	if c.Mode == "" {
		c.Mode = ModeClaims
	}
	scheduler, ok := schedulers[c.Mode]
	if !ok {
		return nil, fmt.Errorf("%w: mode %q is not one of %s", ErrConfig, c.Mode, strings.Join(sortedKeys(schedulers), ", "))
	}
	if c.MaxWeight < 0 || c.MaxWeight > v1alpha1.MaxWeight {
		return nil, fmt.Errorf("%w: maxWeight %d: give 1 to %d", ErrConfig, c.MaxWeight, v1alpha1.MaxWeight)
	}
	if err := c.OwnKernels.Validate(); err != nil {
		return nil, fmt.Errorf("%w: ownKernels: %w", ErrConfig, err)
	}
	if err := c.Scheduler.check(c.Mode); err != nil {
		return nil, err
	}
	if err := checkBinders(c.Binders, c.Mode); err != nil {
		return nil, err
	}
	if c.Scheduler != nil {
		scheduler = v1alpha1.SchedulerName
	}
	t := &Translator{kernels: c.OwnKernels, mode: c.Mode, scheduler: cmp.Or(c.SchedulerName, scheduler), maxWeight: c.MaxWeight, classes: Classes{NVIDIA: c.NVIDIAClass}, binders: c.Binders}
	if c.Scheduler != nil {
		t.makers, t.queues = c.Scheduler.Users, c.Scheduler.Queues
	}
	return t, nil
}

// overlap returns an error if two dialects read the same name.
func (t *Translator) overlap() error {
	owner := make(map[string]string)
	for _, dialect := range t.dialects {
		names := dialect.Owns()
		for _, name := range slices.Concat(names.Resources, names.Annotations) {
			if other, ok := owner[name]; ok {
				return fmt.Errorf("%w: dialects %s and %s both own %s: turn one of them off", ErrConfig, other, dialect.Name(), name)
			}
			owner[name] = dialect.Name()
		}
	}
	return nil
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K {
	return slices.Sorted(maps.Keys(m))
}
