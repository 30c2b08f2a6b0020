package pool

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	"github.com/divvy-gpu/divvy/internal/alloc/layouts"
)

// memorySlice begins the names of the counters of memory slices, of which a GPU has one of each.
const memorySlice = "memory-slice-"

// counterNames are those of which a GPU has several.
var counterNames = map[layouts.Counter]string{
	layouts.ComputeSlices: "compute-slices", layouts.CopyEngines: "copy-engines", layouts.Decoders: "decoders",
	layouts.Encoders: "encoders", layouts.JPEGEngines: "jpeg-engines", layouts.FlowEngines: "ofa-engines",
}

// ParseCounter returns what a counter's name stands for: something that a GPU has several of, or a memory slice, for which
// the first is negative. ok is false for a name that is not of this package's making.
func ParseCounter(name string) (several layouts.Counter, slice int, ok bool) {
	for counter, known := range counterNames {
		if name == known {
			return counter, 0, true
		}
	}
	text, ok := strings.CutPrefix(name, memorySlice)
	slice, err := strconv.Atoi(text)
	return -1, slice, ok && err == nil && slice >= 0 && slice < layouts.MaxSlices && strconv.Itoa(slice) == text
}

// dynamic are the slices of GPUs whose layout may change: first those with the counters, then the devices. All devices of
// a GPU are in one slice, and stay there: another order of them is then one change of that slice, which the scheduler never
// sees half done.
func dynamic(gpus []GPU) []resourceslice.Slice {
	var sets []resourcev1.CounterSet
	var rooms [][]listed
	for i := range gpus {
		g := &gpus[i]
		if g.form() != MIG || g.Division == nil || !g.Division.Dynamic || len(g.Division.Instances) == 0 {
			continue
		}
		sets = append(sets, g.counters())
		var own []listed
		for k := range g.Division.Instances {
			own = append(own, listed{g, &g.Division.Instances[k]})
		}
		last := len(rooms) - 1
		if last < 0 || len(rooms[last])+len(own) > resourcev1.ResourceSliceMaxDevicesWithAdvancedFeatures {
			rooms = append(rooms, own)
			continue
		}
		rooms[last] = append(rooms[last], own...)
	}
	var all []resourceslice.Slice
	for chunk := range slices.Chunk(sets, resourcev1.ResourceSliceMaxCounterSets) {
		all = append(all, resourceslice.Slice{SharedCounters: chunk})
	}
	for _, room := range rooms {
		slices.SortStableFunc(room, func(a, b listed) int { return cmp.Compare(a.Rank, b.Rank) })
		var devices []resourcev1.Device
		for _, l := range room {
			device := l.gpu.instance(l.Instance)
			if !l.Stays {
				device.ConsumesCounters = []resourcev1.DeviceCounterConsumption{{CounterSet: l.gpu.counterSet(), Counters: l.takes()}}
			}
			devices = append(devices, device)
		}
		all = append(all, resourceslice.Slice{Devices: devices})
	}
	return all
}

func (g *GPU) counterSet() string { return strings.ToLower(g.UUID) }

// counters are what the GPU has for claims: as much of each as the instance that takes most, but for what others have.
func (g *GPU) counters() resourcev1.CounterSet {
	var has layouts.Amounts
	size := 0
	for i := range g.Division.Instances {
		one := &g.Division.Instances[i]
		size = max(size, one.Start+one.Size)
		for c, n := range one.Takes {
			has[c] = max(has[c], n)
		}
	}
	all := map[string]resourcev1.Counter{}
	for at := range size {
		all[memorySlice+strconv.Itoa(at)] = counter(1 - int64(g.Division.Taken>>at&1))
	}
	for c, n := range has {
		if n > 0 {
			all[counterNames[layouts.Counter(c)]] = counter(int64(n - min(n, g.Division.Used[c])))
		}
	}
	return resourcev1.CounterSet{Name: g.counterSet(), Counters: all}
}

// takes is what the instance takes of them.
func (i *Instance) takes() map[string]resourcev1.Counter {
	all := map[string]resourcev1.Counter{}
	for at := range i.Size {
		all[memorySlice+strconv.Itoa(i.Start+at)] = counter(1)
	}
	for c, n := range i.Takes {
		if n > 0 {
			all[counterNames[layouts.Counter(c)]] = counter(int64(n))
		}
	}
	return all
}

func counter(n int64) resourcev1.Counter { return resourcev1.Counter{Value: number(n)} }
