package agentconfig

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// GPU is a GPU of the machine, for the names in a file.
type GPU struct {
	Index int
	UUID  string
}

// Form is what a GPU is given: the backend that all of its shares have, and how that divides it. Fields that a backend
// does not have are empty.
type Form struct {
	Backend v1alpha1.Backend `json:"backend"`
	// Slice is the length of the driver's time slices, one of [Slices]; empty leaves it as it is.
	Slice string `json:"slice,omitempty"`
	// Replicas is the most shares at once, and by what the memory is divided of a share that names none; 0 is no bound.
	Replicas int `json:"replicas,omitempty"`
	// MultiUser lets shares of several users be on a GPU of backend mps, which then are not isolated from each other.
	MultiUser bool `json:"multiUser,omitempty"`
	// Layout says whether shares may have instances of a GPU of backend mig made, one of [Layouts]; empty is dynamic.
	Layout string `json:"layout,omitempty"`
}

// The ways in which the layout of a GPU in MIG mode is kept.
const (
	// LayoutDynamic has an instance made for a share that finds none.
	LayoutDynamic = "dynamic"
	// LayoutFixed gives shares the instances that are there, and makes none.
	LayoutFixed = "fixed"
)

// Layouts are both of them.
var Layouts = []string{LayoutDynamic, LayoutFixed}

// Slices are the lengths of the driver's time slices.
var Slices = []string{"default", "short", "medium", "long"}

// MaxReplicas is the most shares that a GPU can be given.
const MaxReplicas = 1024

// Check returns why a form makes no sense, nil if it does.
func (f Form) Check() error {
	if err := f.checkMIG(); err != nil {
		return err
	}
	switch {
	case !slices.Contains(formBackends, f.Backend):
		return fmt.Errorf("backend %q: use %s", f.Backend, strings.Join(asText(formBackends), ", "))
	case f.Slice != "" && f.Backend != v1alpha1.BackendTimeslice:
		return fmt.Errorf("backend %s has no time slices of the driver's to set: slice is for timeslice", f.Backend)
	case f.Slice != "" && !slices.Contains(Slices, f.Slice):
		return fmt.Errorf("slice %q: use %s", f.Slice, strings.Join(Slices, ", "))
	case f.Replicas < 0 || f.Replicas > MaxReplicas:
		return fmt.Errorf("%d replicas: use 1 to %d", f.Replicas, MaxReplicas)
	case f.MultiUser && f.Backend != v1alpha1.BackendMPS:
		return fmt.Errorf("multiUser is for backend mps: shares of backend %s may be anybody's", f.Backend)
	}
	return nil
}

// checkMIG returns what is wrong with a form about MIG.
func (f Form) checkMIG() error {
	switch mig := f.Backend == v1alpha1.BackendMIG; {
	case mig && f.Slice != "":
		return fmt.Errorf("slice %s with backend mig: the driver takes the length of time slices of a GPU in MIG mode, and it has no effect: leave it out", f.Slice)
	case mig && f.Replicas > 0:
		return errors.New("replicas with backend mig: each share has an instance, and the driver says how many a GPU can have: leave it out")
	case !mig && f.Layout != "":
		return fmt.Errorf("layout is for backend mig: a GPU of backend %s has none", f.Backend)
	case f.Layout != "" && !slices.Contains(Layouts, f.Layout):
		return fmt.Errorf("layout %q: use %s", f.Layout, strings.Join(Layouts, " or "))
	}
	return nil
}

var formBackends = []v1alpha1.Backend{v1alpha1.BackendSlice, v1alpha1.BackendTimeslice, v1alpha1.BackendMPS, v1alpha1.BackendMIG}

func asText(names []v1alpha1.Backend) (text []string) {
	for _, name := range names {
		text = append(text, string(name))
	}
	return text
}

// backends are the forms that GPUs were given, in the order of the file.
type backends []givenForm

// givenForm is one name of a GPU, an index, a UUID, or [allGPUs], with its form.
type givenForm struct {
	gpu, field string
	form       Form
}

// allGPUs names every GPU that has no name of its own in the file.
const allGPUs = "all"

// Form is the form of a GPU; ok is false where the file gives none to any GPU. A GPU that the
// file does not name has backend slice then.
func (c *Config) Form(gpu GPU) (f Form, ok bool) {
	if c == nil || len(c.backends) == 0 {
		return Form{}, false
	}
	f = Form{Backend: v1alpha1.BackendSlice}
	for _, given := range c.backends {
		if given.names(gpu) {
			return given.form, true
		}
		if given.gpu == allGPUs {
			f = given.form
		}
	}
	return f, true
}

// Backend is the backend of a GPU's form.
func (c *Config) Backend(gpu GPU) (b v1alpha1.Backend, ok bool) {
	f, ok := c.Form(gpu)
	return f.Backend, ok
}

func (g givenForm) names(gpu GPU) bool {
	return g.gpu == strconv.Itoa(gpu.Index) || strings.EqualFold(g.gpu, gpu.UUID)
}

// gpuName is an index without leading zeros, or a whole UUID.
var gpuName = regexp.MustCompile(`^(0|[1-9][0-9]{0,3}|(?i:gpu)-[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12})$`)

// backends reads which GPUs have which form.
func (r *reader) backends(node *yaml.Node, path string) {
	of := known{}
	for _, b := range formBackends {
		of[string(b)] = func(n *yaml.Node, field string) { r.formsOf(b, n, field) }
	}
	for _, b := range machineBackends {
		of[string(b)] = func(n *yaml.Node, field string) { r.lendingsOf(b, n, field) }
	}
	r.Fields(node, path, of)
	if node.Kind == yaml.MappingNode && len(node.Content) == 0 {
		r.Fault(node, path, "names no backend: leave it out, or write such as {timeslice: [0]}")
	}
}

// formsOf reads what is given with one backend: a list of GPUs, or what they have with the list, once or several times.
func (r *reader) formsOf(b v1alpha1.Backend, node *yaml.Node, path string) {
	switch {
	case node.Kind == yaml.MappingNode:
		r.formOf(b, node, path)
	case node.Kind == yaml.SequenceNode && len(node.Content) > 0 && node.Content[0].Kind == yaml.MappingNode:
		for i, one := range node.Content {
			field := fmt.Sprintf("%s[%d]", path, i)
			if one.Kind != yaml.MappingNode {
				r.Fault(one, field, "must be such as {gpus: [%s], replicas: 4}, as the one before", one.Value)
				continue
			}
			r.formOf(b, one, field)
		}
	default:
		r.gpusOf(Form{Backend: b}, node, path)
	}
}

// formOf reads GPUs with what they are given.
func (r *reader) formOf(b v1alpha1.Backend, node *yaml.Node, path string) {
	form := Form{Backend: b}
	var gpus *yaml.Node
	of := known{
		"gpus":     func(n *yaml.Node, _ string) { gpus = n },
		"replicas": func(n *yaml.Node, f string) { form.Replicas = r.number(n, f, MaxReplicas) },
	}
	switch b {
	case v1alpha1.BackendTimeslice:
		of["slice"] = func(n *yaml.Node, f string) {
			form.Slice, _ = r.scalar(n, f, "one of "+strings.Join(Slices, ", "))
			if form.Slice != "" && !slices.Contains(Slices, form.Slice) {
				r.Fault(n, f, "%q is none of %s", form.Slice, strings.Join(Slices, ", "))
			}
		}
	case v1alpha1.BackendMIG:
		delete(of, "replicas")
		of["layout"] = func(n *yaml.Node, f string) {
			form.Layout, _ = r.scalar(n, f, strings.Join(Layouts, " or "))
			if form.Layout != "" && !slices.Contains(Layouts, form.Layout) {
				r.Fault(n, f, "%q is neither %s", form.Layout, strings.Join(Layouts, " nor "))
			}
		}
	case v1alpha1.BackendMPS:
		of["multiUser"] = func(n *yaml.Node, f string) {
			if n.Kind != yaml.ScalarNode || n.Tag != "!!bool" {
				r.Fault(n, f, "must be true or false")
				return
			}
			form.MultiUser = n.Value == "true"
		}
	}
	r.Fields(node, path, of)
	if gpus == nil {
		r.Fault(node, path, "names no GPUs: add gpus, such as [0, 3], or all")
		return
	}
	if gpus.Kind == yaml.ScalarNode && gpus.Value == allGPUs {
		r.give(gpus, path+".gpus", form)
		return
	}
	r.gpusOf(form, gpus, path+".gpus")
}

// gpusOf reads the GPUs of one form.
func (r *reader) gpusOf(form Form, node *yaml.Node, path string) {
	if node.Kind != yaml.SequenceNode || len(node.Content) == 0 {
		r.Fault(node, path, "must be a list of GPUs, such as [0, 3]")
		return
	}
	for i, one := range node.Content {
		field := fmt.Sprintf("%s[%d]", path, i)
		if one.Kind != yaml.ScalarNode || !gpuName.MatchString(one.Value) {
			r.Fault(one, field, "%q is neither an index nor a whole UUID: `divvy ls` lists them", one.Value)
			continue
		}
		r.give(one, field, form)
	}
}

// give gives the GPU of one name its form.
func (r *reader) give(name *yaml.Node, field string, form Form) {
	if at := slices.IndexFunc(r.config.backends, func(g givenForm) bool { return strings.EqualFold(g.gpu, name.Value) }); at >= 0 {
		r.Fault(name, field, "names the same GPU as %s", r.config.backends[at].field)
		return
	}
	r.config.places[field] = name.Line
	r.config.backends = append(r.config.backends, givenForm{gpu: name.Value, field: field, form: form})
}

// compareBackends tells of names of no GPU, and of two names of one. GPUs of which nothing
// is known yet may have any UUID.
func (c *Config) compareBackends(m Machine, fault func(field, format string, args ...any)) {
	for i, given := range c.backends {
		if given.gpu == allGPUs {
			continue
		}
		at := slices.IndexFunc(m.Named, given.names)
		index, err := strconv.Atoi(given.gpu)
		switch {
		case at < 0 && err == nil && index < m.GPUs, at < 0 && err != nil && len(m.Named) < m.GPUs:
		case at < 0:
			fault(given.field, "this machine has no GPU %s: `divvy ls` lists them", given.gpu)
		default:
			if twin := slices.IndexFunc(c.backends[:i], func(g givenForm) bool { return g.names(m.Named[at]) }); twin >= 0 {
				fault(given.field, "names the same GPU as %s", c.backends[twin].field)
			}
		}
	}
}
