// Package forms decides which form a share gets: by which backend it is made. It is pure: what each backend could do for
// the request on each GPU goes in, and a verdict with its reason for every backend comes out.
package forms

import (
	"fmt"
	"slices"
	"strings"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// forMachines is why no share has a backend that gives devices to virtual machines.
const forMachines = "it gives devices to virtual machines, and no program of this machine can use them: `divvy vm claim`"

// All are the backends about which there is a verdict, the preferred first. Backend slice gives exact sizes and all ways
// to divide time, and it changes nothing about a GPU. With timeslice a neighbour's fault ends nobody else, with mps it
// does. Those that need certain hardware and have few sizes come after them, then those for virtual machines. Backend remote
// comes last and is never chosen: it cannot serve every program.
func All() []v1alpha1.Backend {
	return []v1alpha1.Backend{
		v1alpha1.BackendSlice, v1alpha1.BackendTimeslice, v1alpha1.BackendMPS, v1alpha1.BackendMIG,
		v1alpha1.BackendVGPU, v1alpha1.BackendVF, v1alpha1.BackendPassthrough, v1alpha1.BackendRemote,
	}
}

// Preferred is All for a request that says what is to be isolated. Where that is nothing, density counts: by MPS the
// programs run side by side, so that many small ones fill a GPU.
func Preferred(isolate v1alpha1.Isolation) []v1alpha1.Backend {
	all := All()
	if isolate != v1alpha1.IsolateNone {
		return all
	}
	at := slices.Index(all, v1alpha1.BackendMPS)
	return slices.Insert(slices.Delete(all, at, at+1), 0, v1alpha1.BackendMPS)
}

// State says what a backend can do for a request.
type State string

// The states.
const (
	// Fits: the share could be made now.
	Fits State = "fits"
	// Waits: it could be made once others have ended.
	Waits State = "waits"
	// Never: it cannot be made, however long anybody waits.
	Never State = "never"
	// Absent: the machine has nothing of this backend.
	Absent State = "absent"
)

// GPU is what a backend can do for a request on one GPU. State is never Absent.
type GPU struct {
	Index int    `json:"index"`
	UUID  string `json:"uuid"`
	State State  `json:"state"`
	// Reason is empty where the share fits.
	Reason string `json:"reason,omitempty"`
}

// Found is what there is of a backend for a request. Of the three reasons the first that is not empty counts.
type Found struct {
	Backend v1alpha1.Backend
	// Absent says why there is nothing of it, Never why the request cannot have it, and Wait why not now.
	Absent, Never, Wait string
	GPUs                []GPU
}

// state is that of the request as a whole.
func (f *Found) state() (State, string) {
	switch {
	case f.Absent != "":
		return Absent, f.Absent
	case f.Never != "":
		return Never, f.Never
	case f.Wait != "":
		return Waits, f.Wait
	}
	return Fits, ""
}

// Verdict is the answer about one backend.
type Verdict struct {
	Backend v1alpha1.Backend `json:"backend"`
	State   State            `json:"state"`
	// Chosen is the one whose share is made, or is waited for.
	Chosen bool   `json:"chosen,omitempty"`
	Reason string `json:"reason"`
	GPUs   []GPU  `json:"gpus,omitempty"`
}

// Judge answers for every backend in the order of Preferred, also for those of which nothing was found. wanted is the backend that the
// request names, or [v1alpha1.BackendAuto]: then the most preferred one is chosen that fits, else the most preferred one
// that would after a wait. None is chosen where no backend can ever serve.
func Judge(wanted v1alpha1.Backend, isolate v1alpha1.Isolation, found []Found) []Verdict {
	var all []Verdict
	for _, b := range Preferred(isolate) {
		f := Found{Backend: b, Absent: "this agent makes no shares of this backend"}
		if b.ForMachines() {
			f = Found{Backend: b, Never: forMachines}
		}
		for _, one := range found {
			if one.Backend == b {
				f = one
			}
		}
		v := Verdict{Backend: b, GPUs: f.GPUs}
		v.State, v.Reason = f.state()
		all = append(all, v)
	}
	at := choose(wanted, all)
	for i := range all {
		v := &all[i]
		switch {
		case i == at:
			v.Chosen = true
			v.Reason = because(wanted, v)
		case v.State == Fits && v.Backend == v1alpha1.BackendRemote && wanted == v1alpha1.BackendAuto:
			v.Reason = "it would fit, and is for those who ask for it: it cannot serve every program"
		case v.State == Fits && at >= 0 && wanted == v1alpha1.BackendAuto:
			v.Reason = fmt.Sprintf("it would fit, and %s is preferred", all[at].Backend)
		case v.State == Fits:
			v.Reason = fmt.Sprintf("it would fit, and the request is for %s", wanted)
		}
	}
	return all
}

// choose is the position of the verdict whose backend is chosen, or -1.
func choose(wanted v1alpha1.Backend, all []Verdict) int {
	for _, state := range []State{Fits, Waits} {
		for i, v := range all {
			if v.State == state && (wanted == v.Backend || wanted == v1alpha1.BackendAuto && v.Backend != v1alpha1.BackendRemote) {
				return i
			}
		}
	}
	return -1
}

// Gives says in a few words what the share gets by a backend, and what it does not isolate.
func Gives(b v1alpha1.Backend) string {
	switch b {
	case v1alpha1.BackendSlice:
		return "exact memory, cores, weights and classes; memory bandwidth is not isolated"
	case v1alpha1.BackendTimeslice:
		return "exact memory, equal time for every process; memory bandwidth is not isolated"
	case v1alpha1.BackendMPS:
		return "exact memory, a ceiling on SMs, processes side by side; neither faults nor memory bandwidth are isolated"
	case v1alpha1.BackendRemote:
		return "exact memory, cores, weights and classes, and a program that sees neither the driver nor a device; memory bandwidth is not isolated"
	case v1alpha1.BackendMIG:
		return "an instance of its own, whose memory, bandwidth, SMs and faults hardware keeps apart; few sizes"
	}
	return "a part that hardware keeps apart"
}

// because is the reason of the chosen verdict.
func because(wanted v1alpha1.Backend, v *Verdict) string {
	text := Gives(v.Backend)
	if wanted == v1alpha1.BackendAuto && v.State == Fits {
		text = "preferred of those that fit: " + text
	}
	if v.State == Waits {
		text = v.Reason + "; then: " + text
	}
	return text
}

// Chosen is the verdict whose backend is chosen; ok is false where there is none.
func Chosen(all []Verdict) (v Verdict, ok bool) {
	for _, one := range all {
		if one.Chosen {
			return one, true
		}
	}
	return Verdict{}, false
}

// Refusal says why no backend was chosen: what keeps each from it that is there, and which are not there.
func Refusal(wanted v1alpha1.Backend, isolate v1alpha1.Isolation, all []Verdict) string {
	var reasons, absent []string
	of := map[string][]string{}
	for _, v := range all {
		switch {
		case wanted != v1alpha1.BackendAuto && v.Backend != wanted:
		case wanted == v1alpha1.BackendAuto && (v.Backend.ForMachines() || v.Backend == v1alpha1.BackendRemote): // nobody who leaves it open means these
		case v.State == Absent:
			absent = append(absent, string(v.Backend))
		case !v.Chosen:
			// What the text says already is left out, so that the reasons of several backends are often the same.
			reason := strings.TrimPrefix(v.Reason, fmt.Sprintf("backend %s does not isolate %s: ", v.Backend, isolate))
			if !slices.Contains(reasons, reason) {
				reasons = append(reasons, reason)
			}
			of[reason] = append(of[reason], string(v.Backend))
		}
	}
	text := "no backend on this machine can serve the request"
	if isolate != "" {
		text = fmt.Sprintf("no backend on this machine can serve the request with --isolate %s", isolate)
	}
	for _, reason := range reasons {
		text += fmt.Sprintf("; %s: %s", strings.Join(of[reason], ", "), reason)
	}
	if len(absent) > 0 {
		text += "; not here: " + strings.Join(absent, ", ")
	}
	return text
}
