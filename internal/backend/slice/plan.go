package slice

import (
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/driver"
	"github.com/divvy-gpu/divvy/internal/edits"
	"github.com/divvy-gpu/divvy/internal/install"
	"github.com/divvy-gpu/divvy/internal/ldcache"
	"github.com/divvy-gpu/divvy/internal/page"
)

// machine is all that a plan depends on besides the tenant.
type machine struct {
	// Tenants is the directory of tenant directories.
	Tenants string
	// Tree is where our own libraries are.
	Tree install.Tree
	// Instance is the directory of a simulated machine, empty on a real one.
	Instance string
	// Cache is the linker's cache, empty where there is none.
	Cache string
	// Flags tell the linker's cache of which kind this machine's libraries are.
	Flags uint32
	// PIDNamespace is the inode of the agent's pid namespace.
	PIDNamespace uint64
	// Shared is true for the system's agent, whose tenants are other users:
	// they may read all, and write the state page alone.
	Shared bool
	// memory is the backend's, nil for none.
	memory *memory
}

var errTenant = errors.New("invalid tenant")

// plan is pure. d is the driver as the tenant would find it. Containers have a
// plan of their own.
func (m machine) plan(t backend.Tenant, d *driver.Driver) (*backend.Plan, error) {
	if err := checkCount(t); err != nil {
		return nil, err
	}
	dir := filepath.Join(m.Tenants, t.ID)
	p := &backend.Plan{Dir: dir}
	add := func(steps ...backend.Step) { p.Steps = append(p.Steps, steps...) }

	mode, configMode := os.FileMode(0o700), os.FileMode(0o600)
	if m.Shared {
		mode, configMode = 0o755, 0o644
	}
	config, err := m.config(t)
	if err != nil {
		return nil, err
	}
	add(makeDir{Path: dir, Mode: mode},
		writeConfig{Path: filepath.Join(dir, "config"), Mode: configMode, Config: config, Shown: shown(&config), Flags: config.Flags},
		makeState{Path: filepath.Join(dir, "state"), Devices: len(t.Shares), UID: t.UID})
	for _, library := range driver.Libraries {
		ours := filepath.Join(dir, string(library))
		add(copyLibrary{Source: m.Tree.Library(string(library)), Path: ours, Runpath: dir},
			link{Path: filepath.Join(dir, library.Bare()), Target: string(library)})
		if t.Layer == backend.LayerEnv {
			add(link{Path: filepath.Join(dir, library.Real()), Target: d.Chosen[library]})
		}
	}
	if m.Instance != "" {
		add(link{Path: filepath.Join(dir, "simgpu"), Target: m.Instance})
	}
	if t.Layer == backend.LayerEnv {
		p.Edits.Env = []edits.Env{{Name: "LD_LIBRARY_PATH", Value: dir, Prepend: true}}
		return p, nil
	}
	for _, library := range driver.Libraries {
		// A file to bind over, not a link: mount(2) would follow a link and
		// cover what it points to.
		add(makeFile{Path: filepath.Join(dir, library.Real())})
	}
	p.Edits.Binds = covers(dir, d)
	m.lead(p, d)
	return p, nil
}

func checkCount(t backend.Tenant) error {
	if len(t.Shares) < 1 || len(t.Shares) > page.Devices {
		return fmt.Errorf("%w: %d GPUs; one tenant can have 1 to %d", errTenant, len(t.Shares), page.Devices)
	}
	return nil
}

// covers binds the driver's originals into the tenant directory and then ours
// over every file of the driver. The order matters: the second hides the
// sources of the first.
func covers(dir string, d *driver.Driver) []edits.Bind {
	var binds []edits.Bind
	for _, library := range driver.Libraries {
		binds = append(binds, edits.Bind{
			Source: d.Chosen[library], Target: filepath.Join(dir, library.Real()), ReadOnly: true,
		})
	}
	for _, library := range driver.Libraries {
		for _, file := range d.Files[library] {
			binds = append(binds, edits.Bind{
				Source: filepath.Join(dir, string(library)), Target: file, ReadOnly: true,
			})
		}
	}
	return binds
}

// lead makes programs find our libraries by name alone where the linker's cache
// knows no driver's file that ours could cover: a simulated machine, or a
// driver that is only on LD_LIBRARY_PATH.
func (m machine) lead(p *backend.Plan, d *driver.Driver) {
	var entries []ldcache.Entry
	for _, library := range driver.Libraries {
		if d.Cached[library] {
			continue
		}
		for _, name := range []string{string(library), library.Bare()} {
			entries = append(entries, ldcache.Entry{
				Name: name, Path: filepath.Join(p.Dir, name), Flags: m.Flags,
			})
		}
	}
	switch {
	case len(entries) == 0:
	case m.Cache == "":
		p.Edits.Env = []edits.Env{{Name: "LD_LIBRARY_PATH", Value: p.Dir, Prepend: true}}
	default:
		cache := filepath.Join(p.Dir, "ld.so.cache")
		p.Steps = append(p.Steps, writeCache{Source: m.Cache, Path: cache, Entries: entries})
		p.Edits.Binds = append(p.Edits.Binds, edits.Bind{Source: cache, Target: m.Cache, ReadOnly: true})
	}
}

var (
	policies = map[v1alpha1.Policy]uint32{
		v1alpha1.PolicyWeighted: page.PolicyWeighted,
		v1alpha1.PolicyFixed:    page.PolicyFixed,
		v1alpha1.PolicyBurst:    page.PolicyBurst,
	}
	classes = map[v1alpha1.Class]uint32{
		v1alpha1.ClassOffline: page.ClassOffline,
		v1alpha1.ClassOnline:  page.ClassOnline,
	}
)

// config is the tenant's config page. Limits are in units of the ledger,
// rounded down so that none gets wider.
func (m machine) config(t backend.Tenant) (page.Config, error) {
	c := page.Config{
		DeviceCount:  uint32(len(t.Shares)),
		PIDNamespace: m.PIDNamespace,
		ID:           page.Text64(t.ID),
		Name:         page.Text64(t.Name),
	}
	if t.Overcommit {
		c.Flags |= page.FlagOvercommit
	}
	if t.Layer == backend.LayerEnv {
		c.Flags |= page.FlagEnv
	}
	for i, share := range t.Shares {
		uuid, err := uuidBytes(share.GPU.UUID)
		if err != nil {
			return page.Config{}, err
		}
		c.Device[i] = page.Device{
			UUID:         uuid,
			PCIBusID:     page.Text32(strings.ToLower(share.GPU.PCI)),
			Limit:        share.Limit / page.Unit * page.Unit,
			Total:        share.GPU.Total,
			ContextBytes: share.GPU.ContextBytes,
			PoolChunk:    poolChunk,
			Cores:        uint32(share.Cores),
			Policy:       policies[share.Policy],
			Weight:       uint32(share.Weight),
			Class:        classes[share.Class],
			Budget:       firstBudget(share),
		}
	}
	return c, nil
}

// firstBudget is what a share may do until the arbiter decides, milliseconds
// after the tenant is made: a capped one its cores, any other what it likes.
func firstBudget(share backend.Share) page.Budget {
	rate := uint32(share.Cores) * (page.Whole / v1alpha1.MaxCores)
	if share.Policy == v1alpha1.PolicyWeighted {
		rate = 0
	}
	return page.NewBudget(rate, uint64(20*time.Millisecond), uint64(8*time.Millisecond))
}

// poolChunk is by how much the driver grows a memory pool: 32 MiB, as seen in
// the RESERVED attribute of a fresh pool (CUDA driver API, memory pools).
const poolChunk = 32 << 20

// uuidBytes reads "GPU-" and 32 hexadecimal digits with dashes between them.
func uuidBytes(text string) (uuid [16]byte, err error) {
	digits := strings.ReplaceAll(strings.TrimPrefix(text, "GPU-"), "-", "")
	raw, err := hex.DecodeString(digits)
	if err != nil || len(raw) != len(uuid) {
		return uuid, fmt.Errorf("%w: the driver calls a GPU %q, which is no UUID", errTenant, text)
	}
	copy(uuid[:], raw)
	return uuid, nil
}

func shown(c *page.Config) []shownShare {
	shares := make([]shownShare, 0, c.DeviceCount)
	for _, d := range c.Device[:c.DeviceCount] {
		shares = append(shares, shownShare{
			UUID: hex.EncodeToString(d.UUID[:]), Limit: d.Limit, ContextBytes: d.ContextBytes,
			Cores: d.Cores, Policy: d.Policy, Weight: d.Weight, Class: d.Class,
		})
	}
	return shares
}
