package facts

import (
	"testing"

	"github.com/divvy-gpu/divvy/internal/pci"
)

// Who resets a function depends on its own ways, and on what else is given of its bus.
func TestResetOf(t *testing.T) {
	at := func(function uint8) pci.Address { return pci.Address{Bus: 1, Function: function} }
	function := func(number uint8, known bool, ways ...string) Device {
		d := Device{ResetKnown: known, Resets: ways}
		d.Address, d.Bridges = at(number), []pci.Address{{Device: 1}}
		return d
	}
	virtual, root, rootBus := function(0, true), function(0, true), function(0, true, "bus")
	virtual.Virtual, root.Bridges, rootBus.Bridges = true, nil, nil
	for name, c := range map[string]struct {
		d      Device
		beside []Device
		given  []pci.Address
		want   Reset
	}{
		"by itself":                     {function(0, true, "bus", "flr"), []Device{function(1, true)}, nil, ResetAlone},
		"the whole card goes":           {function(0, true), []Device{function(1, true)}, []pci.Address{at(1)}, ResetTogether},
		"a part of the card stays":      {function(0, true), []Device{function(1, true), function(2, true)}, []pci.Address{at(1)}, ResetNever},
		"the only one below its port":   {function(0, true, "bus"), nil, nil, ResetTogether},
		"the only one, and it does not": {function(0, true), nil, nil, ResetNever},
		"below no port":                 {root, []Device{function(1, true)}, []pci.Address{at(1)}, ResetNever},
		"by the bus below no port":      {rootBus, nil, nil, ResetTogether},
		"a virtual function":            {virtual, nil, nil, ResetNever},
		"nobody knows":                  {function(0, false), nil, nil, ResetUnknown},
	} {
		h := &Host{Devices: append([]Device{c.d, {Device: pci.Device{Address: pci.Address{Bus: 2}}}}, c.beside...)}
		if got := h.ResetOf(c.d, c.given); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}
