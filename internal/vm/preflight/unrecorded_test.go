package preflight_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/hostfile"
	"github.com/divvy-gpu/divvy/internal/pci"
	"github.com/divvy-gpu/divvy/internal/vm/facts"
	"github.com/divvy-gpu/divvy/internal/vm/preflight"
)

func old(t *testing.T, name string) *facts.Host {
	t.Helper()
	file, err := os.Open("../../../testdata/hosts/" + name + ".host")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	recorded, err := hostfile.Parse(file, name)
	if err != nil {
		t.Fatal(err)
	}
	host, err := recorded.Facts()
	if err != nil {
		t.Fatal(err)
	}
	return host
}

// Of what a recording never had nothing is said but that: no finding, no all-clear, no form, and no command.
func TestRecordingOfTopologyAlone(t *testing.T) {
	for _, name := range []string{"a800x8", "h100x8", "vm", "vmd"} {
		for _, platform := range preflight.Platforms {
			host := old(t, name)
			devices := preflight.GPUs(host)
			r := preflight.NewReport(host, devices, preflight.Question{For: platform, Memory: 16 << 30}, "test")
			if r.Ready || len(devices) == 0 || len(r.Needs) > 0 || len(r.Notes) != len(devices) {
				t.Errorf("%s, %s: ready %v with %d devices, needs %+v, notes %q", name, platform, r.Ready, len(devices), r.Needs, r.Notes)
			}
			said := map[preflight.ID]int{}
			for _, f := range r.Findings {
				said[f.ID]++
				if f.Status != preflight.Unknown || !strings.Contains(f.Evidence, "not recorded") && f.ID != "unseen" {
					t.Errorf("%s, %s: %+v", name, platform, f)
				}
			}
			if said["iommu"] != 1 || said["unseen"] != 1 || said["group"] != len(devices) {
				t.Errorf("%s, %s: %v", name, platform, said)
			}
			for _, d := range r.Devices {
				for _, f := range d.Forms {
					if f.Offered || !strings.Contains(f.Why, "not recorded") {
						t.Errorf("%s, %s: %+v", name, platform, f)
					}
				}
			}
		}
	}
	host := old(t, "h100x8")
	host.Devices = append(host.Devices, facts.Device{Device: pci.Device{Class: 0x068000, Vendor: facts.NVIDIA}})
	found := preflight.Judge(host, preflight.GPUs(host)[:1], preflight.Question{For: preflight.QEMU})
	if !slices.ContainsFunc(found, func(f preflight.Finding) bool { return f.ID == "nvswitch" && f.Status == preflight.Unknown }) {
		t.Errorf("with an NVSwitch: %+v", found)
	}
	if host := old(t, "vm/a100"); host.TopologyOnly {
		t.Error("a later recording counts as one of topology alone")
	}
}

// A recording that was made without root's rights gives no all-clear of who holds the device.
func TestRecordingWithoutRights(t *testing.T) {
	text, err := os.ReadFile("../../../testdata/hosts/vm/a100.host")
	if err != nil {
		t.Fatal(err)
	}
	for caps, want := range map[string]preflight.Status{"000001ffffffffff": preflight.OK, "0000000000000000": preflight.Unknown} {
		recorded, err := hostfile.Parse(strings.NewReader(strings.ReplaceAll(string(text), "000001ffffffffff", caps)), "a100")
		if err != nil {
			t.Fatal(err)
		}
		host, err := recorded.Facts()
		if err != nil {
			t.Fatal(err)
		}
		var said []preflight.Finding
		for _, f := range preflight.Judge(host, preflight.GPUs(host)[:1], preflight.Question{For: preflight.QEMU}) {
			if f.ID == "holder" || f.ID == "unseen" {
				said = append(said, f)
			}
		}
		if len(said) != 1 || said[0].Status != want {
			t.Errorf("%s: %+v, want one that is %s", caps, said, want)
		}
	}
}
