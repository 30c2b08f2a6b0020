package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/agentconfig"
	"github.com/divvy-gpu/divvy/internal/backend/vgpu"
	"github.com/divvy-gpu/divvy/internal/pci"
	"github.com/divvy-gpu/divvy/internal/vm/claims"
	"github.com/divvy-gpu/divvy/internal/vm/facts"
)

// going are the functions that are being taken away. A claim is in the ledger before it asks, and they are here before the ledger
// is looked at, so one of the two gives way.
type going struct {
	mu sync.Mutex
	// all counts who takes each away.
	all map[pci.Address]int
}

// begin enters functions until end is called.
func (g *going) begin(functions []pci.Address) (end func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, f := range functions {
		if g.all == nil {
			g.all = map[pci.Address]int{}
		}
		g.all[f]++
	}
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		for _, f := range functions {
			g.all[f]--
		}
	}
}

// refuse returns an error if one of some functions is being taken away.
func (g *going) refuse(functions []pci.Address) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, f := range functions {
		if g.all[f] > 0 {
			return fmt.Errorf("%w: virtual functions are taken away: %s", claims.ErrBusy, f)
		}
	}
	return nil
}

// Take implements [agent.Machines].
func (m *machines) Take(ctx context.Context, w claims.Want, admit func(members []pci.Address) error) (claims.Claim, error) {
	return m.Ledger.Take(ctx, w, func(members []pci.Address) error {
		if err := m.going.refuse(append([]pci.Address{w.Device}, members...)); err != nil {
			return err
		}
		return admit(members)
	})
}

// SetFunctions implements [agent.Functions].
func (m *machines) SetFunctions(ctx context.Context, device pci.Address, count int) (left []string, err error) {
	if m.broken != nil {
		return nil, m.broken
	}
	if count != 0 {
		return nil, m.vgpus.EnableFunctions(ctx, device, count)
	}
	functions, err := m.vgpus.Virtual(device)
	if err != nil {
		return nil, err
	}
	defer m.going.begin(append(functions, device))()
	if user := m.userOf(device, functions); user != "" {
		return nil, fmt.Errorf("disable the virtual functions of %s: %w: %s", device, vgpu.ErrUsed, user)
	}
	if len(functions) > 0 { // the card's own adapter counts: its driver may make that anew
		if err := m.MayLeave(append(functions, device)); err != nil {
			return nil, fmt.Errorf("disable the virtual functions of %s: %w", device, err)
		}
	}
	foreign, err := m.vgpus.DisableFunctions(ctx, device)
	for _, f := range foreign {
		left = append(left, f.String())
	}
	return left, err
}

// userOf names who has one of a device's virtual functions, "" for nobody.
func (m *machines) userOf(device pci.Address, functions []pci.Address) string {
	all, _ := m.Ledger.List()
	for _, c := range all {
		if slices.ContainsFunc(functions, c.Has) || len(functions) > 0 && c.Form == v1alpha1.BackendVGPU && c.Device == device {
			if c.Cluster != "" {
				return fmt.Sprintf("claim %s (%s), which ends with its pod in the cluster (%s)", c.Name, c.Form, c.Cluster)
			}
			return fmt.Sprintf("claim %s (%s): `divvy vm release %s` takes it back", c.Name, c.Form, c.Name)
		}
	}
	for _, r := range m.Reserved() {
		if slices.ContainsFunc(functions, func(f pci.Address) bool { return slices.Contains(r.Functions, f) }) {
			return "containers have one for " + r.Name + ": end its pods first"
		}
	}
	return ""
}

// EnabledFunctions implements [agent.Functions].
func (m *machines) EnabledFunctions() (all []control.Functions) {
	for _, e := range m.vgpus.Enabled() {
		f := control.Functions{Device: e.Device, Count: e.Count, Phase: phases[e.Phase], Fault: e.Stuck}
		if e.Changed {
			f.Fault = fmt.Sprintf("somebody has changed their number to %d", e.Now)
		}
		all = append(all, f)
	}
	return all
}

// enabler enables the virtual functions that the agent's configuration asks for, once in the life of an agent.
type enabler struct {
	lendings []agentconfig.Lending
	host     func() (*facts.Host, error)
	set      func(ctx context.Context, device pci.Address, count int) error
	log      *slog.Logger
	// said are the errors that were told, by device.
	said map[pci.Address]string
}

// enableAgain is the time between two tries to enable functions: the driver that makes them may come after the agent.
const enableAgain = 30 * time.Second

// enableFunctions enables what the configuration asks for, until all of it is there.
func (s *service) enableFunctions(ctx context.Context) {
	e := enabler{
		lendings: s.rules.Lendings(), host: s.machines.facts, log: s.options.Log,
		set: func(ctx context.Context, device pci.Address, count int) error {
			_, err := s.agent.SetFunctions(ctx, device, count)
			return err
		},
		said: map[pci.Address]string{},
	}
	ticker := time.NewTicker(enableAgain)
	defer ticker.Stop()
	for !e.try(ctx) {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

// try enables what is not there yet, and reports whether nothing is left to do. What is there stays, whoever enabled it.
func (e *enabler) try(ctx context.Context) (done bool) {
	wanted := false
	for _, l := range e.lendings {
		wanted = wanted || l.Functions != 0
	}
	if !wanted {
		return true
	}
	host, err := e.host()
	if err != nil {
		e.say(ctx, pci.Address{}, err)
		return false
	}
	done = true
	for _, d := range host.Devices {
		l, offered := agentconfig.LendingOf(e.lendings, d.Address, d.IsGPU())
		switch {
		case !offered || l.Functions == 0 || d.Virtual || l.Every && d.VFsTotal == 0:
		case d.VFs > 0:
			e.log.InfoContext(ctx, "virtual functions stay as they are", "device", d.Address, "functions", d.VFs)
		default:
			if err := e.set(ctx, d.Address, l.Functions); err != nil {
				e.say(ctx, d.Address, err)
				done = false
				continue
			}
			e.log.InfoContext(ctx, "enabled virtual functions", "device", d.Address, "asked", l.Functions)
		}
	}
	return done
}

// say tells an error about a device once.
func (e *enabler) say(ctx context.Context, device pci.Address, err error) {
	if text := err.Error(); e.said[device] != text {
		e.said[device] = text
		e.log.WarnContext(ctx, "cannot enable the virtual functions that the configuration asks for, and will try again", "error", text)
	}
}
