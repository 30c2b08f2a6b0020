package replay

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/alloc"
	"github.com/divvy-gpu/divvy/internal/alloc/layouts"
)

// The formats. openb is that of the published traces. Its GPUs have no size, so they
// count as 1000 bytes, which makes thousandths exact.
var (
	openbNodes = format{[]string{"sn", "cpu_milli", "memory_mib", "gpu", "model"}, 5}
	ownNodes   = format{[]string{"name", "cpu_milli", "memory_mib", "gpus", "gpu_model", "gpu_memory_mib", "gpu_mig", "gpu_cards"}, 6}
	openbPods  = format{[]string{"name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli",
		"gpu_spec", "qos", "pod_phase", "creation_time", "deletion_time", "scheduled_time", "queue", "quota", "priority"}, 5}
	ownPods = format{[]string{"name", "cpu_milli", "memory_mib", "gpus", "gpu_memory", "gpu_cores", "gpu_models", "gpu_profile",
		"queue", "quota", "priority", "arrival_s", "runtime_s", "members", "minimum", "pairs", "pairs_fallback"}, 5}
)

// The greatest amounts that are accepted: a million processors, an exbibyte.
const (
	mostCPU    = 1_000_000_000
	mostMemory = 1 << 40
)

const openbGPU = 1000

// ReadNodes reads a cluster in the openb format or Divvy's own. Errors name the
// file, and each is a [FieldError].
func ReadNodes(file string, r io.Reader) ([]alloc.Node, error) {
	t, which, err := open(file, r, openbNodes, ownNodes)
	if err != nil {
		return nil, err
	}
	var nodes []alloc.Node
	for {
		err := t.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		node, err := readNode(t, which == 0)
		if err != nil {
			return nil, err
		}
		nodes = append(nodes, node)
	}
	if len(nodes) == 0 {
		return nil, t.at(t.line+1, "", errors.New("there are no nodes"))
	}
	return nodes, nil
}

func readNode(t *table, openb bool) (alloc.Node, error) {
	name, count, model, size := "name", "gpus", "gpu_model", int64(openbGPU)
	if openb {
		name, count, model = "sn", "gpu", "model"
	}
	var n alloc.Node
	var gpus, memory int64
	var err error
	if n.Name, err = t.name(name); err != nil {
		return n, err
	}
	err = t.numbers(field{"cpu_milli", mostCPU, &n.CPU}, field{"memory_mib", mostMemory, &memory}, field{count, alloc.MaxGPUs, &gpus})
	if err != nil {
		return n, err
	}
	if !openb {
		if size, err = t.number("gpu_memory_mib", mostMemory); err != nil {
			return n, err
		}
		if size == 0 && gpus > 0 {
			return n, t.fault("gpu_memory_mib", errors.New("0 for a node with GPUs: give their memory"))
		}
		size <<= 20
	}
	n.Memory = uint64(memory) << 20
	kind := strings.Clone(t.text(model))
	if kind == "" && gpus > 0 || strings.Contains(kind, "|") {
		return n, t.fault(model, fmt.Errorf("%q is not the name of a model", kind))
	}
	profiles, err := t.profiles("gpu_mig")
	if err != nil {
		return n, err
	}
	for i := range int(gpus) {
		n.GPUs = append(n.GPUs, alloc.GPU{UUID: fmt.Sprintf("%s/%d", n.Name, i), Index: i, Model: kind, Capacity: uint64(size), Profiles: profiles})
	}
	return n, readCards(t, &n)
}

// profiles reads MIG profiles, none from an empty column.
func (t *table) profiles(column string) ([]alloc.Profile, error) {
	profiles, err := layouts.Parse(t.text(column))
	if err == nil && len(profiles) > 0 {
		_, err = layouts.NewModel(profiles)
	}
	if err != nil {
		return nil, t.fault(column, err)
	}
	return profiles, nil
}

// ReadPods reads arrivals in the openb format or Divvy's own. A request for a model
// that none of the nodes has is an error.
func ReadPods(file string, r io.Reader, nodes []alloc.Node) ([]Pod, error) {
	var pods []Pod
	err := readPods(file, r, nodes, func(_ *table, _ bool, pod Pod) error {
		pods = append(pods, pod)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return pods, nil
}

// readPods hands on each pod, with the table at its row.
func readPods(file string, r io.Reader, nodes []alloc.Node, take func(t *table, openb bool, pod Pod) error) error {
	t, which, err := open(file, r, openbPods, ownPods)
	if err != nil {
		return err
	}
	models, parts, size := map[string]bool{}, map[string]int64{}, uint64(0)
	for i := range nodes {
		for j := range nodes[i].GPUs {
			g := &nodes[i].GPUs[j]
			models[g.Model] = true
			size = max(size, g.Capacity)
			measure(g, parts)
		}
	}
	for {
		err := t.next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		pod, err := readPod(t, which == 0)
		if err != nil {
			return err
		}
		for name := range strings.SplitSeq(string(pod.Request.Models), "|") {
			if name != "" && !models[name] {
				return t.fault(modelColumns[which], fmt.Errorf("no node has the model %q", name))
			}
		}
		if pod.Milli = demand(&pod.Request, size); pod.Request.Profile != "" {
			part, ok := parts[pod.Request.Profile]
			if !ok {
				return t.fault("gpu_profile", fmt.Errorf("no node has the profile %q", pod.Request.Profile))
			}
			pod.Milli = part * int64(pod.Request.Count)
		}
		if err := take(t, which == 0, pod); err != nil {
			return err
		}
	}
}

var modelColumns = [2]string{"gpu_spec", "gpu_models"}

// measure adds what an instance of each profile is, in thousandths of the GPU's memory slices.
func measure(g *alloc.GPU, parts map[string]int64) {
	all := 0
	for _, p := range g.Profiles {
		all = max(all, slices.Max(p.Starts)+p.Size)
	}
	for _, p := range g.Profiles {
		parts[p.Name] = max(parts[p.Name], int64(p.Size*1000/all))
	}
}

// demand returns a request's demand, in thousandths of a GPU of that size in bytes.
func demand(r *alloc.Request, size uint64) int64 {
	one := int64(r.Cores) * 10
	if r.Whole {
		one = 1000
	} else if r.Count > 0 {
		limit := min(r.Memory.Of(size), size)
		one = max(one, int64((limit>>8)*1000/max(size>>8, 1)))
		if size < 1<<20 {
			one = max(int64(r.Cores)*10, int64(limit*1000/max(size, 1)))
		}
	}
	return one * int64(r.Count)
}

func readPod(t *table, openb bool) (Pod, error) {
	var pod Pod
	var memory, gpus int64
	var err error
	count := "gpus"
	if openb {
		count = "num_gpu"
	}
	if pod.Name, err = t.name("name"); err != nil {
		return pod, err
	}
	r := &pod.Request
	err = t.numbers(field{"cpu_milli", mostCPU, &r.CPU}, field{"memory_mib", mostMemory, &memory}, field{count, alloc.MaxGPUs, &gpus})
	if err != nil {
		return pod, err
	}
	r.HostMemory, r.Count = uint64(memory)<<20, int(gpus)
	if openb {
		r.Models = alloc.Names(strings.Clone(t.text("gpu_spec")))
		return pod, readMilli(t, r)
	}
	r.Models = alloc.Names(strings.Clone(t.text("gpu_models")))
	if err := readPairs(t, r); err != nil {
		return pod, err
	}
	return pod, readShare(t, r)
}

// readMilli reads the size of a share in the openb format.
func readMilli(t *table, r *alloc.Request) error {
	milli, err := t.number("gpu_milli", openbGPU)
	switch {
	case err != nil:
		return err
	case r.Count == 0 && milli != 0:
		return t.fault("gpu_milli", fmt.Errorf("%d, and the pod asks for no GPU", milli))
	case r.Count > 0 && milli == 0:
		return t.fault("gpu_milli", errors.New("0, and the pod asks for a GPU"))
	case r.Count > 1 && milli != openbGPU:
		return t.fault("gpu_milli", fmt.Errorf("%d for several GPUs: only whole GPUs (1000) can be several", milli))
	case milli == openbGPU:
		r.Whole = true
	case milli > 0:
		r.Memory = v1alpha1.Bytes(uint64(milli))
	}
	return nil
}

// readShare reads the memory and cores of a share in Divvy's own format. Without
// memory, the request is for whole GPUs.
func readShare(t *table, r *alloc.Request) error {
	memory := strings.Clone(t.text("gpu_memory"))
	if r.Count == 0 && memory != "" {
		return t.fault("gpu_memory", errors.New("memory, and the pod asks for no GPU"))
	}
	if memory != "" {
		amount, err := v1alpha1.ParseMemory(memory)
		if err != nil {
			return t.fault("gpu_memory", err)
		}
		r.Memory = amount
	} else if r.Profile = strings.Clone(t.text("gpu_profile")); r.Profile == "" && r.Count > 0 {
		r.Whole = true
	}
	switch {
	case t.text("gpu_profile") != "" && memory != "":
		return t.fault("gpu_profile", errors.New("stands beside gpu_memory: an instance has its own memory"))
	case r.Profile != "" && r.Count == 0:
		return t.fault("gpu_profile", errors.New("is set, but the pod asks for no GPU"))
	}
	return readCores(t, r)
}

// readCores reads the guaranteed part of the time, where there is one.
func readCores(t *table, r *alloc.Request) error {
	if t.text("gpu_cores") == "" {
		return nil
	}
	cores, err := t.number("gpu_cores", 100)
	if err != nil {
		return err
	}
	switch {
	case r.Count == 0 && cores > 0:
		return t.fault("gpu_cores", errors.New("is set, but the pod asks for no GPU"))
	case r.Profile != "" && cores > 0:
		return t.fault("gpu_cores", errors.New("is set beside gpu_profile: an instance has its own processors"))
	}
	r.Cores = int(cores)
	return nil
}
