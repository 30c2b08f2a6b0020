package vmtest_test

import (
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/vm/facts"
	"github.com/divvy-gpu/divvy/internal/vm/preflight"
)

// Of the machine that runs the tests, whatever it lacks is said: an IOMMU, and KVM.
func TestThisMachine(t *testing.T) {
	host, err := facts.Read(os.DirFS("/"))
	if err != nil {
		t.Skipf("this machine shows no PCI devices: %v", err)
	}
	report := preflight.NewReport(host, nil, preflight.Question{For: preflight.QEMU}, "test")
	says := func(status preflight.Status, ids ...preflight.ID) bool {
		return slices.ContainsFunc(report.Findings, func(f preflight.Finding) bool { return f.Status == status && slices.Contains(ids, f.ID) })
	}
	units, _ := os.ReadDir("/sys/class/iommu")
	if has := len(units) > 0; has != says(preflight.OK, "iommu") || has == says(preflight.Fail, "iommu", "iommu.firmware", "iommu.kernel") {
		t.Errorf("the machine has %d IOMMUs, and it is said: %v", len(units), told(report, "iommu"))
	}
	node, err := os.Open("/dev/kvm")
	if err == nil {
		_ = node.Close()
	}
	if opens := err == nil; opens != says(preflight.OK, "kvm") || opens == says(preflight.Warn, "kvm", "cpu.virtualisation") {
		t.Errorf("/dev/kvm: %v, closed: %t, and it is said: %v", err, errors.Is(err, fs.ErrPermission), told(report, "kvm", "cpu"))
	}
}

// told are the findings whose ids begin so.
func told(report preflight.Report, beginnings ...string) (found []preflight.Finding) {
	for _, f := range report.Findings {
		if slices.ContainsFunc(beginnings, func(b string) bool { return strings.HasPrefix(string(f.ID), b) }) {
			found = append(found, f)
		}
	}
	return found
}
