package libvirt

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/install/installtest"
	"github.com/divvy-gpu/divvy/internal/vm/facts"
	"github.com/divvy-gpu/divvy/internal/vm/preflight"
	"github.com/divvy-gpu/divvy/internal/vm/vmtest"
)

// schema returns a function that judges a domain by libvirt's schema. It skips the test where that was not unpacked.
func schema(t *testing.T) func(domain string) error {
	t.Helper()
	folder := filepath.Join(installtest.Root(t), ".cache/libvirt")
	if _, err := os.Stat(filepath.Join(folder, ".complete")); err != nil {
		installtest.Missing(t, "libvirt", fmt.Errorf("no schema of libvirt: run make test-libvirt: %w", err))
	}
	tree := filepath.Join(folder, "tree/usr")
	return func(domain string) error {
		lint := exec.CommandContext(t.Context(), filepath.Join(tree, "bin/xmllint"),
			"--nonet", "--noout", "--relaxng", filepath.Join(tree, "share/libvirt/schemas/domain.rng"), "-")
		lint.Env = []string{"LD_LIBRARY_PATH=" + filepath.Join(tree, "lib/x86_64-linux-gnu")}
		lint.Stdin = strings.NewReader(domain)
		if said, err := lint.CombinedOutput(); err != nil {
			return fmt.Errorf("%w\n%s\n%s", err, said, domain)
		}
		return nil
	}
}

// domain is a virtual machine with what belongs below its devices, and beside them.
func domain(devices, beside string) string {
	return `<domain type='kvm'>
<name>vm</name>
<memory unit='GiB'>16</memory>
<vcpu>8</vcpu>
<os><type arch='x86_64' machine='q35'>hvm</type></os>
` + beside + `<devices>
` + devices + `</devices>
</domain>
`
}

func TestSchemaJudges(t *testing.T) {
	judge := schema(t)
	if err := judge(domain("", "")); err != nil {
		t.Error(err)
	}
	const wrong = "<hostdev mode='subsystem' type='pci' managed='maybe'><source><address bus='0x3d'/></source></hostdev>\n"
	if err := judge(domain(wrong, "")); err == nil {
		t.Error("a device that is managed='maybe' passes")
	}
	if err := judge("<domain"); err == nil {
		t.Error("half a document passes")
	}
}

// What preflight prints for libvirt is right for each modelled host, and for each of its devices that may be given.
func TestPreflight(t *testing.T) {
	judge := schema(t)
	titles := map[string]int{}
	for _, h := range vmtest.Hosts {
		if h.Boot != nil {
			continue
		}
		host := vmtest.Model(t, installtest.Root(t), h.Name)
		for _, device := range host.Devices {
			if address := device.Address.String(); address != h.GPU && device.Parent.String() != h.GPU {
				continue
			}
			ask := preflight.Question{For: preflight.Libvirt, Memory: h.Ask.Memory}
			report := preflight.NewReport(host, []facts.Device{device}, ask, "test")
			if len(report.Notes) > 0 {
				continue // the host needs the device
			}
			devices, beside := "", ""
			for _, snippet := range report.Needs {
				if strings.HasPrefix(snippet.Title, "By Divvy") {
					continue // a command
				}
				titles[snippet.Title]++
				switch {
				case strings.HasPrefix(snippet.Title, "Below <devices>"):
					devices += snippet.Text
				case strings.HasPrefix(snippet.Title, "In the domain"):
					beside += snippet.Text
				default:
					t.Errorf("%s: nobody judges the snippet %q", h.Name, snippet.Title)
				}
			}
			if devices == "" {
				t.Errorf("%s: nothing is printed for %s", h.Name, device.Address)
			}
			if err := judge(domain(devices, beside)); err != nil {
				t.Errorf("%s, %s: %v", h.Name, device.Address, err)
			}
		}
	}
	if len(titles) != 3 {
		t.Errorf("the snippets %v are judged, want all three kinds", titles)
	}
}
