package preflight

import (
	"fmt"
	"slices"
	"strings"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/pci"
	"github.com/divvy-gpu/divvy/internal/vm/facts"
)

// byClaim is how KubeVirt from 1.9 gets the devices from Divvy: the agent offers them, and each is one request of a claim.
func (w writer) byClaim() []Snippet {
	offers := map[string][]string{}
	var requests, gpus, others strings.Builder
	for i, d := range w.devices {
		form, at := w.offered(d)
		if address := fmt.Sprintf("%q", at.String()); !slices.Contains(offers[form], address) {
			offers[form] = append(offers[form], address)
		}
		fmt.Fprintf(&requests, "        - name: device%d\n          exactly: {deviceClassName: %s.%s}\n", i, form, v1alpha1.Domain)
		into := &others
		if d.IsGPU() {
			into = &gpus
		}
		fmt.Fprintf(into, "            - {name: device%d, claimName: devices, requestName: device%d}\n", i, i)
	}
	devices := ""
	for _, list := range []struct{ name, text string }{{"gpus", gpus.String()}, {"hostDevices", others.String()}} {
		if list.text != "" {
			devices += "          " + list.name + ":\n" + list.text
		}
	}
	what := ""
	if w.part {
		what = " with a vGPU of a TYPE above"
	}
	return []Snippet{
		{"KubeVirt 1.9 and later, in the configuration of the node's agent" + what, agentOffers(offers)},
		{"KubeVirt 1.9 and later, a claim for each virtual machine" + what, fmt.Sprintf(claims, requests.String(), w.amount()+"i", devices)},
	}
}

// claims is a virtual machine with the template of its claim.
const claims = `apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: devices}
spec:
  spec:
    devices:
      requests:
%s---
apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata: {name: trainer}
spec:
  runStrategy: Always
  template:
    spec:
      resourceClaims:
        - {name: devices, resourceClaimTemplateName: devices}
      domain:
        memory: {guest: %s}
        devices:
%s`

// offered is the form in which an agent offers a device to a cluster, and the address by which it does.
func (w writer) offered(d facts.Device) (form string, at pci.Address) {
	switch {
	case w.part && d.Virtual:
		return formVGPU, d.Parent
	case w.part:
		return formVGPU, d.Address
	case d.Virtual:
		return "vf", d.Parent
	}
	return "passthrough", d.Address
}

// agentOffers is the part of the agent's configuration that offers devices, by the addresses of each form.
func agentOffers(offers map[string][]string) string {
	var b strings.Builder
	b.WriteString("backends:\n")
	for _, o := range []struct{ form, format string }{
		{"passthrough", "  passthrough: [%s]\n"}, {"vf", "  vf: {gpus: [%s]}\n"}, {formVGPU, "  vgpu: {gpus: [%s], type: TYPE}\n"},
	} {
		if list := offers[o.form]; len(list) > 0 {
			fmt.Fprintf(&b, o.format, strings.Join(list, ", "))
		}
	}
	return b.String()
}

// before19 begins the titles of what only an older KubeVirt needs, which takes no claims.
const before19 = "Only for KubeVirt before 1.9, instead of that: "

// permitted is how an older KubeVirt gets them, by its own list and device plugin.
func (w writer) permitted() []Snippet {
	const resource = "example.com/gpu"
	seen := map[string]bool{}
	var permitted, gpus strings.Builder
	permitted.WriteString("spec:\n  configuration:\n    permittedHostDevices:\n      pciHostDevices:\n")
	gpus.WriteString("spec:\n  template:\n    spec:\n      domain:\n        devices:\n          gpus:\n")
	for i, d := range w.devices {
		selector := fmt.Sprintf("        - pciVendorSelector: \"%04X:%04X\"\n          resourceName: %s\n", d.Vendor, d.ID, resource)
		if !seen[selector] {
			seen[selector] = true
			permitted.WriteString(selector)
		}
		fmt.Fprintf(&gpus, "            - name: gpu%d\n              deviceName: %s\n", i, resource)
	}
	return append(w.bind(before19), Snippet{before19 + "in the KubeVirt object", permitted.String()}, Snippet{before19 + "in the VirtualMachine", gpus.String()})
}
