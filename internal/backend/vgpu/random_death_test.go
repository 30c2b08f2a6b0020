package vgpu_test

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/divvy-gpu/divvy/test/vm/guest"
)

// ask tells the agent something, which may kill it, the process that writes, or both, and has the next agent put right what it left.
// Between two agents others often make just what the first was about to make, in the same place.
func (w *world) ask(o order) (reply, bool) {
	write := 3 * (w.r.IntN(4) / 3) // the first one more often: steps of others follow
	switch w.r.IntN(8) {
	case 0:
		o.Die = 1 + w.r.IntN(6)
	case 1, 2:
		o.Fatal = -1 - write - w.r.IntN(3)
	case 3:
		o.Fatal = 1 + write + w.r.IntN(3)
	}
	o.Blind = w.r.IntN(2) == 0
	place, kind := w.claims[o.Owner], o.Type
	r, lives := w.agent.ask(o)
	w.died(r)
	if lives {
		w.heard(r)
		return r, true
	}
	w.unsure[o.Owner] = true
	w.kills++
	for lives = false; !lives; {
		switch n := w.r.IntN(8); {
		case n == 0:
			w.intrude(w.sites[w.r.IntN(len(w.sites))])
		case n == 1:
		case place != "":
			w.imitate(place)
		default:
			w.forestall(o.GPU, kind)
		}
		w.judge(false)
		die, fatal := 0, 0
		switch w.r.IntN(6) {
		case 0:
			die = 1 + w.r.IntN(6)
		case 1:
			fatal = -1 - w.r.IntN(3)
		}
		if r, lives = w.agent.start(die, fatal); !lives {
			w.kills++
		}
		w.died(r)
	}
	w.heard(r)
	for owner := range w.unsure {
		h, has := r.Has[owner]
		w.unsure[owner] = has && !h.Whole // it is put back once it is not open
		if has && h.Whole || !has {
			delete(w.unsure, owner)
		}
	}
	return r, false
}

// died counts the process that writes, where it was killed.
func (w *world) died(r reply) {
	if r.killed {
		w.writers++
	}
}

// imitate gives a function, of which an agent was about to take the type away, the same type again, if it has none.
func (w *world) imitate(place string) {
	kind, _, _ := strings.Cut(w.made[place], " ")
	for _, s := range w.sites {
		if f := guest.Function(place); slices.Contains(s.functions, f) && w.give(s, f, kind) {
			w.aimed++
		}
	}
}

// forestall gives the function that an agent would have taken first the type that it would have given.
func (w *world) forestall(gpu, kind string) {
	for _, s := range w.sites {
		if string(s.gpu) != gpu {
			continue
		}
		for _, f := range s.functions {
			if w.give(s, f, typeNumbers[kind]) {
				w.aimed++
				return
			}
		}
	}
}

// typeNumbers are the types of functions, by what is asked for.
var typeNumbers = map[string]string{"471": "471", "A100-10C": "471", "472": "472", backed: "475"}

// give gives a function without a type one, as shells and libvirt do, which replace what the file has.
func (w *world) give(s site, f guest.Function, kind string) bool {
	const current, instance = "nvidia/current_vgpu_type", "nvidia/gpu_instance_id"
	w.numbers++
	if f.Read(current) != "0" || s.backed && f.Write(instance, fmt.Sprint(32+w.numbers%8)) != nil || os.WriteFile(f.Path(current), []byte(kind), 0o600) != nil {
		return false
	}
	w.foreign[string(f)] = kind + " " + f.Read(instance)
	return true
}

// intrude makes a vGPU as others do.
func (w *world) intrude(s site) {
	kind := s.foreign[w.r.IntN(len(s.foreign))]
	if len(s.functions) > 0 {
		w.give(s, s.functions[w.r.IntN(len(s.functions))], kind)
		return
	}
	w.numbers++
	uuid := fmt.Sprintf("99999999-2222-3333-4444-%012d", w.numbers)
	if s.gpu.Write("mdev_supported_types/"+kind+"/create", uuid) == nil {
		w.foreign[uuid] = kind
	}
}
