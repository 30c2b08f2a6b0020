package preflight

import (
	"testing"

	"github.com/divvy-gpu/divvy/internal/vm/facts"
)

// A command is told for what a known program of the host has open, and none for what a container's process calls itself.
func TestCommandsAreForTheHostsPrograms(t *testing.T) {
	for _, c := range []struct {
		holder facts.Holder
		want   string
	}{
		{facts.Holder{PID: 9, Name: "Xorg", Node: "nvidia0"}, "systemctl isolate multi-user.target"},
		{facts.Holder{PID: 9, Name: "Xorg", Node: "nvidia0", Container: "abcdef012345"}, "fuser -v /dev/nvidia0"},
		{facts.Holder{PID: 9, Name: "Xorg-miner", Node: "nvidia0"}, "fuser -v /dev/nvidia0"},
	} {
		h := &facts.Host{Devices: []facts.Device{{Group: facts.NoGroup, Holders: []facts.Holder{c.holder}}}}
		found := look{host: h, device: h.Devices[0], ask: Question{For: QEMU}}.holders()
		if len(found) != 1 || found[0].Command != c.want {
			t.Errorf("%+v: %+v, want %q", c.holder, found, c.want)
		}
	}
}
