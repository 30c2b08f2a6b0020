package ledger

import (
	"errors"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	resourcev1 "k8s.io/api/resource/v1"

	dra "github.com/divvy-gpu/divvy/internal/agent/dra/pool"
	"github.com/divvy-gpu/divvy/internal/alloc"
	"github.com/divvy-gpu/divvy/internal/alloc/layouts"
)

// hopper is an H100, as the driver describes it.
func hopper(t testing.TB) *layouts.Model {
	t.Helper()
	text, err := os.ReadFile("../../../testdata/mig/h100-80gb.txt")
	if err != nil {
		t.Fatal(err)
	}
	profiles, err := layouts.Parse(string(text))
	if err != nil {
		t.Fatal(err)
	}
	m, err := layouts.NewModel(profiles)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

var gigabytes = regexp.MustCompile(`\.(\d+)gb`)

// instanceOf is a placement of a model.
func instanceOf(m *layouts.Model, p layouts.Placement) dra.Instance {
	profile := m.Profiles()[p.Profile]
	var memory uint64
	_, _ = fmt.Sscan(gigabytes.FindStringSubmatch(profile.Name)[1], &memory)
	return dra.Instance{
		Profile: profile.Name, Start: p.Start, Size: profile.Size, Takes: profile.Takes,
		Memory: memory * gib, Multiprocessors: 14 * int(profile.Takes[layouts.ComputeSlices]),
	}
}

// divided is a GPU with the instances of a layout. A dynamic one could have others beside those of a layout that others have.
func divided(m *layouts.Model, gpu dra.GPU, l layouts.Layout, dynamic bool) dra.GPU {
	gpu.Form, gpu.Division = dra.MIG, &dra.Division{Dynamic: dynamic, Multiprocessors: 98}
	for rank, p := range m.Placements() {
		one := instanceOf(m, p)
		one.Rank = rank
		there := l>>rank&1 == 1
		if there {
			one.UUID = fmt.Sprintf("MIG-%s-%d", gpu.UUID[4:], rank)
			gpu.Division.Taken |= (1<<one.Size - 1) << one.Start
			for c, n := range one.Takes {
				gpu.Division.Used[c] += n
			}
		}
		if there || dynamic {
			gpu.Division.Instances = append(gpu.Division.Instances, one)
		}
	}
	return gpu
}

// randomDivision has a GPU in MIG mode, in some state.
func randomDivision(t testing.TB, random *rand.Rand, gpu dra.GPU) dra.GPU {
	m := hopper(t)
	l := m.Layouts()[random.IntN(len(m.Layouts()))]
	gpu.Fault = nil
	switch random.IntN(4) {
	case 0:
		return divided(m, gpu, 0, true)
	case 1:
		return staying(divided(m, gpu, l, true), l)
	case 2:
		return divided(m, gpu, l, true)
	}
	gpu = divided(m, gpu, l, false)
	for i := range gpu.Division.Instances {
		if random.IntN(4) == 0 {
			gpu.Division.Instances[i].Fault = &dra.Fault{Reason: "ecc"}
		}
	}
	return gpu
}

// staying has the instances of a layout stay.
func staying(gpu dra.GPU, l layouts.Layout) dra.GPU {
	for rank := range gpu.Division.Instances {
		gpu.Division.Instances[rank].Stays = l>>rank&1 == 1
	}
	return gpu
}

// oneGPU is a ledger of one node with one GPU.
func oneGPU(t testing.TB, gpu dra.GPU) *Ledger {
	t.Helper()
	l := newLedger(t)
	l.SetNode("a", machine("64", "256Gi"))
	l.SetPool("a", slicesOf(t, "a", []dra.GPU{gpu}))
	if g := nodeNamed(t, l, "a").GPUs[0]; g.Fault != "" {
		t.Fatal(g.Fault)
	}
	return l
}

// Instances that are there are given, each once, and nothing else.
func TestFixedLayouts(t *testing.T) {
	m := hopper(t)
	random := rand.New(rand.NewPCG(1, 4))
	for range 40 {
		layout := m.Layouts()[1+random.IntN(len(m.Layouts())-1)]
		l := oneGPU(t, divided(m, gpusOf(0, 1)[0], layout, false))
		given := fill(t, l, m)
		var want []string
		for rest := layout; rest != 0; rest &= rest - 1 {
			p := m.Placements()[bits.TrailingZeros64(uint64(rest))]
			want = append(want, dra.InstanceName(uuidOf(0, 0), m.Profiles()[p.Profile].Name, p.Start))
		}
		slices.Sort(given)
		slices.Sort(want)
		if !slices.Equal(given, want) {
			t.Fatalf("of %v were given %v", want, given)
		}
	}
}

// fill reserves instances of all profiles as long as any fits, and returns their devices.
func fill(t *testing.T, l *Ledger, m *layouts.Model) (given []string) {
	for i := range m.Profiles() {
		for k := 0; ; k++ {
			a, err := alloc.Search(l.Inventory(), alloc.Request{Count: 1, Profile: m.Profiles()[i].Name})
			if err != nil || l.Reserve(fmt.Sprint(i, "/", k), a) != nil {
				break
			}
			_, d, ok := l.Device("a", &a.Shares[0])
			if !ok {
				t.Fatalf("%+v is no device", a)
			}
			given = append(given, d.Name)
		}
	}
	return given
}

// Whatever others have of a GPU whose layout may change: what is given together never takes more of a counter than there
// is, by the slices alone, and an instance that no counter forbids is given if there is nothing else.
func TestDynamicLayouts(t *testing.T) {
	m := hopper(t)
	random := rand.New(rand.NewPCG(2, 4))
	for try := range 60 {
		layout := m.Layouts()[random.IntN(len(m.Layouts()))]
		gpu := divided(m, gpusOf(0, 1)[0], layout, true)
		if try%2 == 0 {
			gpu = staying(gpu, layout)
		}
		l := oneGPU(t, gpu)
		given := fill(t, l, m)
		left, devices := map[string]int64{}, map[string]*resourcev1.Device{}
		for _, s := range l.pools["a"].slices {
			for _, set := range s.Spec.SharedCounters {
				for name, c := range set.Counters {
					left[set.Name+name] = c.Value.Value()
				}
			}
			for i := range s.Spec.Devices {
				devices[s.Spec.Devices[i].Name] = &s.Spec.Devices[i]
			}
		}
		taken := map[string]bool{}
		for _, name := range given {
			if taken[name] {
				t.Fatalf("%s is given twice", name)
			}
			taken[name] = true
			draw(left, devices[name])
		}
		for name, n := range left {
			if n < 0 {
				t.Fatalf("layout %b of others: %v take %d too much of %s", layout, given, -n, name)
			}
		}
		for name, d := range devices {
			if !taken[name] && fits(left, d) && len(d.ConsumesCounters) > 0 {
				t.Errorf("layout %b of others: %v are given, and %s would fit", layout, given, name)
			}
			if !taken[name] && len(d.ConsumesCounters) == 0 {
				t.Fatalf("layout %b: %s is there and is not given", layout, strings.TrimPrefix(name, "gpu-"))
			}
		}
	}
}

func draw(left map[string]int64, d *resourcev1.Device) {
	for _, use := range d.ConsumesCounters {
		for name, c := range use.Counters {
			left[use.CounterSet+name] -= c.Value.Value()
		}
	}
}

func fits(left map[string]int64, d *resourcev1.Device) bool {
	for _, use := range d.ConsumesCounters {
		for name, c := range use.Counters {
			if left[use.CounterSet+name] < c.Value.Value() {
				return false
			}
		}
	}
	return true
}

// Engines that others use are counted, also where their memory slices are free, and what can never be given is not offered.
func TestEnginesOfOthers(t *testing.T) {
	m := hopper(t)
	gpu := divided(m, gpusOf(0, 1)[0], 0, true)
	gpu.Division.Used[layouts.ComputeSlices] = 5
	l := oneGPU(t, gpu)
	reserve(t, l, "ns/a", alloc.Request{Count: 1, Profile: "1g.10gb"})
	reserve(t, l, "ns/b", alloc.Request{Count: 1, Profile: "1g.20gb"})
	a, err := alloc.Search(l.Inventory(), alloc.Request{Count: 1, Profile: "1g.10gb"})
	if err == nil {
		err = l.Reserve("ns/c", a)
	}
	if !errors.Is(err, ErrTaken) {
		t.Errorf("a third compute slice of two: %v", err)
	}
	l.Unreserve("ns/a")
	reserve(t, l, "ns/c", alloc.Request{Count: 1, Profile: "1g.10gb"})
	for _, profile := range []string{"3g.40gb", "7g.80gb"} {
		if a, err := alloc.Search(oneGPU(t, gpu).Inventory(), alloc.Request{Count: 1, Profile: profile}); err == nil {
			t.Errorf("of two compute slices, %s is given: %+v", profile, a)
		}
	}
}

// A sick instance takes nobody, and who has it keeps it.
func TestSickInstances(t *testing.T) {
	m := hopper(t)
	layout := m.Placed(m.Profile("1g.10gb"), 0) | m.Placed(m.Profile("1g.10gb"), 1)
	gpu := divided(m, gpusOf(0, 1)[0], layout, false)
	l := oneGPU(t, gpu)
	l.SetClaim("ns/has", claimOf(result("a", dra.InstanceName(gpu.UUID, "1g.10gb", 0))))
	for i := range gpu.Division.Instances {
		gpu.Division.Instances[i].Fault = &dra.Fault{Reason: "ecc"}
	}
	gpu.Division.Instances = append(gpu.Division.Instances, instanceOf(m, layouts.Placement{Profile: m.Profile("2g.20gb"), Start: 2}))
	l.SetPool("a", slicesOf(t, "a", []dra.GPU{gpu}))
	g := nodeNamed(t, l, "a").GPUs[0]
	if len(l.Fences()) != 0 || g.Tenants != 1 || g.Fault != "" {
		t.Errorf("%+v, fences %v", g, l.Fences())
	}
	if given := fill(t, l, m); !slices.Equal(given, []string{dra.InstanceName(gpu.UUID, "2g.20gb", 2)}) {
		t.Errorf("given were %v", given)
	}
	l.SetClaim("ns/has", nil)
	if _, err := alloc.Search(l.Inventory(), alloc.Request{Count: 1, Profile: "1g.10gb"}); err == nil {
		t.Error("a sick instance is given after it was released")
	}
}

func TestInstancesServe(t *testing.T) {
	m := hopper(t)
	l := newLedger(t)
	gpus := gpusOf(0, 4)
	gpus[1] = divided(m, gpus[1], m.Placed(m.Profile("1g.10gb"), 0)|m.Placed(m.Profile("3g.40gb"), 4), false)
	gpus[2] = divided(m, gpus[2], 0, true)
	gpus[3] = divided(m, gpus[3], m.Placed(m.Profile("1g.20gb"), 0), false)
	gpus[3].Model = "another"
	l.SetPool("a", slicesOf(t, "a", gpus))
	served := func(expressions ...string) (all []string) {
		for _, one := range l.Instances(expressions) {
			text := one.Profile
			for i := range gpus {
				g := l.pools["a"].gpus[slices.IndexFunc(l.pools["a"].gpus, func(g *gpu) bool { return g.uuid == uuidOf(0, i) })]
				if one.Classes.Has(g.class.number) && (one.Among == "" || one.Among.Has(g.uuid)) {
					text += fmt.Sprint(" ", i)
				}
			}
			all = append(all, text)
		}
		return all
	}
	for expression, want := range map[string]string{
		`true`:     "1g.10gb 1 2, 1g.10gb+me 2, 1g.20gb 2 3, 2g.20gb 2, 3g.40gb 1 2, 4g.40gb 2, 7g.80gb 2",
		sharedForm: "",
		`device.capacity["divvy.dev"].memory.compareTo(quantity("30Gi")) >= 0`: "3g.40gb 1 2, 4g.40gb 2, 7g.80gb 2",
		`device.attributes["divvy.dev"].model == "another"`:                    "1g.20gb 3",
		`device.attributes["divvy.dev"].profile == "1g.10gb"`:                  "1g.10gb 1 2",
		`device.attributes["divvy.dev"].parentUUID == "` + uuidOf(0, 1) + `"`:  "1g.10gb 1, 3g.40gb 1",
		`device.attributes["divvy.dev"].uuid.endsWith("-0")`:                   "1g.10gb 1",
		`has(device.attributes["divvy.dev"].uuid)`:                             "1g.10gb 1, 1g.20gb 3, 3g.40gb 1",
	} {
		if got := strings.Join(served(expression), ", "); got != want {
			t.Errorf("%s: %s, want %s", expression, got, want)
		}
	}
	if classes, _ := l.Serving([]string{`true`}); classes.Has(l.pools["a"].gpus[1].class.number) {
		t.Error("a GPU in MIG mode serves shares")
	}
}
