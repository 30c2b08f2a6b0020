package preflight

import (
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/pci"
	"github.com/divvy-gpu/divvy/internal/vm/facts"
)

// What was made ready is handed over with all its functions, and nothing binds it once more.
func TestHand(t *testing.T) {
	companion := at(gpuAt)
	companion.Function = 1
	members := []pci.Address{at(gpuAt), companion}
	for name, c := range map[string]struct {
		h        Handover
		platform Platform
		want     []string
		never    string
	}{
		"QEMU":           {Handover{Members: members}, QEMU, []string{"vfio-pci,host=0000:01:00.0,bus=gpu0,addr=0x0.0x0,multifunction=on", "host=0000:01:00.1"}, "driver_override"},
		"libvirt":        {Handover{Members: members}, Libvirt, []string{"managed='no'", "bus='0x01'"}, "managed='yes'"},
		"mdev":           {Handover{Members: members[:1], Mediated: "11111111-2222-3333-4444-000000000001"}, QEMU, []string{"sysfsdev=/sys/bus/mdev/devices/11111111-2222-3333-4444-000000000001"}, "host="},
		"mdev, libvirt":  {Handover{Members: members[:1], Mediated: "11111111-2222-3333-4444-000000000001"}, Libvirt, []string{"type='mdev'", "uuid='11111111-2222-3333-4444-000000000001'"}, "type='pci'"},
		"a function":     {Handover{Members: members[:1], Path: "/sys/bus/pci/devices/0000:01:00.0"}, QEMU, []string{"sysfsdev=/sys/bus/pci/devices/0000:01:00.0"}, "host="},
		"one of a group": {Handover{Members: members[:1]}, QEMU, []string{"vfio-pci,host=0000:01:00.0,bus=gpu0"}, "0000:01:00.1"},
	} {
		handed := Hand(sound(), c.h, Question{For: c.platform, Memory: 1 << 30})
		var text strings.Builder
		for _, s := range handed.Needs {
			text.WriteString(s.Text)
		}
		for _, want := range c.want {
			if !strings.Contains(text.String(), want) {
				t.Errorf("%s: there is no %q in\n%s", name, want, text.String())
			}
		}
		if strings.Contains(text.String(), c.never) {
			t.Errorf("%s: there is %q in\n%s", name, c.never, text.String())
		}
		if flat := strings.ReplaceAll(strings.TrimSpace(text.String()), " \\\n", " "); c.platform == QEMU && strings.Join(handed.Arguments, " ") != flat {
			t.Errorf("%s: arguments %q differ from\n%s", name, handed.Arguments, flat)
		}
	}
}

// Too little memory that may be locked is told with the limit: QEMU says only that it cannot allocate memory.
func TestHandLocked(t *testing.T) {
	h := sound()
	h.Locked = 64 << 10
	handed := Hand(h, Handover{Members: []pci.Address{at(gpuAt)}}, Question{For: QEMU, Memory: 1 << 30})
	if len(handed.Warnings) != 1 || handed.Warnings[0].ID != "memlock" || !strings.Contains(handed.Warnings[0].Evidence, "64") {
		t.Errorf("%+v", handed.Warnings)
	}
}

// Of a user whose limit nobody knows that is told, and not the limit of who asks.
func TestHandLimitUnknown(t *testing.T) {
	for _, locked := range []int64{facts.Unlimited, 64 << 10} {
		h := sound()
		h.Locked = locked
		handed := Hand(h, Handover{Members: []pci.Address{at(gpuAt)}, LimitUnknown: "ada"}, Question{For: QEMU, Memory: 1 << 30})
		if len(handed.Warnings) != 1 || handed.Warnings[0].ID != "memlock" || handed.Warnings[0].Status != Unknown || !strings.Contains(handed.Warnings[0].Evidence, "ada may lock is not known") {
			t.Errorf("%+v", handed.Warnings)
		}
	}
}

// A device that nothing resets is told with the claim; one that somebody resets, and a vGPU, are not.
func TestHandUnreset(t *testing.T) {
	h := sound()
	find(h, gpuAt).Resets, find(h, audioAt).Group = nil, 9
	handed := Hand(h, Handover{Members: []pci.Address{at(gpuAt)}}, Question{For: QEMU, Memory: 1 << 30})
	if len(handed.Warnings) != 1 || handed.Warnings[0].ID != "reset" || !strings.Contains(handed.Warnings[0].Remedy, "restart the host") {
		t.Errorf("%+v", handed.Warnings)
	}
	for _, other := range []Handover{{Members: []pci.Address{at(diskAt)}}, {Members: []pci.Address{at(gpuAt)}, Mediated: "11111111-2222-3333-4444-000000000001"}} {
		if handed := Hand(h, other, Question{For: QEMU, Memory: 1 << 30}); len(handed.Warnings) != 0 {
			t.Errorf("%+v: %+v", other, handed.Warnings)
		}
	}
}
