package agentconfig

import (
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

// backends are those that GPUs were given, in the order of the file.
type backends []givenBackend

// givenBackend is one name of a GPU, an index or a UUID, with the backend of its shares.
type givenBackend struct {
	gpu, field string
	backend    v1alpha1.Backend
}

// Backend is the backend that all shares of a GPU have to have; ok is false where the file
// gives none to any GPU. A GPU that the file does not name has backend slice then.
func (c *Config) Backend(gpu GPU) (b v1alpha1.Backend, ok bool) {
	if c == nil || len(c.backends) == 0 {
		return "", false
	}
	for _, given := range c.backends {
		if given.names(gpu) {
			return given.backend, true
		}
	}
	return v1alpha1.BackendSlice, true
}

func (g givenBackend) names(gpu GPU) bool {
	return g.gpu == strconv.Itoa(gpu.Index) || strings.EqualFold(g.gpu, gpu.UUID)
}

// gpuName is an index without leading zeros, or a whole UUID.
var gpuName = regexp.MustCompile(`^(0|[1-9][0-9]{0,3}|(?i:gpu)-[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12})$`)

// backends reads which GPUs have which backend.
func (r *reader) backends(node *yaml.Node, path string) {
	of := func(b v1alpha1.Backend) func(*yaml.Node, string) {
		return func(n *yaml.Node, field string) { r.gpusOf(b, n, field) }
	}
	r.fields(node, path, known{
		string(v1alpha1.BackendSlice): of(v1alpha1.BackendSlice), string(v1alpha1.BackendTimeslice): of(v1alpha1.BackendTimeslice),
	})
	if node.Kind == yaml.MappingNode && len(node.Content) == 0 {
		r.fault(node, path, "names no backend: leave it out, or write such as {timeslice: [0]}")
	}
}

// gpusOf reads the GPUs of one backend.
func (r *reader) gpusOf(b v1alpha1.Backend, node *yaml.Node, path string) {
	if node.Kind != yaml.SequenceNode || len(node.Content) == 0 {
		r.fault(node, path, "must be a list of GPUs, such as [0, 3]")
		return
	}
	for i, one := range node.Content {
		field := fmt.Sprintf("%s[%d]", path, i)
		switch at := slices.IndexFunc(r.config.backends, func(g givenBackend) bool { return strings.EqualFold(g.gpu, one.Value) }); {
		case one.Kind != yaml.ScalarNode || !gpuName.MatchString(one.Value):
			r.fault(one, field, "%q is neither an index nor a whole UUID: `divvy ls` lists them", one.Value)
		case at >= 0:
			r.fault(one, field, "names the same GPU as %s", r.config.backends[at].field)
		default:
			r.config.places[field] = one.Line
			r.config.backends = append(r.config.backends, givenBackend{gpu: one.Value, field: field, backend: b})
		}
	}
}

// compareBackends tells of names of no GPU, and of two names of one. GPUs of which nothing
// is known yet may have any UUID.
func (c *Config) compareBackends(m Machine, fault func(field, format string, args ...any)) {
	for i, given := range c.backends {
		at := slices.IndexFunc(m.Named, given.names)
		index, err := strconv.Atoi(given.gpu)
		switch {
		case at < 0 && err == nil && index < m.GPUs, at < 0 && err != nil && len(m.Named) < m.GPUs:
		case at < 0:
			fault(given.field, "this machine has no GPU %s: `divvy ls` lists them", given.gpu)
		default:
			if twin := slices.IndexFunc(c.backends[:i], func(g givenBackend) bool { return g.names(m.Named[at]) }); twin >= 0 {
				fault(given.field, "names the same GPU as %s", c.backends[twin].field)
			}
		}
	}
}
