package cli

import (
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/cli/program"
	"github.com/divvy-gpu/divvy/internal/pci"
	"github.com/divvy-gpu/divvy/internal/vm/claims"
	"github.com/divvy-gpu/divvy/internal/vm/facts"
)

func TestFunctionsWrongUsage(t *testing.T) {
	for args, want := range map[string]string{
		"":                 "one GPU",
		"0 1 --count 2":    "one GPU",
		"0":                "give --count",
		"0 --count some":   "give --count",
		"0 --count -1":     "give --count",
		"0 --count 2.5":    "give --count",
		"0 --count=-1 --x": "unknown flag",
	} {
		status, out, errOut := call(t, append([]string{"vm", "functions"}, strings.Fields(args)...)...)
		if status != program.ExitUsage || !strings.Contains(errOut, want) || out != "" {
			t.Errorf("%q: status %d, %s%s, want %q", args, status, out, errOut, want)
		}
	}
}

func TestFunctionsAsked(t *testing.T) {
	at := pci.Address{Bus: 0xc1}
	for args, want := range map[[2]string]control.SetFunctionsParams{
		{"0", "4"}:              {GPU: "0", Count: 4},
		{"GPU-1", "all"}:        {GPU: "GPU-1", Count: pci.AllFunctions},
		{"0000:C1:00.0", "0"}:   {PCI: &at},
		{"0000:c1:00.0", "all"}: {PCI: &at, Count: pci.AllFunctions},
	} {
		got, err := functionsAsked(args[0], args[1])
		if err != nil || got.GPU != want.GPU || got.Count != want.Count || (got.PCI == nil) != (want.PCI == nil) || got.PCI != nil && *got.PCI != at {
			t.Errorf("%v: %+v, %v, want %+v", args, got, err, want)
		}
	}
}

// People read which functions there are, whether their driver is right, and how they go away again.
func TestWriteFunctions(t *testing.T) {
	at := pci.Address{Bus: 0xc1}
	host := &facts.Host{}
	add := func(function uint8, driver string, group int) {
		d := facts.Device{Driver: driver, Group: group, Parent: at}
		d.Address, d.Virtual = pci.Address{Bus: 0xc1, Function: function}, function > 0
		host.Devices = append(host.Devices, d)
	}
	add(0, "nvidia", 1)
	host.Devices[0].VFsTotal = 16
	add(1, "nvidia", 5)
	add(2, "", -1)
	var w strings.Builder
	writeFunctions(&w, host, functionsNow(host, control.Functions{Device: at, Count: 2, Phase: claims.Held}))
	want := `0000:c1:00.0 has 2 virtual functions of 16:
    0000:c1:00.1  driver nvidia, IOMMU group 5
    0000:c1:00.2  no driver, no IOMMU group
! 1 of them have no driver, and only driver nvidia makes vGPUs of them: either /sys/bus/pci/devices/0000:c1:00.0/sriov_drivers_autoprobe is 0, or the driver refused them, which the kernel's log says

` + "`divvy vm functions 0000:c1:00.0 --count 0` takes them away.\n"
	if w.String() != want {
		t.Errorf("got\n%s\nwant\n%s", w.String(), want)
	}
	w.Reset()
	host.Devices = host.Devices[:1]
	writeFunctions(&w, host, functionsNow(host, control.Functions{Device: at, Left: []string{"a\x1b[2J"}}))
	if want := "0000:c1:00.0 has no virtual functions of Divvy's.\n! a\\x1b[2J\n"; w.String() != want {
		t.Errorf("got %q, want %q", w.String(), want)
	}
}

// The list has a row for each device whose functions Divvy enabled.
func TestPrintFunctions(t *testing.T) {
	var w strings.Builder
	printFunctions(&w, []control.Functions{
		{Device: pci.Address{Bus: 0x3b}, Index: new(int), Count: 16, Phase: claims.Held},
		{Device: pci.Address{Bus: 0xc1}, Count: 4, Phase: claims.Taking, Fault: "process 7 (\x1b[2J) has it"},
	}, look{})
	for _, want := range []string{"FUNCTIONS OF", "0000:3b:00.0  0    16     held", "0000:c1:00.0  -    4      stuck", "! functions of 0000:c1:00.0: process 7", `\x1b[2J`} {
		if !strings.Contains(w.String(), want) {
			t.Errorf("there is no %q in\n%s", want, w.String())
		}
	}
	if strings.Contains(w.String(), "\x1b") {
		t.Errorf("a terminal would obey\n%q", w.String())
	}
}
