package kubevirt

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	kubevirtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/divvy-gpu/divvy/internal/install/installtest"
	"github.com/divvy-gpu/divvy/internal/vm/facts"
	"github.com/divvy-gpu/divvy/internal/vm/preflight"
	"github.com/divvy-gpu/divvy/internal/vm/vmtest"
)

// Every snippet of preflight for KubeVirt is a part of the object that it names, and no field of it is unknown.
func TestPreflight(t *testing.T) {
	judged, classes := map[string]int{}, installed(t)
	for _, h := range vmtest.Hosts {
		if h.Boot != nil {
			continue
		}
		host := vmtest.Model(t, filepath.Join(installtest.Root(t), "../../.."), h.Name)
		for _, device := range host.Devices {
			if device.Address.String() != h.GPU {
				continue
			}
			report := preflight.NewReport(host, []facts.Device{device}, preflight.Question{For: preflight.KubeVirt}, "test")
			for at, snippet := range report.Needs {
				judged[snippet.Title]++
				if older := strings.HasPrefix(snippet.Title, "Only for KubeVirt before 1.9, "); older != (at >= 2) {
					t.Errorf("%s: snippet %d is %q: claims come first, and what older versions need is called so", h.Name, at, snippet.Title)
				}
				_, last, _ := strings.Cut(snippet.Title, ": ")
				switch {
				case at == 0: // internal/vm/preflight holds it against the agent's own reader
				case at == 1:
					e, err := decode(snippet.Text)
					if err == nil && len(e.machines) == 1 {
						err = e.judge(&e.machines[0], classes)
					}
					if err != nil || len(e.machines) != 1 || strings.Contains(snippet.Text, "deviceName") {
						t.Errorf("%s: %d virtual machines, %v:\n%s", h.Name, len(e.machines), err, snippet.Text)
					}
				case last == "in the KubeVirt object":
					var object kubevirtv1.KubeVirt
					if err := yaml.UnmarshalStrict([]byte(snippet.Text), &object); err != nil {
						t.Errorf("%s: %v\n%s", h.Name, err, snippet.Text)
					}
					if devices := object.Spec.Configuration.PermittedHostDevices; devices == nil || len(devices.PciHostDevices) != 1 {
						t.Errorf("%s permits %+v, want one device:\n%s", h.Name, devices, snippet.Text)
					}
				case last == "in the VirtualMachine":
					object, err := machine(snippet.Text)
					if err != nil || len(object.Domain.Devices.GPUs) != 1 {
						t.Errorf("%s has %d GPUs, %v; want one:\n%s", h.Name, len(object.Domain.Devices.GPUs), err, snippet.Text)
					}
				case !strings.HasPrefix(last, "as root"):
					t.Errorf("%s: nobody judges the snippet %q", h.Name, snippet.Title)
				}
			}
		}
	}
	for title, count := range judged {
		if strings.Contains(title, "as root") {
			continue // none where the driver is vfio-pci already
		}
		if want := map[bool]int{false: 4, true: 1}[strings.Contains(title, "vGPU")]; count != want {
			t.Errorf("the snippets %v are judged, want each of every modelled host whose device may leave its driver, and of the one with vGPUs", judged)
		}
	}
	if len(judged) < 6 {
		t.Errorf("the snippets %v are judged", judged)
	}
}

// A field that these types do not have is an error, wherever it stands.
func TestUnknownFieldsAreErrors(t *testing.T) {
	for _, text := range []string{
		"spec: {template: {spec: {domain: {devices: {gpu: []}}}}}", "spec: {template: {spec: {domain: {}, gpus: []}}}", "spec: {gpus: []}", "spec: []",
	} {
		if got, err := machine(text); err == nil {
			t.Errorf("%s is taken as %+v", text, got)
		}
	}
}

// spec is that of a virtual machine's instance without the method by which it decodes itself, which passes over what it
// does not know.
type spec kubevirtv1.VirtualMachineInstanceSpec

// machine decodes a VirtualMachine strictly, and returns its instance's specification.
func machine(text string) (spec, error) {
	var whole kubevirtv1.VirtualMachine
	var inner struct {
		Spec struct {
			Template struct {
				Spec json.RawMessage `json:"spec"`
			} `json:"template"`
		} `json:"spec"`
	}
	if err := yaml.UnmarshalStrict([]byte(text), &whole); err != nil {
		return spec{}, err
	}
	if err := yaml.Unmarshal([]byte(text), &inner); err != nil {
		return spec{}, err
	}
	var s spec
	err := yaml.UnmarshalStrict(inner.Spec.Template.Spec, &s)
	return s, err
}
