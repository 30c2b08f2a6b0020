package agent

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/alloc"
	"github.com/divvy-gpu/divvy/internal/backend"
)

// given reports whether the administrator says which backend the shares of each GPU have.
func (a *Agent) given() bool {
	return a.config.Forms.any()
}

// serves reports whether shares of a backend may ever be on a GPU, as parts of a MIG instance of a profile if that is not
// empty. A GPU in MIG mode serves them alone.
func (a *Agent) serves(gpu backend.GPU, b v1alpha1.Backend, profile string) bool {
	form, by := a.formGiven(gpu)
	d := a.divisions.get(gpu.UUID)
	if b == v1alpha1.BackendMIG || profile != "" {
		_, has := d.size(profile)
		return d.On && (has || profile == "") && (by == control.GivenNone || form.Backend == v1alpha1.BackendMIG)
	}
	return !d.On && (by == control.GivenNone || cmp.Or(b.Form(), v1alpha1.BackendSlice) == form.Backend)
}

// whyNotServed says why a request's shares may not be on a GPU.
func (a *Agent) whyNotServed(gpu backend.GPU, r v1alpha1.ShareRequest) string {
	d := a.divisions.get(gpu.UUID)
	switch _, has := d.size(r.Profile); {
	case divided(r) && !d.On:
		return "it is not in MIG mode"
	case r.Profile != "" && !has:
		return "it has no MIG profile " + r.Profile
	case d.On && !divided(r):
		return "it is in MIG mode, where every share is in a MIG instance"
	}
	return "the administrator gave it another backend"
}

// form adds to a GPU, whose tenants are known, the backend that the administrator gave it.
// Shares of another one stay, but none joins them.
func (a *Agent) form(gpu backend.GPU, g *alloc.GPU) {
	form, by := a.formGiven(gpu)
	want := string(form.Backend)
	misgiven := a.misgiven(gpu)
	switch {
	case by == control.GivenNone:
	case misgiven != "":
		g.Fault = cmp.Or(g.Fault, misgiven)
	case g.Form == "":
		g.Form = want
	case g.Form != want:
		g.Fault = cmp.Or(g.Fault, fmt.Sprintf("the administrator gave it backend %s, and its shares of backend %s have to end first", want, g.Form))
	}
	if form.Replicas > 0 && g.Tenants >= form.Replicas {
		g.Fault = cmp.Or(g.Fault, fmt.Sprintf("the administrator allows %d shares on it", form.Replicas))
	}
	if want != "" && want == g.Form && a.isFormer(form.Backend) && a.formings[gpu.UUID].fault != "" {
		g.Fault = cmp.Or(g.Fault, a.formings[gpu.UUID].fault)
	}
}

// misgiven says that the form which a GPU is given does not fit its MIG mode, "" where it does.
func (a *Agent) misgiven(gpu backend.GPU) string {
	form, by := a.formGiven(gpu)
	switch inMode := a.inMIGMode(gpu.UUID); {
	case by == control.GivenNone || inMode == (form.Backend == v1alpha1.BackendMIG):
		return ""
	case inMode:
		return fmt.Sprintf("it is in MIG mode, and the administrator gave it backend %s: give it backend mig, or turn the mode off with `divvy gpu set %d --mig off`", form.Backend, gpu.Index)
	}
	return fmt.Sprintf("the administrator gave it backend mig, and it is not in MIG mode: turn that on with `divvy gpu set %d --mig on`", gpu.Index)
}

// otherBackend returns an error for a request of a backend that is not here, or that the administrator gave too few
// GPUs: to wait would be in vain.
func (a *Agent) otherBackend(r v1alpha1.ShareRequest) error {
	if !a.config.Backends.Has(r.Backend) || divided(r) && !a.Divides() {
		return control.Errorf(control.CodeInvalid, "this agent makes no shares of backend %s", r.Backend)
	}
	var able, unable gpuSet
	for i, gpu := range a.gpus {
		switch {
		case len(r.Among) > 0 && !a.setOf(r.Among).has(1<<i):
		case a.serves(gpu, r.Backend, r.Profile), a.inMIGMode(gpu.UUID) != divided(r): // of which the allocator tells more
			able |= 1 << i
		default:
			unable |= 1 << i
		}
	}
	if unable == 0 || bits.OnesCount64(uint64(able)) >= r.GPUs {
		return nil
	}
	first, _ := a.config.Forms.Of(a.gpus[bits.TrailingZeros64(uint64(unable))])
	another := first.Backend
	for i, gpu := range a.gpus {
		if form, _ := a.config.Forms.Of(gpu); form.Backend != another {
			unable &^= 1 << i
		}
	}
	return control.Errorf(control.CodeInvalid, "the administrator gave %s backend %s, and the request is for backend %s: add --backend %[2]s, or name other GPUs",
		a.namesOf(unable), another, r.Backend)
}

// replicas are the most that a GPU is given on which a request could be, 0 where one is given none.
func (a *Agent) replicas(r v1alpha1.ShareRequest) (most int) {
	named, err := a.resolve(r.Among)
	if err != nil {
		return 0
	}
	for _, gpu := range a.gpus {
		if len(named) > 0 && !slices.Contains(named, gpu.UUID) || !a.serves(gpu, r.Backend, r.Profile) {
			continue
		}
		form, _ := a.config.Forms.Of(gpu)
		if form.Replicas == 0 {
			return 0
		}
		most = max(most, form.Replicas)
	}
	return most
}
