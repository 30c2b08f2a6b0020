package dialect

import (
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// migNames are those of MIG devices in the form of NVIDIA's device plugin, which begin with migPrefix. Those of replicas end
// with migReplica.
const (
	migPrefix  = "nvidia.com/mig-"
	migNames   = migPrefix + "*"
	migReplica = ".shared"
)

// Names of MIG devices without their prefix: a profile in which the plus sign is a dot, and what such a name begins or ends
// with where it is not of an instance.
var (
	migProfile = regexp.MustCompile(`^([1-9][0-9]?g\.[1-9][0-9]{0,3}gb)(?:([.-])([a-z]+(?:\.[a-z]+)?))?$`)
	migPart    = regexp.MustCompile(`^[1-9][0-9]?c\.`)
)

// migResources are the names of MIG devices of which a container asks for other than zero, in order.
func migResources(container *corev1.Container) []string {
	var names []string
	for _, list := range []corev1.ResourceList{container.Resources.Limits, container.Resources.Requests} {
		for name, quantity := range list {
			if strings.HasPrefix(string(name), migPrefix) && !quantity.IsZero() {
				names = append(names, string(name))
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// migDevice reads a request for a MIG device by its profile; given is false where there is none. Beside are resources that
// exclude it.
func migDevice(asked *limits, beside ...string) (request Request, given bool) {
	names := migResources(asked.container)
	if len(names) == 0 {
		return Request{}, false
	}
	for _, other := range beside {
		if n, _ := asked.number(other); n > 0 {
			names = append(names, other)
		}
	}
	if len(names) > 1 {
		asked.refuse("%s exclude each other: a process can use one MIG instance and nothing beside it", strings.Join(names, " and "))
		return Request{}, true
	}
	if n, _ := asked.number(names[0]); n > 1 {
		asked.refuse("%s: %d: ask for 1, because a process can use one MIG instance only", names[0], n)
	}
	profile, why := profileOf(strings.TrimPrefix(names[0], migPrefix))
	if why != "" {
		asked.refuse("%s %s", names[0], why)
	}
	return instanceRequest(profile), true
}

// profileOf is the driver's name of a profile, or says why a resource is none.
func profileOf(name string) (profile, why string) {
	if strings.HasSuffix(name, migReplica) {
		return "", "is a replica of a MIG device: only the node's own configuration of the device plugin gives these out, in mode slots"
	}
	if migPart.MatchString(name) {
		return "", "shares a GPU instance with others: ask for a GPU instance, such as " + migPrefix + "1g.10gb"
	}
	parts := migProfile.FindStringSubmatch(name)
	if parts == nil {
		return "", "names no MIG profile: write one such as " + migPrefix + "1g.10gb"
	}
	if profile = parts[1]; parts[3] != "" {
		profile += map[string]string{".": "+", "-": "-"}[parts[2]] + parts[3]
	}
	return profile, ""
}

// instanceRequest asks for a MIG instance; without a profile, for the smallest that has the request's memory and cores.
func instanceRequest(profile string) Request {
	return Request{Count: 1, Profile: profile, Config: v1alpha1.ShareConfig{Backend: v1alpha1.BackendMIG}}
}

// instance reports whether the request is for a MIG instance.
func (r *Request) instance() bool { return r.Config.Backend == v1alpha1.BackendMIG }

// migMode reads the annotation in which HAMi and Volcano write how a GPU is to be divided.
func migMode(pod *corev1.Pod, asked *limits, annotation string) bool {
	switch mode := pod.Annotations[annotation]; mode {
	case "", "hami-core":
		return false
	case "mig":
		return true
	default:
		asked.refuse("annotation %s: %q is not offered: write hami-core or mig", annotation, mode)
		return false
	}
}

// byMemory is a request for the MIG instance that an amount of memory chooses. Mode says in what words the pod asks for
// one.
func byMemory(asked *limits, request Request, mode string) Request {
	bytes := request.Memory.InBytes()
	switch {
	case request.Count > 1:
		asked.refuse("%s and %d GPUs: ask for 1, because a process can use one MIG instance only", mode, request.Count)
	case bytes == 0:
		asked.refuse("%s: give the memory in MiB, which chooses the MIG instance", mode)
	}
	made := instanceRequest("")
	made.Memory, made.Cores, made.Unit = request.Memory, request.Cores, request.Unit
	return made
}

// settleInstance refuses what a MIG instance cannot have.
func (r *Request) settleInstance(name string) error {
	if r.Count > 1 {
		return refuse("container %q asks for %d MIG instances: ask for 1, because a process can use one only", name, r.Count)
	}
	if r.Profile == "" && r.Memory.InBytes() == 0 {
		return refuse("container %q asks for a MIG instance and names neither a profile nor an amount of memory in bytes: give one of them", name)
	}
	return nil
}

// profileSelector is the CEL expression that is true of instances of the request's profile.
func (r *Request) profileSelector() []string {
	if r.Profile == "" {
		return nil
	}
	return []string{attributeOf(v1alpha1.AttributeProfile) + ` == "` + r.Profile + `"`}
}
