package machine

import (
	"slices"
	"strings"
	"testing"
)

// The guest never uses KVM, and reaches no network of the host's.
func TestArgumentsOfEveryShape(t *testing.T) {
	for name := range shapes {
		shape, err := Named(name)
		if err != nil {
			t.Fatal(err)
		}
		arguments := shape.Arguments()
		at := slices.Index(arguments, "-accel")
		if at < 0 || !strings.HasPrefix(arguments[at+1], "tcg") {
			t.Errorf("%s: %v does not ask for TCG", name, arguments)
		}
		for i, argument := range arguments {
			if argument == "-enable-kvm" || argument == "-netdev" && !strings.HasPrefix(arguments[i+1], "hubport,") {
				t.Errorf("%s: %s %s leads out of the guest", name, argument, arguments[i+1])
			}
		}
		if words := strings.Fields(shape.CommandLine()); !slices.Contains(words, Token) {
			t.Errorf("%s: the command line %q lacks the token", name, words)
		}
	}
}

func TestShapesDiffer(t *testing.T) {
	for name, want := range map[string]string{
		"whole": "intel-iommu,intremap=on", "iommu-off": "intel-iommu,intremap=on", "no-remapper": "intel-iommu,intremap=off", "iommu-none": "",
	} {
		shape, err := Named(name)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, argument := range shape.Arguments() {
			if strings.HasPrefix(argument, "intel-iommu") {
				got = argument
			}
		}
		if got != want {
			t.Errorf("%s has the IOMMU %q, want %q", name, got, want)
		}
		if off := strings.Contains(shape.CommandLine(), "intel_iommu=off"); off != (name == "iommu-off") {
			t.Errorf("%s: the kernel leaves the IOMMU alone: %t", name, off)
		}
	}
	if _, err := Named("nothing"); err == nil || !strings.Contains(err.Error(), "iommu-none, iommu-off, no-remapper, whole") {
		t.Errorf("an unknown name: %v, want the list of names", err)
	}
}
