package preflight

import (
	"fmt"
	"slices"
	"strings"

	"github.com/divvy-gpu/divvy/internal/vm/facts"
)

// onIt names what is on a device that the host or its people use, "" for nothing.
func onIt(d facts.Device) string {
	const most = 5
	var parts []string
	if len(d.Uses) > 0 {
		parts = append(parts, uses(d.Uses))
	}
	if len(d.Attached) > 0 {
		parts = append(parts, strings.Join(d.Attached[:min(len(d.Attached), most)], ", ")+" plugged into it")
	}
	for _, h := range d.Holders[:min(len(d.Holders), most)] {
		parts = append(parts, holding(h))
	}
	return strings.Join(parts, ", ")
}

// busy divides devices: those that are in use, and what is on them.
func busy(all []facts.Device) (free []facts.Device, inUse []string) {
	for _, d := range all {
		if what := onIt(d); what != "" {
			inUse = append(inUse, d.Address.String()+" has "+what)
		} else {
			free = append(free, d)
		}
	}
	return free, inUse
}

// companions looks at the other functions of a card. None is advised to go that somebody uses.
func (l look) companions() []Finding {
	d := l.device
	with, without := l.beside()
	show := fmt.Sprintf("lspci -k -s %04x:%02x:%02x", d.Address.Domain, d.Address.Bus, d.Address.Device)
	if len(without) > 0 {
		evidence, remedy := "functions of the same card are in other groups: "+named(without), ""
		free, inUse := busy(without)
		if len(inUse) > 0 {
			evidence += "; " + strings.Join(inUse, "; ")
			remedy = "leave what is in use with the host, or move that to another port first: a reset of the card takes it away for a moment"
		}
		switch {
		case len(inUse) == 0:
			remedy = "give them as well, else the host's drivers stay on a part of the card, which a reset takes away from them"
		case len(free) > 0:
			remedy += "; give the others as well: " + named(free)
		}
		return one("companion", Warn, evidence, remedy, show)
	}
	if len(with) == 0 {
		return nil
	}
	for _, other := range with { // what the host uses, and who holds it, other checks tell
		if len(other.Attached) > 0 {
			return one("companion", Warn, fmt.Sprintf("%s goes along, and has %s plugged into it", describe(other), strings.Join(other.Attached[:min(len(other.Attached), 5)], ", ")),
				"move that to another port first: it goes to the guest with the card", show)
		}
	}
	return fine("companion", "functions of the same card go along: "+named(with))
}

// beside are the other functions of the card of a physical one: those that go with it anyway, and those that do not.
func (l look) beside() (with, without []facts.Device) {
	d := l.device
	for _, other := range l.host.Devices {
		switch {
		case other.Address == d.Address || !facts.SameSlot(other.Address, d.Address) || other.Virtual || d.Virtual || other.IsBridge():
		case other.Group == d.Group || slices.Contains(forGuests, other.Driver):
			with = append(with, other)
		default:
			without = append(without, other)
		}
	}
	return with, without
}
