package agent

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/agentconfig"
	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/checkpoint"
)

// Forms are the forms that GPUs are given: by the agent's configuration or, where that gives none, by `divvy gpu set`.
// Once any GPU is given a form, those without one have backend slice. Its functions may be called at the same time.
type Forms struct {
	rules *agentconfig.Config
	file  *checkpoint.File[[]setForm]

	mu  sync.Mutex
	set map[string]agentconfig.Form // by UUID
	// lent are the lengths of time slices that GPUs have for claims that have them as a whole, by UUID.
	lent map[string]string
}

// setForm is a form that a GPU was given by hand.
type setForm struct {
	GPU string `json:"gpu"`
	agentconfig.Form
}

// OpenForms reads which forms were given by hand from a file, which need not exist. An empty path keeps them in memory
// alone.
func OpenForms(path string, rules *agentconfig.Config) (*Forms, error) {
	f := &Forms{rules: rules, set: map[string]agentconfig.Form{}}
	if path == "" {
		return f, nil
	}
	f.file = checkpoint.NewFile[[]setForm](path, "forms", 1)
	saved, err := f.file.Load()
	if err != nil {
		return nil, fmt.Errorf("read which forms GPUs were given: %w", err)
	}
	for _, one := range saved {
		f.set[one.GPU] = one.Form
	}
	return f, nil
}

// Of is the form that a GPU is given, and by what; it is given none where that is [control.GivenNone].
func (f *Forms) Of(gpu backend.GPU) (agentconfig.Form, control.Given) {
	if form, ok := f.rules.Form(agentconfig.GPU{Index: gpu.Index, UUID: gpu.UUID}); ok {
		return form, control.GivenByFile
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if form, ok := f.set[gpu.UUID]; ok {
		return form, control.GivenByHand
	}
	if len(f.set) > 0 {
		return agentconfig.Form{Backend: v1alpha1.BackendSlice}, control.GivenByDefault
	}
	return agentconfig.Form{}, control.GivenNone
}

// Slice is the length of a GPU's time slices: as the claim says that has the whole GPU, or as it was given. It is "" where
// nobody says.
func (f *Forms) Slice(gpu backend.GPU) string {
	form, _ := f.Of(gpu)
	f.mu.Lock()
	defer f.mu.Unlock()
	return cmp.Or(f.lent[gpu.UUID], form.Slice)
}

// lend replaces what claims say of the length of time slices, and returns what was said before.
func (f *Forms) lend(slices map[string]string) (before map[string]string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	before, f.lent = f.lent, slices
	return before
}

// byFile reports whether the configuration gives GPUs their forms.
func (f *Forms) byFile() bool {
	_, ok := f.rules.Form(agentconfig.GPU{})
	return ok
}

// any reports whether some GPU is given a form.
func (f *Forms) any() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.byFile() || len(f.set) > 0
}

// give gives a GPU a form by hand, none with the zero form, and returns what takes that back.
func (f *Forms) give(uuid string, form agentconfig.Form) (back func() error, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	before := maps.Clone(f.set)
	next := maps.Clone(f.set)
	if next[uuid] = form; form == (agentconfig.Form{}) {
		delete(next, uuid)
	}
	if err := f.save(next); err != nil {
		return nil, err
	}
	return func() error {
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.save(before)
	}, nil
}

// save replaces what was given. f.mu is held.
func (f *Forms) save(next map[string]agentconfig.Form) error {
	var saved []setForm
	for _, uuid := range slices.Sorted(maps.Keys(next)) {
		saved = append(saved, setForm{uuid, next[uuid]})
	}
	if f.file != nil {
		if err := f.file.Save(saved); err != nil {
			return fmt.Errorf("save which forms GPUs are given: %w", err)
		}
	}
	f.set = next
	return nil
}
