// Package visible tells which GPUs the caller of `divvy run` means: by the flags --gpu
// and --gpus, by CUDA_VISIBLE_DEVICES, and by what the caller may open at all.
//
// Two numberings meet here. --gpu counts as NVML and `divvy ls` do, through the whole
// machine. CUDA_VISIBLE_DEVICES counts as CUDA does in the caller's process: only GPUs
// whose device nodes its cgroup lets it open, in the order of CUDA_DEVICE_ORDER.
package visible

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Variable is the environment variable by which CUDA chooses GPUs.
const Variable = "CUDA_VISIBLE_DEVICES"

// ErrChoice marks wishes that contradict themselves or that nothing can serve.
var ErrChoice = errors.New("invalid choice of GPUs")

// ErrUnknown marks the name of a GPU that this machine does not have.
var ErrUnknown = errors.New("unknown GPU")

// GPU is a GPU as NVML names it.
type GPU struct {
	Index int
	UUID  string
}

// Wish is what a caller says.
type Wish struct {
	// Named are the values of --gpu: indexes, UUIDs or beginnings of UUIDs.
	Named []string
	// Count is the value of --gpus, 0 if that was left out. All is true for --gpus all.
	Count int
	All   bool
	// Variable is CUDA_VISIBLE_DEVICES; nil where it is not set.
	Variable *string
}

// Sight is what is known of the machine and of what the caller sees of it.
type Sight struct {
	// Served are the GPUs that the agent knows.
	Served []GPU
	// LeftOut are the indexes of GPUs that the agent does not serve, because the driver did
	// not answer about them when it started.
	LeftOut []int
	// Hidden is true where the caller may not open some GPU's device node.
	Hidden bool
	// Shown are the UUIDs of the GPUs that CUDA shows the caller when
	// CUDA_VISIBLE_DEVICES is not set, in CUDA's order. Where Blind is not nil, that
	// is why they are not known.
	Shown []string
	Blind error
}

// Choice is what the caller means.
type Choice struct {
	// Among are the UUIDs of the GPUs that may serve, in the order in which the
	// caller named them; nil lets all.
	Among []string
	// Count is how many of them; 0 where nothing was said.
	Count int
}

// Validate refuses what no machine could serve. The error wraps [ErrChoice].
func (w Wish) Validate() error {
	if w.All && (len(w.Named) > 0 || w.Count > 0) {
		return refuse("--gpus all and --gpu exclude each other: leave one out")
	}
	if w.Variable == nil {
		return nil
	}
	list, err := parse(*w.Variable)
	if err == nil && len(list) == 0 {
		return refuse("%s=%q means no GPU: name GPUs in it, or let Divvy choose with: env -u %s divvy run …", Variable, *w.Variable, Variable)
	}
	return err
}

// Asks reports whether a wish can only be understood with [Sight.Served], and whether
// only with [Sight.Shown].
func (w Wish) Asks(hidden bool) (served, shown bool) {
	shown = hidden
	if w.Variable != nil {
		list, _ := parse(*w.Variable)
		shown = shown || slices.ContainsFunc(list, isIndex)
	}
	return shown || w.All || w.Variable != nil, shown
}

// Choose tells which GPUs a wish that [Wish.Validate] accepts means. The error wraps [ErrChoice] or [ErrUnknown] and
// says what to do.
func Choose(w Wish, s Sight) (Choice, error) {
	base, whose, err := s.base(w)
	if err != nil {
		return Choice{}, err
	}
	if len(w.Named) > 0 {
		named, err := Resolve(s.Served, w.Named)
		if err != nil {
			return Choice{}, s.silent(w.Named, err)
		}
		if err := s.contains(base, whose, named, w); err != nil {
			return Choice{}, err
		}
		base, whose = named, "that --gpu names"
	}
	c := Choice{Among: base, Count: w.Count}
	switch {
	case w.Count > len(base) && base != nil:
		return Choice{}, refuse("--gpus %d asks for more than the %s %s: %s", w.Count, count(len(base)), whose, s.list(base))
	case w.Count > 0:
	case w.All || w.Variable != nil || len(w.Named) > 0:
		c.Count = len(base)
	case base != nil:
		c.Count = 1
	}
	return c, nil
}

// base returns the GPUs among which the flags choose, nil for any, and says whose they are.
func (s Sight) base(w Wish) (base []string, whose string, err error) {
	switch {
	case w.Variable != nil:
		base, err := s.variable(*w.Variable)
		return base, fmt.Sprintf("of %s=%s", Variable, *w.Variable), err
	case s.Hidden && s.Blind != nil && len(w.Named) > 0 && !slices.ContainsFunc(w.Named, isIndex):
		// Who gives UUIDs knows what the job may use.
		return nil, "", nil
	case s.Hidden && s.Blind != nil:
		return nil, "", refuse("some GPUs are hidden from this process, and CUDA, which knows which, could not be asked: %w: name the job's GPUs by UUID with --gpu; %s",
			s.Blind, shows)
	case s.Hidden && len(s.Shown) == 0:
		return nil, "", refuse("every GPU is hidden from this process: ask for GPUs where the job is submitted")
	case s.Hidden:
		return s.Shown, "that this process may use", nil
	case w.All && len(s.Served) == 0:
		return nil, "", refuse("this machine has no GPU")
	case w.All:
		for _, gpu := range s.Served {
			base = append(base, gpu.UUID)
		}
		return base, "of this machine", nil
	}
	return nil, "", nil
}

// contains refuses GPUs that --gpu names and that are not among base, unless that is nil.
func (s Sight) contains(base []string, whose string, named []string, w Wish) error {
	for i, uuid := range named {
		if base == nil || slices.Contains(base, uuid) {
			continue
		}
		if w.Variable != nil {
			return refuse("--gpu %s contradicts %s=%s, which leaves %s: drop one of them, or make them agree",
				w.Named[i], Variable, *w.Variable, s.list(base))
		}
		return refuse("GPU %s is hidden from this process: the %s %s: %s", w.Named[i], count(len(base)), whose, s.list(base))
	}
	return nil
}

// list writes GPUs for people, such as "GPU 1 (GPU-6e5f…)".
func (s Sight) list(uuids []string) string {
	var texts []string
	for _, uuid := range uuids {
		text := uuid
		if i := slices.IndexFunc(s.Served, func(g GPU) bool { return g.UUID == uuid }); i >= 0 {
			text = fmt.Sprintf("GPU %d (%s)", s.Served[i].Index, uuid)
		}
		texts = append(texts, text)
	}
	return strings.Join(texts, ", ")
}

// shows is what to do about a GPU whose name is not known.
const shows = "`divvy ls` shows UUIDs once an agent runs, `nvidia-smi -L` at any time"

// Resolve returns the UUIDs of the GPUs with these names: indexes, UUIDs or beginnings
// of UUIDs that only one GPU has.
func Resolve(gpus []GPU, names []string) ([]string, error) {
	var uuids []string
	for i, name := range names {
		uuid, err := resolve(gpus, name)
		if err != nil {
			return nil, err
		}
		if at := slices.Index(uuids, uuid); at >= 0 {
			return nil, refuse("GPU %s is named twice, as %s and %s", uuid, names[at], names[i])
		}
		uuids = append(uuids, uuid)
	}
	return uuids, nil
}

func resolve(gpus []GPU, name string) (string, error) {
	if isIndex(name) {
		for _, gpu := range gpus {
			if strconv.Itoa(gpu.Index) == name {
				return gpu.UUID, nil
			}
		}
		return "", unknown(gpus, name)
	}
	var found []string
	for _, gpu := range gpus {
		if len(name) <= len(gpu.UUID) && strings.EqualFold(gpu.UUID[:len(name)], name) {
			found = append(found, gpu.UUID)
		}
	}
	switch len(found) {
	case 0:
		return "", unknown(gpus, name)
	case 1:
		return found[0], nil
	}
	return "", refuse("%s is the beginning of %d GPUs' UUIDs: give more of it; `divvy ls` shows UUIDs", name, len(found))
}

// silent says of a GPU that is not known why, if the driver is silent about it.
func (s Sight) silent(names []string, err error) error {
	for _, gpu := range s.LeftOut {
		if errors.Is(err, ErrUnknown) && slices.Contains(names, strconv.Itoa(gpu)) {
			return fmt.Errorf("%w: GPU %d is left out, because the driver did not answer about it when the agent started: it is served when the driver does; name another",
				ErrUnknown, gpu)
		}
	}
	return err
}

func unknown(gpus []GPU, name string) error {
	has := "this machine has no GPU"
	if len(gpus) == 1 {
		has = fmt.Sprintf("this machine has only GPU %d", gpus[0].Index)
	} else if len(gpus) > 1 {
		has = fmt.Sprintf("this machine has GPUs %d to %d", gpus[0].Index, gpus[len(gpus)-1].Index)
	}
	return fmt.Errorf("%w: GPU %s does not exist and %s: `divvy ls -o wide` shows their UUIDs", ErrUnknown, name, has)
}

func refuse(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrChoice, fmt.Errorf(format, args...))
}

func count(n int) string {
	if n == 1 {
		return "1 GPU"
	}
	return fmt.Sprintf("%d GPUs", n)
}
