package cli

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/cli/program"
	"github.com/divvy-gpu/divvy/internal/vm/preflight"
)

func TestPreflightOfAModelledHost(t *testing.T) {
	for name, test := range map[string]struct {
		args   []string
		status int
		want   string
	}{
		"sound":       {[]string{"a100", "--for", "qemu"}, 0, "Arguments of QEMU"},
		"a claim":     {[]string{"a100", "--for", "qemu"}, 0, "\n    divvy vm claim --pci 0000:3d:00.0 --form passthrough --user USER\n"},
		"an old one":  {[]string{"../h100x8", "0", "--for", "qemu"}, program.ExitFailure, "unknown  iommu              unknown, not recorded"},
		"by index":    {[]string{"a100", "1", "--for", "libvirt"}, 0, "bus='0x3e'"},
		"by UUID":     {[]string{"a100", "GPU-00000001-a100-4000-8000-000000000001", "--for", "xen"}, 0, "pci = [ '0000:3e:00.0' ]"},
		"a NIC":       {[]string{"a100", "0000:18:00.0", "--for", "qemu"}, program.ExitFailure, "default route leads through ens4f0np0"},
		"fault first": {[]string{"held", "0", "--for", "qemu"}, program.ExitFailure, "fail     holder             process 2211"},
		"memory":      {[]string{"geforce", "0", "--for", "qemu", "--memory", "128Gi"}, program.ExitFailure, "fail     memory "},
		"AMD":         {[]string{"mi210", "--for", "openstack"}, 0, `"vendor_id": "1002", "product_id": "740f", "device_type": "type-PF"`},
	} {
		t.Run(name, func(t *testing.T) {
			args := append([]string{"vm", "preflight", "--host", filepath.Join(hosts, "vm", test.args[0]+".host")}, test.args[1:]...)
			status, out, errOut := call(t, args...)
			if status != test.status || !strings.Contains(out, test.want) || errOut != "" {
				t.Errorf("status %d, want %d and %q:\n%s%s", status, test.status, test.want, out, errOut)
			}
		})
	}
}

// Of a card that the host uses people read why nothing is printed for it.
func TestPreflightLeavesOut(t *testing.T) {
	_, out, _ := call(t, "vm", "preflight", "--host", filepath.Join(hosts, "vm", "a100.host"), "0000:18:00.0", "--for", "qemu")
	if !strings.Contains(out, "\nLeft out:\n    nothing that takes 0000:18:00.0 from its driver, because of group.used: ") || strings.Contains(out, "unbind") || strings.Contains(out, "Arguments of QEMU") {
		t.Errorf("got\n%s", out)
	}
}

// On the machine that runs the test nothing is changed, and whatever it has is told in a report that programs can read.
func TestPreflightHere(t *testing.T) {
	status, out, errOut := call(t, "vm", "preflight", "--for", "qemu", "-o", "json")
	var report preflight.Report
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		t.Fatalf("%v: %s%s", err, out, errOut)
	}
	if report.Version != preflight.ReportVersion || report.Ready != (status == 0) || len(report.Findings) == 0 || len(report.Unchecked) == 0 {
		t.Errorf("status %d: %s", status, out)
	}
}

func TestPreflightWrongUsage(t *testing.T) {
	sound := filepath.Join(hosts, "vm", "a100.host")
	for name, test := range map[string]struct {
		args   []string
		status int
		want   string
	}{
		"no platform":  {nil, program.ExitUsage, "give --for: qemu, libvirt"},
		"no such":      {[]string{"--for", "hyperv"}, program.ExitUsage, "or esxi"},
		"two GPUs":     {[]string{"0", "1", "--for", "qemu"}, program.ExitUsage, "at most one GPU"},
		"a percentage": {[]string{"--for", "qemu", "--memory", "50%"}, program.ExitUsage, "give an amount of memory such as 64Gi or 512Mi"},
		"no index":     {[]string{"2", "--for", "qemu", "--host", sound}, program.ExitFailure, "give an index below 2"},
		"AMD's alone":  {[]string{"0", "--for", "qemu", "--host", filepath.Join(hosts, "vm", "mi210.host")}, program.ExitFailure, "none here is NVIDIA's"},
		"no address":   {[]string{"0000:ff:00.0", "--for", "qemu", "--host", sound}, program.ExitFailure, "no PCI device has address 0000:ff:00.0"},
		"hostile name": {[]string{"a\x1b[31m\nb", "--for", "qemu", "--host", sound}, program.ExitFailure, `a\x1b[31m\nb`},
		"no file":      {[]string{"--for", "qemu", "--host", "/nowhere.host"}, program.ExitFailure, "/nowhere.host"},
	} {
		t.Run(name, func(t *testing.T) {
			status, _, errOut := call(t, append([]string{"vm", "preflight"}, test.args...)...)
			if status != test.status || !strings.Contains(errOut, test.want) {
				t.Errorf("got %d, %s; want %d and %q", status, errOut, test.status, test.want)
			}
		})
	}
}

// A report with names that the host made up is one line each on a terminal.
func TestPreflightPrintsForeignNames(t *testing.T) {
	var w strings.Builder
	writePreflight(&w, preflight.Report{
		Findings: []preflight.Finding{{ID: "holder", Status: preflight.Fail, Evidence: "process 1 (a\x1b[2J\nok       kvm) has it"}},
		Devices:  []preflight.Device{{Model: "A\nB"}},
	})
	if strings.ContainsRune(w.String(), 0x1b) || strings.Contains(w.String(), "\nok ") || strings.Contains(w.String(), "\nB") {
		t.Errorf("%q", w.String())
	}
}

// A finding without a remedy or a command, and a device without a name, leave no empty line.
func TestPreflightText(t *testing.T) {
	group := 7
	var w strings.Builder
	writePreflight(&w, preflight.Report{
		Devices: []preflight.Device{{Vendor: 0x10de, ID: 0x20b5}, {Vendor: 0x10de, ID: 0x20b5, Model: "A100", Group: &group}},
		Findings: []preflight.Finding{
			{ID: "kvm", Status: preflight.Warn, Evidence: "no", Remedy: "load it", Command: "modprobe kvm"}, {ID: "reset", Status: preflight.OK, Evidence: "flr"},
		},
		Needs:     []preflight.Snippet{{Title: "Say", Text: "one\ntwo\n"}},
		Unchecked: []string{"all else"},
	})
	want := `0000:00:00.0  10de:20b5
0000:00:00.0  10de:20b5  A100  IOMMU group 7

warn     kvm                no
                          → load it
                          $ modprobe kvm
ok       reset              flr

Say:
    one
    two

Not checked:
    all else
`
	if got := w.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	w.Reset()
	types := []preflight.VGPUType{{ID: "nvidia-689", Name: "GRID A100D-4C", Free: 4, Most: 20}, {ID: strings.Repeat("9", 99), Name: strings.Repeat("A\x1b", 99), Free: 1}}
	writeTypes(&w, types)
	lines := strings.Split(w.String(), "\n")
	if lines[0] != "    nvidia-689     GRID A100D-4C                        4 left of 20" || len([]rune(lines[1])) > 80 || strings.Contains(w.String(), "\x1b") {
		t.Errorf("types are\n%s", w.String())
	}
	w.Reset()
	writeTypes(&w, slices.Repeat(types[:1], mostTypes+3))
	if got := w.String(); strings.Count(got, "\n") != mostTypes+1 || !strings.HasSuffix(got, "    and 3 more types: -o json has all\n") {
		t.Errorf("many types are\n%s", got)
	}
	w.Reset()
	writePreflight(&w, preflight.Report{})
	if got := w.String(); got != "\nNot checked:\n" {
		t.Errorf("of nothing: %q", got)
	}
}
