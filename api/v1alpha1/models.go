package v1alpha1

import (
	"fmt"
	"slices"
	"strings"
)

// GPUModels are the models of GPU that a pod accepts, with commas between them, such as "A100,H100". Empty accepts
// every model. See [ModelMatches] for what a name means.
type GPUModels string

// GPUPreference is the order in which a pod wants GPUs: one of the constants below, or models as in [GPUModels], the
// most wanted first and all others after them. Empty is the order of the scheduler's policy. It never refuses a GPU.
type GPUPreference string

// The preferences that name no model. A GPU is the more capable the higher its compute capability is, then the product
// of its SMs and their clock, then its memory, as the driver tells them.
const (
	PreferMostCapable  GPUPreference = "most-capable"
	PreferLeastCapable GPUPreference = "least-capable"
)

const (
	// maxModels bounds the models in a list.
	maxModels = 16
	// maxModel bounds the length of a name in bytes.
	maxModel = 64
)

// ParseGPUModels reads a list of models; spaces around names are left out. Its errors wrap [ErrRequest].
func ParseGPUModels(s string) (GPUModels, error) {
	names, err := modelNames("gpu-models", s)
	return GPUModels(strings.Join(names, ",")), err
}

// ParseGPUPreference reads a preference; spaces around names are left out. Its errors wrap [ErrRequest].
func ParseGPUPreference(s string) (GPUPreference, error) {
	names, err := modelNames("gpu-prefer", s)
	if err != nil || len(names) < 2 {
		return GPUPreference(strings.Join(names, ",")), err
	}
	for _, name := range names {
		if p := GPUPreference(name); p == PreferMostCapable || p == PreferLeastCapable {
			return "", fmt.Errorf("%w: gpu-prefer %q: %s stands alone", ErrRequest, s, name)
		}
	}
	return GPUPreference(strings.Join(names, ",")), nil
}

// modelNames divides a list and checks its names.
func modelNames(what, s string) ([]string, error) {
	if strings.TrimSpace(s) == "" {
		return nil, nil
	}
	var names []string
	for name := range strings.SplitSeq(s, ",") {
		name = strings.TrimSpace(name)
		switch {
		case len(names) == maxModels:
			return nil, fmt.Errorf("%w: %s: name at most %d models", ErrRequest, what, maxModels)
		case !validModel(name):
			return nil, fmt.Errorf("%w: %s %q: give names of models with commas between them, such as A100,H100", ErrRequest, what, name)
		case slices.ContainsFunc(names, func(n string) bool { return strings.EqualFold(n, name) }):
			return nil, fmt.Errorf("%w: %s: %s is named twice", ErrRequest, what, name)
		}
		names = append(names, name)
	}
	return names, nil
}

// validModel allows what drivers use in names: letters, digits, and - _ . + / ( ) and spaces between them.
func validModel(name string) bool {
	for _, c := range []byte(name) {
		letter := c|0x20 >= 'a' && c|0x20 <= 'z' || c >= '0' && c <= '9'
		if !letter && !strings.ContainsRune("-_.+/() ", rune(c)) {
			return false
		}
	}
	return name != "" && len(name) <= maxModel && len(modelWords(name)) > 0
}

// Names are the models, in order.
func (m GPUModels) Names() []string { return commaSeparated(string(m)) }

// Names are the models that a preference names, the most wanted first; none for the preferences that name no model.
func (p GPUPreference) Names() []string {
	if p == PreferMostCapable || p == PreferLeastCapable {
		return nil
	}
	return commaSeparated(string(p))
}

func commaSeparated(s string) []string {
	if s == "" {
		return nil
	}
	return strings.Split(s, ",")
}

// ModelMatches reports whether a name means a GPU of a model, as the driver names it: the words of the name stand in
// the model one after the other, upper and lower case alike. So "A100" means "NVIDIA A100-SXM4-80GB" and "A100 80GB"
// means "NVIDIA A100 80GB PCIe", and "A10" means neither.
func ModelMatches(name, model string) bool {
	if strings.EqualFold(name, model) {
		return true
	}
	want, have := modelWords(name), modelWords(model)
	for i := 0; len(want) > 0 && i+len(want) <= len(have); i++ {
		if slices.EqualFunc(want, have[i:i+len(want)], strings.EqualFold) {
			return true
		}
	}
	return false
}

// modelWords are the letters and digits of a name that stand together.
func modelWords(name string) []string {
	return strings.FieldsFunc(name, func(c rune) bool {
		return (c|0x20 < 'a' || c|0x20 > 'z') && (c < '0' || c > '9')
	})
}
