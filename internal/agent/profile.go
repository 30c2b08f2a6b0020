package agent

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/agentconfig"
	"github.com/divvy-gpu/divvy/internal/alloc"
	"github.com/divvy-gpu/divvy/internal/backend"
)

// divided reports whether a request is for a MIG instance or for a part of one.
func divided(r v1alpha1.ShareRequest) bool {
	return r.Profile != "" || r.Backend == v1alpha1.BackendMIG
}

// withProfile gives a request for a MIG instance its profile: the one that it names, or the smallest that has its memory
// and its cores on some GPU that it may have. Of several that are equally small it is the one whose instance leaves the
// most room for what is usually asked for.
func (a *Agent) withProfile(ctx context.Context, who requester, r v1alpha1.ShareRequest) (v1alpha1.ShareRequest, error) {
	if !divided(r) {
		return r, nil
	}
	gpus, err := a.inMode(who, r)
	if err != nil {
		return r, err
	}
	if r.Profile != "" {
		return r, a.knownProfile(gpus, r.Profile)
	}
	names, err := a.smallestProfiles(who, gpus, r)
	if err != nil {
		return r, err
	}
	r.Profile = names[0]
	if len(names) > 1 {
		a.mu.Lock()
		defer a.mu.Unlock()
		inventory, err := a.hostOf(a.granted(ctx, nil))
		if err != nil {
			return r, err
		}
		request := ofGPU(alloc.Request{Among: alloc.Names(strings.Join(r.Among, "|"))})
		r.Profile = names[max(0, inventory.Cheapest(request, names))]
	}
	// From here on the profile says what they are.
	r.Memory, r.Cores, r.Policy = v1alpha1.Percent(100), 0, ""
	r.Default()
	return r, nil
}

// inMode are the GPUs in MIG mode that a request may have.
func (a *Agent) inMode(who requester, r v1alpha1.ShareRequest) (in []backend.GPU, err error) {
	unread := ""
	for _, gpu := range a.gpus {
		if len(r.Among) > 0 && !slices.Contains(r.Among, gpu.UUID) {
			continue
		}
		d := a.divisions.get(gpu.UUID)
		if d.On {
			in = append(in, gpu)
		} else if d.unknown != "" {
			unread = fmt.Sprintf(": GPU %d is not known to be: %s", gpu.Index, d.unknown)
		}
	}
	switch {
	case len(in) > 0:
		return in, nil
	case !a.Divides():
		return nil, control.Errorf(control.CodeInvalid, "this agent makes no MIG instances")
	case len(r.Among) > 0:
		return nil, control.Errorf(control.CodeInvalid, "%s %s not in MIG mode: %sname other GPUs%s",
			a.namesOf(a.setOf(r.Among)), plural(len(r.Among), "is", "are"), a.turnOn(r.Among, ", or "), unread)
	}
	if on := a.turnOn(nil, ""); on != "" {
		return nil, control.Errorf(control.CodeInvalid, "no GPU of this machine is in MIG mode: %s%s", on, unread)
	}
	return nil, control.Errorf(control.CodeInvalid, "no GPU of this machine has MIG%s", who.withoutMIG(r))
}

// withoutMIG is the advice to leave out what asks for MIG, "" where nothing does.
func (w requester) withoutMIG(r v1alpha1.ShareRequest) string {
	var asked []string
	if r.Profile != "" {
		asked = append(asked, "--profile")
	}
	if !w.open {
		asked = append(asked, "--backend "+string(r.Backend))
	}
	if len(asked) == 0 {
		return ""
	}
	return ": leave out " + strings.Join(asked, " and ")
}

// turnOn is the advice to turn the MIG mode of one of some GPUs on, of any where none is named, with what follows it; ""
// where none has MIG.
func (a *Agent) turnOn(among []string, then string) string {
	for _, gpu := range a.gpus {
		if (len(among) == 0 || slices.Contains(among, gpu.UUID)) && a.dividableGPU(gpu) {
			return fmt.Sprintf("turn it on with `divvy gpu set %d --mig on`, as root%s", gpu.Index, then)
		}
	}
	return ""
}

func plural(n int, one, several string) string {
	if n == 1 {
		return one
	}
	return several
}

// knownProfile returns an error for a profile that none of some GPUs has.
func (a *Agent) knownProfile(gpus []backend.GPU, profile string) error {
	var has []string
	for _, gpu := range gpus {
		d := a.divisions.get(gpu.UUID)
		if _, ok := d.size(profile); ok {
			return nil
		}
		var names []string
		for _, s := range d.Sizes {
			names = append(names, s.Profile)
		}
		if text := fmt.Sprintf("GPU %d has %s", gpu.Index, strings.Join(names, ", ")); !slices.Contains(has, text) {
			has = append(has, text)
		}
	}
	return control.Errorf(control.CodeInvalid, "no GPU that may serve has the MIG profile %s (`divvy gpu ls --profiles` lists what there is): %s", profile, strings.Join(has, "; "))
}

// smallestProfiles are the equally small profiles of GPUs that have the memory and the cores of a request.
func (a *Agent) smallestProfiles(who requester, gpus []backend.GPU, r v1alpha1.ShareRequest) (names []string, err error) {
	var able []backend.Instance
	most := backend.Instance{}
	for _, gpu := range gpus {
		d := a.divisions.get(gpu.UUID)
		if len(d.Sizes) == 0 {
			continue
		}
		largest := slices.MaxFunc(d.Sizes, bySize)
		memory := r.Memory.Of(largest.Bytes)
		if who.unsized && r.Memory.IsAll() && r.Cores > 0 {
			memory = 0 // the cores alone say how large it is
		}
		for _, s := range d.Sizes {
			there := a.canHave(gpu, s.Profile)
			if there && s.Bytes >= memory && s.Multiprocessors*v1alpha1.MaxCores >= r.Cores*largest.Multiprocessors {
				able = append(able, s)
			}
			if there && bySize(s, most) > 0 {
				most = s
			}
		}
	}
	if len(able) == 0 {
		wanted := r.Memory.String()
		if r.Cores > 0 {
			wanted += fmt.Sprintf(" and %d %% of its SMs", r.Cores)
		}
		return nil, control.Errorf(control.CodeInvalid, "no MIG instance of a GPU that may serve has %s: %s", wanted, a.largest(most))
	}
	slices.SortStableFunc(able, bySize)
	return equals(able), nil
}

// largest says what the largest instance is that shares may have.
func (a *Agent) largest(most backend.Instance) string {
	switch {
	case most.Profile != "":
		return fmt.Sprintf("the largest is %s, with %s", most.Profile, amount(most.Bytes))
	case !a.makesInstances():
		return "there is none, and making one is root's, by a system agent"
	}
	return "there is none, and the administrator keeps the layout fixed"
}

// equals are the profiles of the first of some instances and of those that are as large, each once.
func equals(sorted []backend.Instance) (names []string) {
	for _, s := range sorted {
		if bySize(s, sorted[0]) == 0 && !slices.Contains(names, s.Profile) {
			names = append(names, s.Profile)
		}
	}
	return names
}

// bySize compares instances by how much of a GPU they take.
func bySize(x, y backend.Instance) int {
	return cmp.Or(cmp.Compare(x.Size, y.Size), cmp.Compare(x.Multiprocessors, y.Multiprocessors), cmp.Compare(x.Bytes, y.Bytes))
}

// canHave reports whether shares may be on an instance of a profile: one that is there, where none is made.
func (a *Agent) canHave(gpu backend.GPU, profile string) bool {
	form, _ := a.formGiven(gpu)
	d := a.divisions.get(gpu.UUID)
	return form.Layout != agentconfig.LayoutFixed && a.makesInstances() || slices.ContainsFunc(d.Parts, func(p backend.Part) bool { return p.Profile == profile })
}

// capacityFor is the least that a request can have of one GPU that may serve it, or of the instance that it asks for.
func (a *Agent) capacityFor(r v1alpha1.ShareRequest) uint64 {
	if r.Profile == "" {
		return a.smallest()
	}
	least := uint64(0)
	for _, gpu := range a.gpus {
		d := a.divisions.get(gpu.UUID)
		s, ok := d.size(r.Profile)
		bytes := s.Bytes
		if r.Backend != v1alpha1.BackendMIG {
			bytes = s.Capacity()
		}
		if ok && (least == 0 || bytes < least) {
			least = bytes
		}
	}
	return least
}

// formGiven is the form that a GPU is given by name, and by what. A GPU in MIG mode has form mig where nobody says another.
func (a *Agent) formGiven(gpu backend.GPU) (agentconfig.Form, control.Given) {
	form, by := a.config.Forms.Of(gpu)
	if by == control.GivenByDefault && a.inMIGMode(gpu.UUID) {
		return agentconfig.Form{}, control.GivenNone
	}
	return form, by
}

// neverInside returns an error for a request for a part of an instance that is too large for it.
func (a *Agent) neverInside(who requester) error {
	for i, gpu := range a.gpus {
		d := a.divisions.get(gpu.UUID)
		size, ok := d.size(who.request.Profile)
		if !ok {
			continue
		}
		parent := alloc.GPU{UUID: gpu.UUID, Index: a.gpus[i].Index, Capacity: gpu.Capacity(), ContextBytes: gpu.ContextBytes}
		if _, err := fitsInside(size, &parent, who.request); err != nil {
			return err
		}
		return nil
	}
	return nil
}
