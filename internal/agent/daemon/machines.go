package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path"
	"path/filepath"
	"slices"
	"time"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/backend/passthrough"
	"github.com/divvy-gpu/divvy/internal/backend/vgpu"
	"github.com/divvy-gpu/divvy/internal/backend/vgpu/backing"
	"github.com/divvy-gpu/divvy/internal/checkpoint"
	"github.com/divvy-gpu/divvy/internal/nvml/helper"
	"github.com/divvy-gpu/divvy/internal/pci"
	"github.com/divvy-gpu/divvy/internal/rdma"
	"github.com/divvy-gpu/divvy/internal/vm/claims"
	"github.com/divvy-gpu/divvy/internal/vm/facts"
	"github.com/divvy-gpu/divvy/internal/vm/vfio"
)

// machines are the devices that virtual machines of this host have: the claims of the ledger, and what others have in the same
// book, such as the claims of a cluster.
type machines struct {
	*claims.Ledger
	book  *vfio.Book
	vgpus *vgpu.Backend
	// root has the host's files. Facts reads them for a claim, and look again and again.
	root  fs.FS
	facts func() (*facts.Host, error)
	look  func() (*facts.Host, error)
	// broken is why the book cannot be read, nil where it can.
	broken error
	going  going
}

// openMachines opens the books of devices for virtual machines, and puts back what an earlier agent left half done. It comes
// before the driver is asked: a GPU that is put back is there then.
func (s *service) openMachines(ctx context.Context) error {
	o := s.options
	host := o.Machine
	if !o.shared() || o.simgpu() != "" && host == nil {
		return nil // it changes nothing of devices
	}
	if host == nil {
		program, err := o.Tree.Divvy()
		if err != nil {
			return err
		}
		host = &vfio.Host{Root: "/", Program: program, Args: []string{vfio.Command}}
	}
	dir := o.Endpoint.Dir()
	m := &machines{
		root:  vfio.Files(host.Root),
		facts: func() (*facts.Host, error) { return facts.Read(vfio.Files(host.Root)) },
		look:  func() (*facts.Host, error) { return facts.Look(vfio.Files(host.Root)) },
	}
	var err error
	m.book, m.broken, err = openBook(vfio.Config{Path: filepath.Join(dir, vfio.FileName), Machine: *host, Limits: vfio.Usual, Step: o.Step})
	if err != nil {
		return err
	}
	if m.broken != nil {
		o.Log.ErrorContext(ctx, "gives no device to virtual machines and puts none back", "error", m.broken)
	}
	s.closers = append(s.closers, func() error { m.book.Close(); return nil })
	m.vgpus = vgpu.New(vgpu.Options{Root: vfio.Files(host.Root), Book: m.book, Later: !o.MachinesOnly, Log: o.Log})
	opened := 0
	err = s.readOrSetAside(filepath.Join(dir, claims.FileName), func(path string) (err error) {
		opened++
		m.Ledger, err = claims.Open(claims.Config{
			Path: path, Nodes: claims.HostNodes{}, Now: time.Now, Log: o.Log, Step: o.Step, Broken: m.broken,
			Makers: map[v1alpha1.Backend]claims.Maker{
				v1alpha1.BackendPassthrough: passthrough.Whole(m.book, m.root, m.facts),
				v1alpha1.BackendVF:          passthrough.Function(m.book, m.root, m.facts),
				v1alpha1.BackendVGPU:        vgpu.Maker{Backend: m.vgpus},
			},
		})
		return err
	})
	if err != nil {
		return err
	}
	if lost := opened > 1; lost {
		m.limitAll(ctx, vfio.Files(host.Root), o.Log)
	}
	s.machines = m
	if knows := m.broken == nil; knows {
		m.putBack(ctx, o.Log)
	}
	return nil
}

// limitAll takes every RDMA card for one on which containers had limits, because the ledger is lost that would tell: the kernel may stop
// when such a card leaves its driver.
func (m *machines) limitAll(ctx context.Context, root fs.FS, log *slog.Logger) {
	devices, err := facts.ReadUsed(root)
	if err == nil {
		err = m.Limit(rdma.Read(root, devices).Limitable())
	}
	if err != nil {
		log.ErrorContext(ctx, "cannot keep RDMA cards on which containers may have had limits from virtual machines: give these none until the host restarts", "error", err)
		return
	}
	if cards := m.Limited(); len(cards) > 0 {
		log.WarnContext(ctx, "it is not known on which RDMA cards containers had limits, so none leaves its driver until the host restarts", "cards", cards)
	}
}

// putBack puts back what an earlier agent left half done. What cannot be put back now is put back later.
func (m *machines) putBack(ctx context.Context, log *slog.Logger) {
	left, err := m.book.Recover(ctx)
	for _, f := range left {
		log.WarnContext(ctx, "something of a device is not as it was", "left", f.String())
	}
	if err != nil {
		log.WarnContext(ctx, "cannot put back yet what an earlier agent began for virtual machines", "error", err)
	}
	if err := m.Recover(ctx); err != nil && !errors.Is(err, vgpu.ErrLater) { // those go on once the driver is open
		log.WarnContext(ctx, "cannot put back yet what an earlier agent claimed for virtual machines", "error", err)
	}
}

// openBook opens the book of devices. One that cannot be understood, or that is gone while claims have devices by it, is left as it is, and
// not taken for an empty one: virtual machines may have the devices that are in it. Broken says why nothing is given or put back then.
func openBook(c vfio.Config) (book *vfio.Book, broken, err error) {
	book, err = vfio.Open(c)
	if err == nil {
		if err = booked(c.Path); err == nil {
			return book, nil, nil
		}
		book.Close()
	} else if !errors.Is(err, checkpoint.ErrDamaged) && !errors.Is(err, checkpoint.ErrVersion) {
		return nil, nil, err
	}
	broken = fmt.Errorf("which devices virtual machines have is not known, so all are left as they are: %w; `divvy doctor`, as root, says what to do", err)
	return vfio.Broken(c, broken), broken, nil
}

// booked returns an error if a book is gone by which claims of the ledger beside it have devices.
func booked(path string) error {
	ledger, err := claims.Open(claims.Config{Path: filepath.Join(filepath.Dir(path), claims.FileName)})
	if err != nil {
		return nil //nolint:nilerr // it is set aside once it is opened
	}
	all, _ := ledger.List()
	return claims.Booked(path, all)
}

// backVGPUs gives vGPUs the GPU instances behind them, once the driver and the book of instances are open, takes those away
// behind which nothing stands, and goes on with claims that waited for it.
func (s *service) backVGPUs(ctx context.Context) {
	if s.machines == nil || s.machines.broken != nil || s.options.MachinesOnly {
		return
	}
	var made vgpu.Instances
	if s.instances != nil {
		made = backing.MIG{Book: s.instances, Driver: s.byUUID(), UUID: s.uuidAt}
	}
	s.machines.vgpus.SetInstances(made)
	if err := s.machines.vgpus.Recover(ctx); err != nil {
		s.options.Log.WarnContext(ctx, "cannot take GPU instances of vGPUs away that an earlier agent began", "error", err)
	}
	if err := s.machines.Recover(ctx); err != nil {
		s.options.Log.WarnContext(ctx, "cannot put back yet what an earlier agent claimed for virtual machines", "error", err)
	}
}

// uuidAt is the driver's UUID of the GPU at an address, or "".
func (s *service) uuidAt(at pci.Address) string {
	gpus, _ := s.library.GPUs() // a helper's list has no error
	for _, gpu := range gpus {
		if found, err := pci.ParseAddress(gpu.PCI); err == nil && found == at {
			return gpu.UUID
		}
	}
	return ""
}

// List implements [agent.Machines].
func (m *machines) List() (all []claims.Claim, changed <-chan struct{}) {
	all, changed = m.Ledger.List()
	for _, e := range m.book.Entries() {
		if !v1alpha1.Backend(e.Plan.Form).ForMachines() || slices.ContainsFunc(all, func(c claims.Claim) bool { return c.Name == e.Owner }) {
			continue // no virtual machine has it, or the ledger tells
		}
		c := claims.Claim{
			Want:  claims.Want{Name: e.Owner, Form: v1alpha1.Backend(e.Plan.Form), Device: e.Plan.Device},
			Given: claims.Given{Group: e.Plan.Group, Members: e.Plan.Members, Nodes: e.Plan.Nodes},
			Times: claims.Times{Phase: phases[e.Phase]}, Foreign: true,
		}
		if e.Stuck != nil {
			c.Fault = e.Stuck.Error()
		}
		all = append(all, c)
	}
	return all, changed
}

// Unread implements [agent.Machines].
func (m *machines) Unread() error { return m.broken }

// Release implements [agent.Machines]. What is in the book and in no ledger, as after that was lost, is put back as well.
func (m *machines) Release(ctx context.Context, name string) (left []string, err error) {
	left, err = m.PutBack(ctx, name)
	var nodes []string
	ours := false
	for _, e := range m.book.Entries() {
		if e.Owner == name && v1alpha1.Backend(e.Plan.Form).ForMachines() {
			ours, nodes = true, append(nodes, e.Plan.Nodes...)
		}
	}
	if !errors.Is(err, claims.ErrUnknown) || !ours {
		return left, err
	}
	again := m.Disown(ctx, nodes) // they may be its user's, who must not open them after it is free
	left, err = claims.Released(m.book.Release(ctx, name))
	if errors.Is(err, claims.ErrOpen) {
		again()
	}
	return left, err
}

// phases are those of the book in the words of claims.
var phases = map[vfio.Phase]claims.Phase{vfio.Binding: claims.Taking, vfio.Bound: claims.Held, vfio.Returning: claims.Leaving}

// Has implements [agent.Machines].
func (m *machines) Has(function pci.Address) (h claims.Holder, taken bool) {
	all, _ := m.List()
	for _, c := range all {
		if physical, virtual := m.Physical(c.Device); c.Has(function) || virtual && physical == function {
			return claims.Holder{Owner: c.Name, Form: c.Form, Foreign: c.Foreign, Fault: c.Fault}, true
		}
	}
	return h, false
}

// Physical implements [agent.Machines].
func (m *machines) Physical(function pci.Address) (at pci.Address, virtual bool) {
	target, err := fs.ReadLink(m.root, "sys/bus/pci/devices/"+function.String()+"/physfn")
	if err != nil {
		return at, false
	}
	at, err = pci.ParseAddress(path.Base(target))
	return at, err == nil
}

// letGo calls do while no process of the agent's has the driver open.
func (s *service) letGo(do func() error) error {
	const nobody = -1 // so that nobody changes a GPU meanwhile
	return s.library.Alone(nobody, func(helper.Lone) error { return do() })
}

// renew has who asks the driver next find its GPUs anew. A helper that the driver does not answer is not waited for: it finds them
// once it has ended.
func (s *service) renew() {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := s.library.Reopen(); err != nil {
			s.options.Log.Warn("cannot have the driver's GPUs found anew", "error", err)
		}
	}()
	select {
	case <-ended:
	case <-time.After(renewing):
	}
}

// renewing is how long a release waits for helpers to end.
const renewing = 2 * time.Second

// returned has the agent start again inside its process, to serve a GPU that came back from a virtual machine and was not there
// when the agent started.
func (s *service) returned(uuid string) {
	ctx := context.Background()
	if s.again.Load() != nil {
		return // it is about to
	}
	hold, err := s.options.Endpoint.HoldStart(ctx)
	if err != nil {
		s.options.Log.WarnContext(ctx, "cannot start again to serve a GPU that came back from a virtual machine", "gpu", uuid, "error", err)
		return
	}
	s.options.Log.InfoContext(ctx, "starts again to serve a GPU that came back from a virtual machine", "gpu", uuid)
	s.again.Store(&again{hold, nil, s.rules})
	go func() {
		<-time.After(settleReturned) // whoever released it is answered first
		s.end()
	}()
}

// settleReturned is how long after a release the agent starts again.
const settleReturned = 200 * time.Millisecond
