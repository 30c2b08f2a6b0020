package vmtest_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/hostfile"
	"github.com/divvy-gpu/divvy/internal/pci"
	"github.com/divvy-gpu/divvy/internal/vm/facts"
	"github.com/divvy-gpu/divvy/internal/vm/preflight"
	"github.com/divvy-gpu/divvy/internal/vm/vmtest"
	"github.com/divvy-gpu/divvy/test/bench/figure"
)

var update = flag.Bool("update", false, "rewrite models and golden files")

const folder = "../../../testdata/hosts/vm"

func modelled(t *testing.T, name string) *hostfile.Host {
	t.Helper()
	file, err := os.Open(filepath.Join(folder, name+".host"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	host, err := hostfile.Parse(file, name)
	if err != nil {
		t.Fatal(err)
	}
	return host
}

func golden(t *testing.T, path string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("differs from %s:\n%s", path, got)
	}
}

// Each modelled host's fault is named first, nothing else is wrong, and the whole report is as it was.
func TestModelledHosts(t *testing.T) {
	count, right := map[bool]int{}, map[bool]int{}
	wrong := 0
	for _, h := range vmtest.Hosts {
		if h.Boot != nil {
			continue
		}
		count[h.Fault != ""]++
		if t.Run(h.Name, func(t *testing.T) {
			host, err := facts.Read(modelled(t, h.Name).Root())
			if err != nil {
				t.Fatal(err)
			}
			address, err := pci.ParseAddress(h.GPU)
			if err != nil {
				t.Fatal(err)
			}
			device, found := host.Find(address)
			if !found {
				t.Fatalf("no device at %s", address)
			}
			report := preflight.NewReport(host, []facts.Device{device}, h.Ask, "test")
			if err := h.Judge(report.Findings); err != nil {
				t.Error(err)
				if errors.Is(err, vmtest.ErrFalse) {
					wrong++
				}
			}
			text, err := json.MarshalIndent(report, "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			golden(t, filepath.Join(folder, h.Name+".json.golden"), append(text, '\n'))
		}) {
			right[h.Fault != ""]++
		}
	}
	figure.Tell(t, figure.Figure{ID: "vm.preflight", Case: "fault named first", Values: []float64{float64(right[true])}, Note: fmt.Sprintf("%d of %d modelled", right[true], count[true])})
	figure.Tell(t, figure.Figure{ID: "vm.preflight", Case: "false", Values: []float64{float64(wrong)}, Note: fmt.Sprintf("%d of %d modelled hosts without a fault are sound", right[false], count[false])})
	if count[true] != 7 || count[false] != 3 {
		t.Errorf("%d hosts with a fault and %d sound ones, want 7 and 3", count[true], count[false])
	}
}

// To record a modelled host gives the same file: it has all that is read, and nothing else.
func TestModelsAreWhole(t *testing.T) {
	for _, h := range vmtest.Hosts {
		if h.Boot != nil {
			continue
		}
		t.Run(h.Name, func(t *testing.T) {
			path := filepath.Join(folder, h.Name+".host")
			host := modelled(t, h.Name)
			again, err := hostfile.CaptureMachine(host.Root(), host.GPUs)
			if err != nil {
				t.Fatal(err)
			}
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			var comments strings.Builder
			for line := range strings.Lines(string(text)) {
				if strings.HasPrefix(line, "#") {
					comments.WriteString(line)
				}
			}
			var got bytes.Buffer
			if err := again.Format(&got); err != nil {
				t.Fatal(err)
			}
			first, rest, _ := strings.Cut(got.String(), "\n")
			golden(t, path, []byte(first+"\n"+comments.String()+rest))
		})
	}
}

func TestJudge(t *testing.T) {
	wrong := func(ids ...preflight.ID) (found []preflight.Finding) {
		for _, id := range ids {
			found = append(found, preflight.Finding{ID: id, Status: preflight.Fail})
		}
		return append(found, preflight.Finding{ID: "kvm", Status: preflight.OK}, preflight.Finding{ID: "unseen", Status: preflight.Unknown})
	}
	sound, faulty := vmtest.Host{Name: "sound"}, vmtest.Host{Name: "faulty", Fault: "holder"}
	booted := vmtest.Host{Name: "booted", Fault: "holder", Boot: &vmtest.Boot{}}
	for name, test := range map[string]struct {
		host  vmtest.Host
		found []preflight.Finding
		want  error
	}{
		"sound":             {sound, wrong(), nil},
		"false":             {sound, wrong("kvm"), vmtest.ErrFalse},
		"named":             {faulty, wrong("holder"), nil},
		"missed":            {faulty, wrong(), vmtest.ErrMissed},
		"second":            {faulty, wrong("kvm", "holder"), vmtest.ErrMissed},
		"another as well":   {faulty, wrong("holder", "kvm"), vmtest.ErrFalse},
		"emulated in guest": {booted, wrong("holder", "kvm"), nil},
	} {
		if err := test.host.Judge(test.found); !errors.Is(err, test.want) {
			t.Errorf("%s: %v, want %v", name, err, test.want)
		}
	}
}

// The list has eight hosts to boot, no name twice, and only faults of the catalogue.
func TestHosts(t *testing.T) {
	names := map[string]bool{}
	booted := 0
	for _, h := range vmtest.Hosts {
		if names[h.Name] {
			t.Errorf("%s is there twice", h.Name)
		}
		names[h.Name] = true
		if h.Boot != nil {
			booted++
		}
		if h.Fault != "" && !slices.ContainsFunc(preflight.Catalogue, func(e preflight.Entry) bool { return e.ID == h.Fault }) {
			t.Errorf("%s has fault %s, which the catalogue lacks", h.Name, h.Fault)
		}
	}
	if booted != 8 {
		t.Errorf("%d hosts to boot, want 8", booted)
	}
}
