package kubevirt

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// example is what one file has.
type example struct {
	machines  []kubevirtv1.VirtualMachine
	kubevirts []kubevirtv1.KubeVirt
	// claims and templates are the requests of each, by name, with the class of each request.
	claims, templates map[string]map[string]string
}

// decode decodes a file strictly: a field that a type does not have is an error.
func decode(text string) (example, error) {
	e := example{claims: map[string]map[string]string{}, templates: map[string]map[string]string{}}
	for document := range strings.SplitSeq(text, "\n---\n") {
		var kind metav1.TypeMeta
		if err := yaml.Unmarshal([]byte(document), &kind); err != nil {
			return e, err
		}
		var err error
		switch kind.APIVersion + " " + kind.Kind {
		case "kubevirt.io/v1 VirtualMachine":
			var vm kubevirtv1.VirtualMachine
			if err = yaml.UnmarshalStrict([]byte(document), &vm); err == nil {
				err = strictSpec([]byte(document))
			}
			e.machines = append(e.machines, vm)
		case "kubevirt.io/v1 KubeVirt":
			var kv kubevirtv1.KubeVirt
			err = yaml.UnmarshalStrict([]byte(document), &kv)
			e.kubevirts = append(e.kubevirts, kv)
		case "resource.k8s.io/v1 ResourceClaim":
			var claim resourcev1.ResourceClaim
			err = yaml.UnmarshalStrict([]byte(document), &claim)
			e.claims[claim.Name] = requests(claim.Spec)
		case "resource.k8s.io/v1 ResourceClaimTemplate":
			var template resourcev1.ResourceClaimTemplate
			err = yaml.UnmarshalStrict([]byte(document), &template)
			e.templates[template.Name] = requests(template.Spec.Spec)
		default:
			err = fmt.Errorf("a document of kind %s %s", kind.APIVersion, kind.Kind)
		}
		if err != nil {
			return e, err
		}
	}
	return e, nil
}

// strictSpec decodes a virtual machine's specification strictly. The type's own decoder, which KubeVirt's types are decoded with
// otherwise, lets every field pass.
func strictSpec(document []byte) error {
	type plain kubevirtv1.VirtualMachineInstanceSpec // without that decoder
	var vm struct {
		Spec struct {
			Template struct {
				Spec json.RawMessage `json:"spec"`
			} `json:"template"`
		} `json:"spec"`
	}
	if err := yaml.Unmarshal(document, &vm); err != nil {
		return err
	}
	return yaml.UnmarshalStrict(vm.Spec.Template.Spec, &plain{})
}

// requests are the classes of a claim's requests that take one device each.
func requests(spec resourcev1.ResourceClaimSpec) map[string]string {
	found := map[string]string{}
	for _, r := range spec.Devices.Requests {
		if r.Exactly != nil && r.Exactly.Count <= 1 && r.Exactly.AllocationMode != resourcev1.DeviceAllocationModeAll {
			found[r.Name] = r.Exactly.DeviceClassName
		}
	}
	return found
}

// installed are the device classes that users install.
func installed(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile("../../../deploy/manifests/divvy.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		var class resourcev1.DeviceClass
		if strings.Contains(document, "\nkind: DeviceClass\n") {
			if err := yaml.Unmarshal([]byte(document), &class); err != nil {
				t.Fatal(err)
			}
			names = append(names, class.Name)
		}
	}
	return names
}

// judge says why KubeVirt 1.9 would refuse a virtual machine's devices, or would not find them. Its rules are those of its
// webhook and of its launcher, in words of our own.
func (e example) judge(vm *kubevirtv1.VirtualMachine, classes []string) error {
	spec := vm.Spec.Template.Spec
	type device struct {
		name, resource string
		claim          *kubevirtv1.ClaimRequest
	}
	var devices []device
	for _, g := range spec.Domain.Devices.GPUs {
		devices = append(devices, device{g.Name, g.DeviceName, g.ClaimRequest})
	}
	for _, h := range spec.Domain.Devices.HostDevices {
		devices = append(devices, device{h.Name, h.DeviceName, h.ClaimRequest})
	}
	if len(devices) == 0 {
		return fmt.Errorf("it has no device")
	}
	used := map[kubevirtv1.ClaimRequest]bool{}
	for _, d := range devices {
		switch {
		case (d.resource == "") == (d.claim == nil):
			return fmt.Errorf("device %s has a resource and a claim, or neither", d.name)
		case (devices[0].claim == nil) != (d.claim == nil):
			return fmt.Errorf("device %s comes otherwise than the first one", d.name)
		case d.claim == nil && !e.permitted(d.resource):
			return fmt.Errorf("device %s: %s is not permitted, or KubeVirt provides it itself", d.name, d.resource)
		case d.claim == nil:
			continue
		case used[*d.claim]:
			return fmt.Errorf("device %s has the device of another one", d.name)
		}
		used[*d.claim] = true
		at := slices.IndexFunc(spec.ResourceClaims, func(c kubevirtv1.VirtualMachineInstanceResourceClaim) bool { return c.Name == d.claim.ClaimName })
		if at < 0 {
			return fmt.Errorf("device %s: the virtual machine has no claim %s", d.name, d.claim.ClaimName)
		}
		c, of := spec.ResourceClaims[at], e.claims
		if (c.ResourceClaimName == nil) == (c.ResourceClaimTemplateName == nil) {
			return fmt.Errorf("claim %s names a claim and a template, or neither", c.Name)
		}
		name := c.ResourceClaimName
		if name == nil {
			name, of = c.ResourceClaimTemplateName, e.templates
		}
		if class := of[*name][d.claim.RequestName]; !slices.Contains(classes, class) {
			return fmt.Errorf("device %s: %s has no request %s of one device, of a class that is installed (%q)", d.name, *name, d.claim.RequestName, class)
		}
	}
	return nil
}

// permitted tells whether KubeVirt takes a resource of somebody else's device plugin.
func (e example) permitted(resource string) bool {
	for _, k := range e.kubevirts {
		if k.Spec.Configuration.PermittedHostDevices == nil {
			continue
		}
		for _, d := range k.Spec.Configuration.PermittedHostDevices.PciHostDevices {
			if d.ResourceName == resource {
				return d.ExternalResourceProvider
			}
		}
		for _, d := range k.Spec.Configuration.PermittedHostDevices.MediatedDevices {
			if d.ResourceName == resource {
				return d.ExternalResourceProvider
			}
		}
	}
	return false
}

func TestExamples(t *testing.T) {
	files, err := filepath.Glob("../../../docs/examples/kubevirt/*.yaml")
	if err != nil || len(files) < 5 {
		t.Fatalf("%d examples (%v)", len(files), err)
	}
	classes := installed(t)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		e, err := decode(string(text))
		if err != nil || len(e.machines) == 0 {
			t.Errorf("%s: %d virtual machines, %v", file, len(e.machines), err)
		}
		for i := range e.machines {
			if err := e.judge(&e.machines[i], classes); err != nil {
				t.Errorf("%s: %v", file, err)
			}
		}
	}
}

// The manual's own example is judged as well. Its blocks are indented.
func TestManual(t *testing.T) {
	text, err := os.ReadFile("../../../docs/vm.md")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	var block []string
	for line := range strings.Lines(string(text)) {
		if code, ok := strings.CutPrefix(line, "    "); ok || strings.TrimSpace(line) == "" && len(block) > 0 {
			block = append(block, code)
			continue
		}
		if joined := strings.TrimSpace(strings.Join(block, "")) + "\n"; strings.HasPrefix(joined, "apiVersion: ") {
			found = append(found, joined)
		}
		block = nil
	}
	if len(found) == 0 {
		t.Fatal("docs/vm.md has no manifest")
	}
	classes := installed(t)
	for _, manifest := range found {
		e, err := decode(manifest)
		if err != nil || len(e.machines) != 1 {
			t.Errorf("%v in\n%s", err, manifest)
		}
		for i := range e.machines {
			if err := e.judge(&e.machines[i], classes); err != nil {
				t.Error(err)
			}
		}
	}
}

// The judge finds what is wrong with an example.
func TestFaultsAreFound(t *testing.T) {
	text, err := os.ReadFile("../../../docs/examples/kubevirt/two-gpus.yaml")
	if err != nil {
		t.Fatal(err)
	}
	classes := installed(t)
	for name, c := range map[string]struct{ old, new, fault string }{
		"a field that is none":    {"requestName: gpu-1", "request: gpu-1", "unknown field"},
		"a request that is none":  {"requestName: gpu-1", "requestName: gpu-2", "no request gpu-2"},
		"a request used twice":    {"requestName: gpu-1", "requestName: gpu-0", "the device of another one"},
		"a claim that is none":    {"claimName: gpus, requestName: gpu-1", "claimName: more, requestName: gpu-1", "no claim more"},
		"a class that is none":    {"deviceClassName: passthrough.divvy.dev", "deviceClassName: pass.divvy.dev", "of a class that is installed"},
		"a request of two":        {"{deviceClassName: passthrough.divvy.dev}", "{deviceClassName: passthrough.divvy.dev, count: 2, allocationMode: ExactCount}", "of one device"},
		"a resource and a claim":  {"name: gpu1, ", "name: gpu1, deviceName: divvy.dev/x, ", "or neither"},
		"a template and no claim": {"resourceClaimTemplateName: two-gpus", "resourceClaimName: two-gpus", "no request"},
	} {
		if !strings.Contains(string(text), c.old) {
			t.Fatalf("%s: the example has no %q", name, c.old)
		}
		e, err := decode(strings.ReplaceAll(string(text), c.old, c.new))
		if err == nil {
			err = e.judge(&e.machines[0], classes)
		}
		if err == nil || !strings.Contains(err.Error(), c.fault) {
			t.Errorf("%s: %v, want %q", name, err, c.fault)
		}
	}
}
