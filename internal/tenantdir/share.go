package tenantdir

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/page"
)

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

// Encode is the config page of a tenant. Limits are rounded down to whole units
// of the ledger, so that none gets wider. A share that a page cannot hold gives
// [backend.ErrTenant]. pidNamespace is the inode of the agent's pid namespace.
func Encode(t backend.Tenant, pidNamespace uint64) (page.Config, error) {
	if most := page.Devices / ledgers(&t); len(t.Shares) < 1 || len(t.Shares) > most {
		return page.Config{}, fmt.Errorf("%w: %d GPUs, such a tenant can have 1 to %d", backend.ErrTenant, len(t.Shares), most)
	}
	if err := errors.Join(checkMPS(&t), checkInstances(&t)); err != nil {
		return page.Config{}, err
	}
	c := page.Config{
		DeviceCount:  uint32(devicesOf(&t)),
		Flags:        flags(t),
		PIDNamespace: pidNamespace,
		ID:           page.Text64(t.ID),
		Name:         page.Text64(t.Name),
		Changed:      t.Changed,
		MPSPipe:      page.TextPipe(t.MPSPipe),
	}
	for i := range t.Shares {
		if err := encodeShare(&t.Shares[i], &c.Device[i]); err != nil {
			return page.Config{}, err
		}
		c.Device[i].Budget = firstBudget(t.Backend, &t.Shares[i])
		if t.Swap || t.Suspends {
			c.Device[i].Budget.Flags |= page.BudgetTurns
		}
		if t.Swap {
			if err := encodeKept(&t.Shares[i], &c.Device[i], &c.Device[len(t.Shares)+i]); err != nil {
				return page.Config{}, err
			}
		}
	}
	return c, nil
}

// ledgers is how many devices of the pages a tenant has for each of its GPUs.
func ledgers(t *backend.Tenant) int {
	if t.Swap {
		return 2
	}
	return 1
}

// devicesOf is how many devices the pages of a tenant have.
func devicesOf(t *backend.Tenant) int { return len(t.Shares) * ledgers(t) }

// gpusOf is how many GPUs a config page is about.
func gpusOf(c *page.Config) int {
	t := backend.Tenant{Swap: c.Flags&page.FlagSwap != 0}
	return int(c.DeviceCount) / ledgers(&t)
}

// encodeKept divides a swap share, whose device is written, into what has turns and what never leaves the GPU.
func encodeKept(s *backend.Share, swapped, kept *page.Device) error {
	if s.Kept < page.Unit || s.Kept > s.Limit-min(s.Limit, page.Unit) {
		return fmt.Errorf("%w: GPU %s: %d of %d bytes are kept: both parts need at least %d", backend.ErrTenant, s.GPU.UUID, s.Kept, s.Limit, page.Unit)
	}
	*kept = *swapped
	kept.Budget = page.Budget{Stretch: page.Whole}
	kept.Limit = s.Kept / page.Unit * page.Unit
	swapped.Limit -= kept.Limit
	return nil
}

func flags(t backend.Tenant) (flags uint32) {
	if t.Overcommit {
		flags |= page.FlagOvercommit
	}
	if t.Layer == backend.LayerEnv {
		flags |= page.FlagEnv
	}
	if t.Swap {
		flags |= page.FlagSwap
	}
	switch t.Backend {
	case v1alpha1.BackendTimeslice:
		flags |= page.FlagDriverTime
	case v1alpha1.BackendMPS:
		flags |= page.FlagMPS
	case v1alpha1.BackendMIG:
		flags |= page.FlagAlone
	case v1alpha1.BackendRemote:
		flags |= page.FlagRemote
	}
	if isInstance(&t.Shares[0]) {
		flags |= page.FlagMIG
	}
	return flags
}

// controlSocket is what the control daemon adds to its pipe directory for the socket of clients.
const controlSocket = "/control"

// checkMPS refuses an MPS tenant that the library would refuse (copy_pipe in lib/share/open.c), and a pipe
// directory in the page of any other.
func checkMPS(t *backend.Tenant) error {
	pipe := t.MPSPipe
	switch {
	case t.Backend != v1alpha1.BackendMPS && pipe != "":
		return fmt.Errorf("%w: MPS pipe directory %s for backend %s", backend.ErrTenant, pipe, t.Backend)
	case t.Backend != v1alpha1.BackendMPS:
		return nil
	case len(t.Shares) > 1:
		return fmt.Errorf("%w: %d GPUs with backend mps: a process can be the client of one control daemon", backend.ErrTenant, len(t.Shares))
	case !filepath.IsAbs(pipe) || filepath.Clean(pipe) != pipe || strings.ContainsAny(pipe, "\x00\n"):
		return fmt.Errorf("%w: MPS pipe directory %q is no absolute path", backend.ErrTenant, pipe)
	case len(pipe)+len(controlSocket) >= page.PipeBytes:
		return fmt.Errorf("%w: MPS pipe directory %s has %d bytes: give at most %d, with which its sockets have names",
			backend.ErrTenant, pipe, len(pipe), page.PipeBytes-1-len(controlSocket))
	}
	return nil
}

func isInstance(s *backend.Share) bool { return s.GPU.Instance.UUID != "" }

// checkInstances refuses a tenant with MIG instances beside whole GPUs, and one of backend mig without an instance.
func checkInstances(t *backend.Tenant) error {
	if t.Backend == v1alpha1.BackendMIG && !isInstance(&t.Shares[0]) {
		return fmt.Errorf("%w: backend mig with GPU %s, which is no MIG instance", backend.ErrTenant, t.Shares[0].GPU.UUID)
	}
	for i := range t.Shares {
		if isInstance(&t.Shares[i]) != isInstance(&t.Shares[0]) {
			return fmt.Errorf("%w: MIG instances beside whole GPUs: a program that sees an instance sees no GPU", backend.ErrTenant)
		}
	}
	return nil
}

// encodeShare writes all of a share but its budget, which the arbiter writes.
func encodeShare(s *backend.Share, d *page.Device) error {
	uuid, err := uuidBytes(s.GPU.UUID)
	if err != nil {
		return err
	}
	policy, ok := policies[s.Policy]
	if !ok {
		return fmt.Errorf("%w: policy %q has no number in a page", backend.ErrTenant, s.Policy)
	}
	class, ok := classes[s.Class]
	if !ok {
		return fmt.Errorf("%w: class %q has no number in a page", backend.ErrTenant, s.Class)
	}
	if err := checkRange(s); err != nil {
		return err
	}
	if isInstance(s) {
		if d.Parent, err = uuidBytes(s.GPU.Instance.Parent); err != nil {
			return err
		}
	}
	d.UUID = uuid
	d.PCIBusID = page.Text32(strings.ToLower(s.GPU.PCI))
	d.Total = s.GPU.Total
	d.ContextBytes = s.GPU.ContextBytes
	d.PoolChunk = poolChunk
	d.Limit = s.Limit / page.Unit * page.Unit
	d.Cores = uint32(s.Cores)
	d.MaxCores = uint32(s.MaxCores)
	d.Policy = policy
	d.Weight = uint32(s.Weight)
	d.Class = class
	return nil
}

// mostLimit is the largest limit that a page can hold, in bytes: the ledger counts
// units in 32 bits, and nothing could be charged past a limit above half of that.
const mostLimit = math.MaxUint32 / 2 * page.Unit

// checkRange refuses what the library refuses to read (copy_device in
// lib/share/open.c), so that no page is made that no program can use.
func checkRange(s *backend.Share) error {
	fault := func(format string, args ...any) error {
		return fmt.Errorf("%w: GPU %s: %s", backend.ErrTenant, s.GPU.UUID, fmt.Sprintf(format, args...))
	}
	switch {
	case s.Limit < page.Unit:
		return fault("limit of %d bytes: give at least %d", s.Limit, page.Unit)
	case s.Limit/page.Unit*page.Unit > mostLimit:
		return fault("limit of %d bytes: give at most %d", s.Limit, uint64(mostLimit))
	case s.Cores < 0 || s.Cores > v1alpha1.MaxCores:
		return fault("cores %d: give 0 to %d", s.Cores, v1alpha1.MaxCores)
	case s.MaxCores < 0 || s.MaxCores > v1alpha1.MaxCores:
		return fault("max cores %d: give 0 to %d", s.MaxCores, v1alpha1.MaxCores)
	case s.Weight < 1 || s.Weight > math.MaxUint32:
		return fault("weight %d: give 1 to %d", s.Weight, uint32(math.MaxUint32))
	}
	return nil
}

// backendOf is the backend that the flags of a config page tell.
func backendOf(flags uint32) v1alpha1.Backend {
	switch {
	case flags&page.FlagRemote != 0:
		return v1alpha1.BackendRemote
	case flags&page.FlagAlone != 0:
		return v1alpha1.BackendMIG
	case flags&page.FlagMPS != 0:
		return v1alpha1.BackendMPS
	case flags&page.FlagDriverTime != 0:
		return v1alpha1.BackendTimeslice
	}
	return v1alpha1.BackendSlice
}

// Decode is the tenant of a config page. The page does not tell the tenant's
// user, nor what the driver alone knows of a GPU: its index, its name and its
// reserved memory, and of a MIG instance its profile and its place.
func Decode(c *page.Config) (backend.Tenant, error) {
	t := backend.Tenant{
		ID: fieldText(c.ID[:]), Name: fieldText(c.Name[:]),
		Overcommit: c.Flags&page.FlagOvercommit != 0, Layer: backend.LayerNamespace, Backend: backendOf(c.Flags),
		Changed: c.Changed, MPSPipe: fieldText(c.MPSPipe[:]), Swap: c.Flags&page.FlagSwap != 0,
	}
	if c.Flags&page.FlagEnv != 0 {
		t.Layer = backend.LayerEnv
	}
	if err := checkMPS(&t); err != nil {
		return backend.Tenant{}, fmt.Errorf("%w: %w", page.ErrCorrupt, err)
	}
	if c.DeviceCount < 1 || c.DeviceCount > page.Devices {
		return backend.Tenant{}, fmt.Errorf("%w: %d GPUs", page.ErrCorrupt, c.DeviceCount)
	}
	if c.DeviceCount%uint32(ledgers(&t)) != 0 {
		return backend.Tenant{}, fmt.Errorf("%w: %d devices of a swap share", page.ErrCorrupt, c.DeviceCount)
	}
	gpus := c.DeviceCount / uint32(ledgers(&t))
	for i := range gpus {
		s, err := decodeShare(&c.Device[i], c.Flags&page.FlagMIG != 0)
		if err != nil {
			return backend.Tenant{}, err
		}
		if t.Swap {
			s.Kept = c.Device[gpus+i].Limit
			s.Limit += s.Kept
		}
		t.Suspends = t.Suspends || !t.Swap && c.Device[i].Budget.Flags&page.BudgetTurns != 0
		t.Shares = append(t.Shares, s)
	}
	if err := checkInstances(&t); err != nil {
		return backend.Tenant{}, fmt.Errorf("%w: %w", page.ErrCorrupt, err)
	}
	return t, nil
}

func decodeShare(d *page.Device, instance bool) (backend.Share, error) {
	policy, ok := keyOf(policies, d.Policy)
	if !ok {
		return backend.Share{}, fmt.Errorf("%w: unknown policy %d", page.ErrCorrupt, d.Policy)
	}
	class, ok := keyOf(classes, d.Class)
	if !ok {
		return backend.Share{}, fmt.Errorf("%w: unknown class %d", page.ErrCorrupt, d.Class)
	}
	gpu := backend.GPU{UUID: uuidText(kindGPU, d.UUID), PCI: fieldText(d.PCIBusID[:]), Total: d.Total, ContextBytes: d.ContextBytes}
	if instance {
		gpu.UUID = uuidText(kindInstance, d.UUID)
		gpu.Instance = backend.Instance{UUID: gpu.UUID, Parent: uuidText(kindGPU, d.Parent), Bytes: d.Total}
	}
	return backend.Share{
		GPU:   gpu,
		Limit: d.Limit, Cores: int(d.Cores), MaxCores: int(d.MaxCores), Weight: int(d.Weight), Policy: policy, Class: class,
	}, nil
}

// Update writes what t was granted into the config page of a running tenant.
// What the page says of the GPUs stays, and so does what the arbiter writes.
func (d Dir) Update(t backend.Tenant) error {
	wanted, err := Encode(t, 0)
	if err != nil {
		return err
	}
	change := func(c *page.Config) {
		c.Flags, c.Changed, c.MPSPipe = wanted.Flags, wanted.Changed, wanted.MPSPipe
		for i := range min(c.DeviceCount, wanted.DeviceCount) {
			from, to := &wanted.Device[i], &c.Device[i]
			to.Limit, to.Cores, to.MaxCores = from.Limit, from.Cores, from.MaxCores
			to.Policy, to.Weight, to.Class = from.Policy, from.Weight, from.Class
		}
	}
	if err := page.UpdateConfig(d.Config(), change); err != nil || !d.Adopted() {
		return err
	}
	return page.UpdateConfig(d.Theirs(), change)
}

// undivided are the backends whose GPU time the arbiter does not divide.
var undivided = []v1alpha1.Backend{v1alpha1.BackendTimeslice, v1alpha1.BackendMPS, v1alpha1.BackendMIG}

// firstBudget is what a share may do until the arbiter decides, milliseconds
// after the tenant is made: a share with a cap gets its cores, any other has no
// limit until then. Where the driver divides the GPU, none ever has.
func firstBudget(maker v1alpha1.Backend, s *backend.Share) page.Budget {
	rate := uint32(s.Cores) * (page.Whole / v1alpha1.MaxCores)
	if s.Policy == v1alpha1.PolicyWeighted || slices.Contains(undivided, maker) {
		rate = 0
	}
	return page.NewBudget(rate, uint64(20*time.Millisecond), uint64(8*time.Millisecond))
}

// poolChunk is by how much the driver grows a memory pool: 32 MiB, as seen in
// the RESERVED attribute of a fresh pool (CUDA driver API, memory pools).
const poolChunk = 32 << 20

// The driver's kinds of UUIDs.
const (
	kindGPU      = "GPU-"
	kindInstance = "MIG-"
)

// uuidBytes reads "GPU-" or "MIG-" and 32 hexadecimal digits with dashes between them.
func uuidBytes(text string) (uuid [16]byte, err error) {
	digits, found := strings.CutPrefix(text, kindInstance)
	if !found {
		digits = strings.TrimPrefix(text, kindGPU)
	}
	digits = strings.ReplaceAll(digits, "-", "")
	raw, err := hex.DecodeString(digits)
	if err != nil || len(raw) != len(uuid) {
		return uuid, fmt.Errorf("%w: %q is not the UUID of a GPU or of a MIG instance", backend.ErrTenant, text)
	}
	copy(uuid[:], raw)
	return uuid, nil
}

// uuidText writes a UUID as the driver does.
func uuidText(kind string, uuid [16]byte) string {
	digits := hex.EncodeToString(uuid[:])
	return kind + strings.Join([]string{digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]}, "-")
}

// fieldText is a page's text up to its zero byte.
func fieldText(field []byte) string {
	text, _, _ := bytes.Cut(field, []byte{0})
	return string(text)
}

func keyOf[K comparable](numbers map[K]uint32, number uint32) (key K, ok bool) {
	for k, n := range numbers {
		if n == number {
			return k, true
		}
	}
	return key, false
}
