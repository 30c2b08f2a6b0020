package agent

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/alloc"
	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/backend/registry"
	"github.com/divvy-gpu/divvy/internal/process"
)

// How many programs may be on a GPU by MPS (MPS manual, "Client-Server Connection Limit"): mostClients up to CUDA 13.0.
const (
	mostClients    = 48
	mostClientsNow = 60
	moreClients    = 13010 // the CUDA version that has mostClientsNow
)

// clients is how many programs the driver lets share a GPU by MPS.
func (a *Agent) clients() int {
	if a.config.Info.CUDA >= moreClients {
		return mostClientsNow
	}
	return mostClients
}

// clientsOn is how many of them it lets share a MIG instance: in proportion to its compute slices, at least one.
func (a *Agent) clientsOn(i backend.Instance) int {
	whole := 0
	for _, s := range a.divisions.get(i.Parent).Sizes {
		whole = max(whole, computeSlices(s.Profile))
	}
	own := computeSlices(i.Profile)
	if own == 0 || whole == 0 {
		return a.clients()
	}
	return max(1, a.clients()*own/whole)
}

// computeSlices is the number with which the name of a MIG profile begins, such as 3 of 3g.40gb; 0 where it has none.
func computeSlices(profile string) int {
	number, _, _ := strings.Cut(profile, "g.")
	n, err := strconv.Atoi(number)
	if err != nil {
		return 0
	}
	return n
}

// serverOf adds to a GPU, whose form is known, whom its MPS server serves, how many programs that takes at most, and how
// many it counts: those that are there, and one for each share that has none yet. What a share starts beyond that the driver refuses when its server is
// full. Agent.mu is held.
func (a *Agent) serverOf(g *alloc.GPU, most int, except *tenant) {
	if g.Form != string(v1alpha1.BackendMPS) {
		return
	}
	g.MostClients = most
	for _, t := range a.tenants {
		if t == except || !t.has(g.UUID) || t.backend() != v1alpha1.BackendMPS {
			continue
		}
		living := 0
		for _, p := range t.seen.Processes {
			if p.Live {
				living++
			}
		}
		g.Clients += max(1, living)
		// Whose processes a container has is known when they run: the driver lets those of another user wait.
		if !t.contained() && !a.serverForAll(g.UUID) {
			g.User = t.User
		}
	}
}

// unsuited is why a GPU can never have shares of a backend, "" where it can or the backend does not tell.
func (a *Agent) unsuited(b v1alpha1.Backend, gpu backend.GPU) string {
	if chooser, ok := a.config.Backends.Of(b).(backend.Chooser); ok {
		return chooser.Unsuited(gpu)
	}
	return ""
}

// unfit is why a GPU can never serve a request because of what it is, "" where it can.
func (a *Agent) unfit(r v1alpha1.ShareRequest, gpu backend.GPU) string {
	why := a.unsuited(r.Backend, gpu)
	switch {
	case why != "":
	case (r.Swap || r.SuspendAfter != 0) && a.inMIGMode(gpu.UUID):
		why = inMIGMode
	case r.Swap:
		why, _ = a.unswappable(gpu)
	}
	return why
}

// inMIGMode is why nothing leaves a GPU. What its driver can do is not known in this mode: CUDA shows its instances alone.
const inMIGMode = "it is in MIG mode, and the driver moves no memory of MIG instances to the host"

// suitable are the UUIDs of the GPUs that a request may have: those that it names, which the backend may leave out where
// they do not suit it.
func (a *Agent) suitable(r v1alpha1.ShareRequest) ([]string, error) {
	var left []string
	why := ""
	for _, gpu := range a.gpus {
		if len(r.Among) > 0 && !slices.Contains(r.Among, gpu.UUID) {
			continue
		}
		if text := a.unfit(r, gpu); text != "" {
			why = cmp.Or(why, fmt.Sprintf("GPU %d: %s", gpu.Index, text))
			continue
		}
		left = append(left, gpu.UUID)
	}
	switch {
	case why == "":
		return r.Among, nil
	case len(left) < r.GPUs && r.Swap:
		return nil, control.Errorf(control.CodeInvalid, "too few GPUs can have swap shares: %s: leave out --swap, or name other GPUs", why)
	case len(left) < r.GPUs && r.SuspendAfter != 0:
		return nil, control.Errorf(control.CodeInvalid, "too few GPUs can have shares that are suspended: %s: leave out --suspend-after, or name other GPUs", why)
	case len(left) < r.GPUs:
		return nil, control.Errorf(control.CodeInvalid, "too few GPUs can have shares of backend %s: %s: use another backend, or name other GPUs", r.Backend, why)
	}
	return left, nil
}

// serverForAll reports whether one MPS server serves the shares of several users on a GPU.
func (a *Agent) serverForAll(uuid string) bool {
	several, ok := a.config.Backends.Of(v1alpha1.BackendMPS).(interface{ ServesAll(gpu backend.GPU) bool })
	gpu := a.gpu(uuid)
	if parent, part, found := a.parentOf(uuid); found {
		gpu = instanceGPU(parent, part.Instance)
	}
	return ok && several.ServesAll(gpu)
}

// mechanism is how the driver keeps a share's part of the GPU's time, "" where our library does.
func (a *Agent) mechanism(s share) string {
	if s.Backend != v1alpha1.BackendMPS {
		return ""
	}
	text := fmt.Sprintf("MPS, ceiling %d %% of SMs", cmp.Or(s.Cores, v1alpha1.MaxCores))
	if a.serverForAll(a.device(s).UUID) {
		text += ", not isolated from other users' shares"
	}
	return text
}

// listen has backends tell what befalls their tenants.
func (a *Agent) listen(ctx context.Context) {
	ctx = context.WithoutCancel(ctx)
	for _, kind := range a.config.Backends.Kinds() {
		if reporter, ok := kind.Backend.(backend.Reporter); ok {
			reporter.Report(func(i backend.Incident) { a.befall(ctx, kind.Name, i) })
		}
	}
}

// ofBackend reports whether a process is one that a backend keeps running.
func (a *Agent) ofBackend(id process.ID) bool {
	return slices.ContainsFunc(a.config.Backends.Kinds(), func(kind registry.Kind) bool {
		reporter, ok := kind.Backend.(backend.Reporter)
		return ok && reporter.Own(id)
	})
}

// befall tells every tenant of a backend on a GPU what happened there: by an event, in lists, and where its programs write
// their errors. It returns before the last of these is written.
func (a *Agent) befall(ctx context.Context, of v1alpha1.Backend, i backend.Incident) {
	a.config.Log.WarnContext(ctx, "a GPU's shares are concerned", "gpu", i.UUID, "backend", of, "text", i.Text)
	index := a.indexOf(i.UUID)
	if i.By != (process.ID{}) {
		go a.accuse(ctx, i) // to find out whose it is may take long
		return
	}
	if i.Note {
		a.events.add(control.Event{Kind: control.EventGPU, UUID: i.UUID, Text: i.Text})
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if i.Over {
		delete(a.unserved, i.UUID)
	} else {
		a.unserved[i.UUID] = i.Text
	}
	concerned := 0
	for _, t := range a.sorted() {
		if !t.has(i.UUID) || t.backend() != of || t.ended {
			continue
		}
		concerned++
		a.events.add(control.Event{Kind: control.EventFault, Tenant: t.Name, User: t.User, UUID: i.UUID, Text: i.Text})
		a.tellTenant(ctx, t, fmt.Sprintf("divvy: share %s, GPU %d: %s", t.Name, index, i.Text))
	}
	if concerned == 0 {
		a.events.add(control.Event{Kind: control.EventGPU, UUID: i.UUID, Text: fmt.Sprintf("GPU %d: %s", index, i.Text)})
	}
	a.tell()
}

// unservedOf is why a tenant's programs are not served by the driver now, "" while they are. Agent.mu is held.
func (a *Agent) unservedOf(t *tenant) string {
	if t.backend() != v1alpha1.BackendMPS {
		return ""
	}
	return a.unserved[a.device(t.Shares[0]).UUID]
}
