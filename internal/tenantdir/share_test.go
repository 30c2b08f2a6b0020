package tenantdir

import (
	"encoding/hex"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/page"
)

func pick[T any](r *rand.Rand, all ...T) T { return all[r.IntN(len(all))] }

func word(r *rand.Rand) string {
	const letters = "abcdefghijklmnopqrstuvwxyz0123456789-_./"
	text := make([]byte, 1+r.IntN(63))
	for i := range text {
		text[i] = letters[r.IntN(len(letters))]
	}
	return string(text)
}

func randomUUID(r *rand.Rand) string {
	raw := make([]byte, 16)
	for i := range raw {
		raw[i] = byte(r.Uint32())
	}
	return uuidText(kindGPU, [16]byte(raw))
}

// randomTenant is any tenant that the API accepts, as far as a page tells of it.
func randomTenant(t *testing.T, r *rand.Rand) backend.Tenant {
	t.Helper()
	tenant := backend.Tenant{
		ID: word(r), Name: word(r), Layer: pick(r, backend.LayerNamespace, backend.LayerEnv), Overcommit: pick(r, true, false),
		Backend: pick(r, v1alpha1.BackendSlice, v1alpha1.BackendTimeslice, v1alpha1.BackendRemote),
	}
	for range 1 + r.IntN(page.Devices) {
		config := v1alpha1.ShareConfig{Policy: pick(r, v1alpha1.PolicyFixed, v1alpha1.PolicyWeighted, v1alpha1.PolicyBurst)}
		config.Class = pick(r, v1alpha1.ClassOnline, v1alpha1.ClassOffline)
		cores := 1 + r.IntN(v1alpha1.MaxCores)
		switch config.Policy {
		case v1alpha1.PolicyWeighted:
			config.Weight, cores = 1+r.IntN(v1alpha1.MaxWeight), pick(r, 0, cores)
		case v1alpha1.PolicyBurst:
			config.MaxCores = cores + r.IntN(v1alpha1.MaxCores-cores+1)
		}
		if config.Class == v1alpha1.ClassOffline && config.Policy != v1alpha1.PolicyFixed {
			config.Class = v1alpha1.ClassOnline
		}
		config.Default(cores)

		if err := config.Validate(cores); err != nil {
			t.Fatalf("the test makes an invalid share: %v", err)
		}
		tenant.Shares = append(tenant.Shares, backend.Share{
			GPU: backend.GPU{
				UUID: randomUUID(r), PCI: pick(r, "", "00000000:3b:00.0"), Total: r.Uint64(), ContextBytes: r.Uint64(),
			},
			Limit: (1 + r.Uint64N(mostLimit/page.Unit)) * page.Unit, Cores: cores, MaxCores: config.MaxCores, Weight: config.Weight,
			Policy: config.Policy, Class: config.Class,
		})
	}
	if pick(r, true, false) {
		for i := range tenant.Shares {
			g := &tenant.Shares[i].GPU
			g.UUID = strings.Replace(g.UUID, kindGPU, kindInstance, 1)
			g.Instance = backend.Instance{UUID: g.UUID, Parent: randomUUID(r), Bytes: g.Total}
		}
		tenant.Backend = pick(r, tenant.Backend, v1alpha1.BackendMIG)
	}
	if len(tenant.Shares) == 1 && pick(r, true, false) {
		tenant.Backend, tenant.MPSPipe = v1alpha1.BackendMPS, "/run/divvy/mps/"+tenant.Shares[0].GPU.UUID+"/pipe"
	}
	return tenant
}

// Nothing of a tenant is lost on the way into its page and back.
func TestDecodeUndoesEncode(t *testing.T) {
	for seed := range uint64(2000) {
		want := randomTenant(t, rand.New(rand.NewPCG(seed, 1)))
		c, err := Encode(want, 7)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		got, err := Decode(&c)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("seed %d: got\n%+v, want\n%+v", seed, got, want)
		}
	}
}

// Nothing is lost on the way to the file either, nor when a share changes: what
// Update writes is what Encode writes.
func TestUpdateWritesAllThatWasGranted(t *testing.T) {
	d := Dir(filepath.Join(t.TempDir(), "t"))
	r := rand.New(rand.NewPCG(1, 2))
	before := randomTenant(t, r)
	c, err := Encode(before, 7)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Make(&c, nil, AccessOwner, -1); err != nil {
		t.Fatal(err)
	}
	for range 100 {
		want := before
		want.Overcommit = pick(r, true, false)
		want.Shares = nil
		for i := range before.Shares {
			s := randomTenant(t, r).Shares[0]
			s.GPU = before.Shares[i].GPU
			want.Shares = append(want.Shares, s)
		}
		if err := d.Update(want); err != nil {
			t.Fatal(err)
		}
		kept, err := page.ReadConfig(d.Config())
		if err != nil {
			t.Fatal(err)
		}
		if got, err := Decode(&kept); err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("got\n%+v, %v, want\n%+v", got, err, want)
		}
		if kept.PIDNamespace != 7 || kept.Device[0].Budget != c.Device[0].Budget {
			t.Fatal("Update changed what it does not own")
		}
	}
}

// A share whose time the driver divides begins without a limit: no arbiter ever changes that.
func TestDriversTimeBeginsWithoutALimit(t *testing.T) {
	for maker, limited := range map[v1alpha1.Backend]bool{v1alpha1.BackendSlice: true, v1alpha1.BackendMPS: false} {
		tenant := backend.Tenant{Backend: maker, Shares: []backend.Share{{
			GPU:   backend.GPU{UUID: "GPU-00000000-0000-4000-8000-000000000001"},
			Limit: 1 << 30, Cores: 30, Weight: 1, Policy: v1alpha1.PolicyFixed, Class: v1alpha1.ClassOnline,
		}}}
		if maker == v1alpha1.BackendMPS {
			tenant.MPSPipe = "/run/" + strings.Repeat("p", 94) // the longest one
		}
		c, err := Encode(tenant, 1)
		if err != nil || (c.Device[0].Budget.Flags != 0) != limited || c.Device[0].Cores != 30 {
			t.Errorf("%s: flags %d, cores %d, %v", maker, c.Device[0].Budget.Flags, c.Device[0].Cores, err)
		}
	}
}

func TestEncodeNeverWidensALimit(t *testing.T) {
	tenant := randomTenant(t, rand.New(rand.NewPCG(1, 3)))
	tenant.Shares[0].Limit = 8*page.Unit + page.Unit - 1
	c, err := Encode(tenant, 0)
	if err != nil || c.Device[0].Limit != 8*page.Unit {
		t.Errorf("limit %d, %v", c.Device[0].Limit, err)
	}
}

func TestEncodeRefuses(t *testing.T) {
	for name, spoil := range map[string]func(*backend.Tenant){
		"no shares":      func(t *backend.Tenant) { t.Shares = nil },
		"too many":       func(t *backend.Tenant) { t.Shares = make([]backend.Share, page.Devices+1) },
		"no UUID":        func(t *backend.Tenant) { t.Shares[0].GPU.UUID = "MIG-1" },
		"unknown policy": func(t *backend.Tenant) { t.Shares[0].Policy = "fair" },
		"unknown class":  func(t *backend.Tenant) { t.Shares[0].Class = "" },

		"pipe without mps":   func(t *backend.Tenant) { t.Backend, t.MPSPipe = v1alpha1.BackendTimeslice, "/run/pipe" },
		"mps without a pipe": func(t *backend.Tenant) { t.Backend, t.MPSPipe = v1alpha1.BackendMPS, "" },
		"relative pipe":      func(t *backend.Tenant) { t.Backend, t.MPSPipe = v1alpha1.BackendMPS, "run/pipe" },
		"pipe of two lines":  func(t *backend.Tenant) { t.Backend, t.MPSPipe = v1alpha1.BackendMPS, "/run\n/pipe" },
		"pipe with no name":  func(t *backend.Tenant) { t.Backend, t.MPSPipe = v1alpha1.BackendMPS, "/run/../pipe" },
		"pipe that is long":  func(t *backend.Tenant) { t.Backend, t.MPSPipe = v1alpha1.BackendMPS, "/"+strings.Repeat("p", 99) },
		"an instance beside a GPU": func(t *backend.Tenant) {
			t.Backend, t.MPSPipe, t.Shares = v1alpha1.BackendSlice, "", []backend.Share{t.Shares[0], t.Shares[0]}
			t.Shares[0].GPU.Instance = backend.Instance{}
			t.Shares[1].GPU.Instance = backend.Instance{UUID: t.Shares[0].GPU.UUID, Parent: t.Shares[0].GPU.UUID}
		},
		"an instance of no GPU": func(t *backend.Tenant) {
			t.Shares = t.Shares[:1]
			t.Shares[0].GPU.Instance = backend.Instance{UUID: t.Shares[0].GPU.UUID}
		},
		"mig on a whole GPU": func(t *backend.Tenant) {
			t.Backend, t.MPSPipe, t.Shares = v1alpha1.BackendMIG, "", t.Shares[:1]
			t.Shares[0].GPU.Instance = backend.Instance{}
		},
		"mps on several GPUs": func(t *backend.Tenant) {
			t.Backend, t.MPSPipe, t.Shares = v1alpha1.BackendMPS, "/run/pipe", append(t.Shares, t.Shares[0])
		},
	} {
		tenant := randomTenant(t, rand.New(rand.NewPCG(1, 4)))
		spoil(&tenant)
		if _, err := Encode(tenant, 0); !errors.Is(err, backend.ErrTenant) {
			t.Errorf("%s: %v, want ErrTenant", name, err)
		}
	}
}

// What the library refuses in a page is refused before the page is made.
func TestEncodeKeepsToTheRangesOfAPage(t *testing.T) {
	fixed := backend.Share{
		GPU: backend.GPU{UUID: "GPU-00112233-4455-6677-8899-aabbccddeeff"}, Limit: 8 * page.Unit, Cores: 30, Weight: 1,
		Policy: v1alpha1.PolicyFixed, Class: v1alpha1.ClassOnline,
	}
	for name, c := range map[string]struct {
		change func(*backend.Share)
		sound  bool
	}{
		"as it is":              {func(*backend.Share) {}, true},
		"no limit":              {func(s *backend.Share) { s.Limit = 0 }, false},
		"less than a unit":      {func(s *backend.Share) { s.Limit = 100 }, false},
		"one unit":              {func(s *backend.Share) { s.Limit = page.Unit }, true},
		"the largest limit":     {func(s *backend.Share) { s.Limit = mostLimit + page.Unit - 1 }, true},
		"one unit more":         {func(s *backend.Share) { s.Limit = mostLimit + page.Unit }, false},
		"all of 64 bits":        {func(s *backend.Share) { s.Limit = math.MaxUint64 }, false},
		"cores below 0":         {func(s *backend.Share) { s.Cores = -1 }, false},
		"cores 0":               {func(s *backend.Share) { s.Cores = 0 }, true},
		"all cores":             {func(s *backend.Share) { s.Cores = 100 }, true},
		"cores above all":       {func(s *backend.Share) { s.Cores = 101 }, false},
		"most cores below 0":    {func(s *backend.Share) { s.MaxCores = -1 }, false},
		"most cores above all":  {func(s *backend.Share) { s.MaxCores = 101 }, false},
		"no weight":             {func(s *backend.Share) { s.Weight = 0 }, false},
		"a weight below 0":      {func(s *backend.Share) { s.Weight = -1 }, false},
		"a weight past 32 bits": {func(s *backend.Share) { s.Weight = 1<<32 + 1 }, false},
	} {
		s := fixed
		c.change(&s)
		_, err := Encode(backend.Tenant{Shares: []backend.Share{s}}, 0)
		if c.sound != (err == nil) || !c.sound && !errors.Is(err, backend.ErrTenant) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestEveryNumberHasAName holds the policies and classes here against those of the description, which the library accepts.
func TestEveryNumberHasAName(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "../page/layout_generated.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	described := func(prefix, count string) (names []string) {
		ast.Inspect(file, func(n ast.Node) bool {
			if spec, ok := n.(*ast.ValueSpec); ok && strings.HasPrefix(spec.Names[0].Name, prefix) && spec.Names[0].Name != count {
				names = append(names, spec.Names[0].Name)
			}
			return true
		})
		return names
	}
	if names := described("Policy", "Policies"); len(names) != page.Policies || len(policies) != page.Policies {
		t.Errorf("described are %q, of which policies says there are %d; %d have a name here", names, page.Policies, len(policies))
	}
	if names := described("Class", "Classes"); len(names) != page.Classes || len(classes) != page.Classes {
		t.Errorf("described are %q, of which classes says there are %d; %d have a name here", names, page.Classes, len(classes))
	}
	for number := range uint32(page.Policies) {
		if _, ok := keyOf(policies, number); !ok {
			t.Errorf("policy %d has no name", number)
		}
	}
	for number := range uint32(page.Classes) {
		if _, ok := keyOf(classes, number); !ok {
			t.Errorf("class %d has no name", number)
		}
	}
}

func TestDecodeRefuses(t *testing.T) {
	for name, spoil := range map[string]func(*page.Config){
		"no GPU":             func(c *page.Config) { c.DeviceCount = 0 },
		"too many":           func(c *page.Config) { c.DeviceCount = page.Devices + 1 },
		"unknown policy":     func(c *page.Config) { c.Device[0].Policy = page.Policies },
		"unknown class":      func(c *page.Config) { c.Device[0].Class = page.Classes },
		"mps without a pipe": func(c *page.Config) { c.Flags, c.MPSPipe = page.FlagMPS, page.TextPipe("") },
	} {
		c, err := Encode(randomTenant(t, rand.New(rand.NewPCG(1, 5))), 0)
		if err != nil {
			t.Fatal(err)
		}
		spoil(&c)
		if _, err := Decode(&c); !errors.Is(err, page.ErrCorrupt) {
			t.Errorf("%s: %v, want ErrCorrupt", name, err)
		}
	}
}

// Who reaches a tenant's files follows from the access alone, whatever the umask.
func TestMakeSetsModes(t *testing.T) {
	for _, c := range []struct {
		access             Access
		dir, config, state os.FileMode
		pulses             int
	}{
		{AccessOwner, 0o700, 0o600, 0o600, 0},
		{AccessUsers, 0o755, 0o644, 0o600, 0},
		{AccessContainer, 0o755, 0o644, 0o666, 2},
	} {
		d := Of(t.TempDir(), "t")
		tenant := randomTenant(t, rand.New(rand.NewPCG(1, 6)))
		tenant.Shares = append(tenant.Shares[:1], tenant.Shares[0])
		page, err := Encode(tenant, 0)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := d.Make(&page, nil, c.access, -1); err != nil {
				t.Fatal(err)
			}
		}
		for path, want := range map[string]os.FileMode{string(d): c.dir, d.Config(): c.config, d.State(): c.state} {
			if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
				t.Errorf("%s: %s: %v, %v, want mode %v", c.access, path, info.Mode().Perm(), err, want)
			}
		}
		if pulses, err := filepath.Glob(filepath.Join(string(d), "pulse.*")); err != nil || len(pulses) != c.pulses {
			t.Errorf("%s: pulse pages %q, %v, want %d", c.access, pulses, err, c.pulses)
		}
		if !d.Complete() {
			t.Errorf("%s: not complete after Make", c.access)
		}
		if err := d.Remove(); err != nil || d.Complete() {
			t.Errorf("%s: complete after Remove, %v", c.access, err)
		}
	}
}

func FuzzUUID(f *testing.F) {
	f.Add("GPU-00112233-4455-6677-8899-aabbccddeeff")
	f.Add("GPU-0")
	f.Fuzz(func(t *testing.T, text string) {
		uuid, err := uuidBytes(text)
		if err != nil {
			return
		}
		again, err := uuidBytes(uuidText(kindGPU, uuid))
		if err != nil || again != uuid || !strings.Contains(strings.ReplaceAll(uuidText(kindGPU, uuid), "-", ""), hex.EncodeToString(uuid[:])) {
			t.Errorf("%q became %q, %v", text, uuidText(kindGPU, uuid), err)
		}
	})
}

// A swap share has two ledgers for its GPU, which add up to what it was granted.
func TestSwapShareHasTwoLedgers(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	wanted := randomTenant(t, r)
	wanted.Backend, wanted.Swap = v1alpha1.BackendSlice, true
	wanted.Shares = wanted.Shares[:min(len(wanted.Shares), page.Devices/2)]
	for i := range wanted.Shares {
		wanted.Shares[i].Kept = wanted.Shares[i].Limit/4/page.Unit*page.Unit + page.Unit
		wanted.Shares[i].Limit += 2 * page.Unit
	}
	c, err := Encode(wanted, 1)
	if err != nil {
		t.Fatal(err)
	}
	n := len(wanted.Shares)
	if int(c.DeviceCount) != 2*n || c.Flags&page.FlagSwap == 0 {
		t.Fatalf("%d devices with flags %#x for %d GPUs", c.DeviceCount, c.Flags, n)
	}
	for i, s := range wanted.Shares {
		swapped, kept := c.Device[i], c.Device[n+i]
		if swapped.Limit+kept.Limit != s.Limit/page.Unit*page.Unit || kept.Limit != s.Kept || swapped.UUID != kept.UUID {
			t.Errorf("share %d of %d bytes, %d kept, is %d and %d", i, s.Limit, s.Kept, swapped.Limit, kept.Limit)
		}
		if swapped.Budget.Flags&page.BudgetTurns == 0 || kept.Budget.Flags != 0 {
			t.Errorf("share %d has budgets %#x and %#x", i, swapped.Budget.Flags, kept.Budget.Flags)
		}
	}
	back, err := Decode(&c)
	if err != nil || !back.Swap || len(back.Shares) != n || back.Shares[0].Kept != wanted.Shares[0].Kept || back.Shares[0].Limit != c.Device[0].Limit+c.Device[n].Limit {
		t.Errorf("it comes back as %+v, %v", back, err)
	}
	wanted.Shares[0].Kept = wanted.Shares[0].Limit
	if _, err := Encode(wanted, 1); !errors.Is(err, backend.ErrTenant) {
		t.Errorf("all of a share is kept: %v", err)
	}
}
