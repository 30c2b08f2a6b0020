package agentconfig

import (
	"slices"
	"testing"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/pci"
)

func at(t *testing.T, text string) pci.Address {
	t.Helper()
	address, err := pci.ParseAddress(text)
	if err != nil {
		t.Fatal(err)
	}
	return address
}

func TestLendings(t *testing.T) {
	c := parse(t, `backends:
  slice: [2]
  passthrough: ["0000:3b:00.0", "0000:AF:00.0"]
  vf: {gpus: all, functions: all}
  vgpu: [{gpus: ["0000:5e:00.0"], type: nvidia-471, replicas: 4}, {gpus: ["0000:d8:00.0"], type: 474, functions: 16}]`)
	want := []Lending{
		{Form: v1alpha1.BackendPassthrough, Address: at(t, "0000:3b:00.0")},
		{Form: v1alpha1.BackendPassthrough, Address: at(t, "0000:af:00.0")},
		{Form: v1alpha1.BackendVF, Every: true, Functions: pci.AllFunctions},
		{Form: v1alpha1.BackendVGPU, Address: at(t, "0000:5e:00.0"), Type: "471", Replicas: 4},
		{Form: v1alpha1.BackendVGPU, Address: at(t, "0000:d8:00.0"), Type: "474", Functions: 16},
	}
	if got := c.Lendings(); !slices.Equal(got, want) {
		t.Errorf("offered is\n%+v, want\n%+v", got, want)
	}
	for _, c := range []struct {
		address string
		gpu     bool
		want    int
	}{
		{"0000:3b:00.0", true, 0}, {"0000:d8:00.0", true, 4}, {"0000:01:00.0", true, 2}, {"0000:01:00.0", false, -1},
	} {
		got, ok := LendingOf(want, at(t, c.address), c.gpu)
		if ok != (c.want >= 0) || ok && got != want[c.want] {
			t.Errorf("%s, GPU %v: %+v, %v", c.address, c.gpu, got, ok)
		}
	}
	// What is offered to virtual machines gives programs no form.
	if form, ok := parse(t, `backends: {passthrough: ["0000:3b:00.0"]}`).Form(GPU{0, uuidA}); ok {
		t.Errorf("a GPU was given %+v", form)
	}
	if offers := (*Config)(nil).Lendings(); offers != nil {
		t.Errorf("without a file %v is offered", offers)
	}
}

func TestFaultsOfLendings(t *testing.T) {
	for text, want := range map[string]string{
		`{passthrough: [0]}`: `passthrough[0]: "0" is no PCI address such as 0000:3b:00.0: index and UUID are the driver's, which a GPU for a virtual machine leaves`,
		`{passthrough: []}`:  `passthrough: must be a list of PCI addresses, such as ["0000:3b:00.0"]`,
		`{passthrough: all}`: `passthrough: must be a list of PCI addresses, such as ["0000:3b:00.0"]`,
		`{passthrough: {gpus: ["0000:3b:00.0"], type: nvidia-1}}`: `passthrough.type: unknown field; known here: gpus`,
		`{passthrough: {gpus: ["0000:3b:00.0"], functions: 4}}`:   `passthrough.functions: unknown field; known here: gpus`,
		`{vf: {gpus: ["0000:3b:00.0"], functions: 0}}`:            `vf.functions: "0" is not a whole number from 1 to 65535`,
		`{vf: {gpus: ["0000:3b:00.0"], functions: some}}`:         `vf.functions: "some" is not a whole number from 1 to 65535`,
		`{vf: {gpus: ["0000:3b:00.0"], functions: [4]}}`:          `vf.functions: must be a whole number from 1 to 65535, or all`,
		`{passthrough: {}}`: `passthrough: names no GPUs: add gpus, such as ["0000:3b:00.0"], or all`,
		`{passthrough: ["0000:3b:00.0"], vf: ["0000:3B:00.0"]}`:                   `vf[0]: is offered twice: a GPU has one form`,
		`{passthrough: {gpus: all}, vf: {gpus: all}}`:                             `vf.gpus: is offered twice: a GPU has one form`,
		`{vgpu: ["0000:3b:00.0"]}`:                                                `vgpu: must have a type, such as {gpus: ["0000:3b:00.0"], type: nvidia-471}`,
		`{vgpu: {gpus: ["0000:3b:00.0"]}}`:                                        `vgpu: names no type: add such as type: nvidia-471`,
		`{vgpu: {gpus: ["0000:3b:00.0"], type: A40-8Q}}`:                          "vgpu.type: \"A40-8Q\" is no type of vGPUs: write such as nvidia-471, as the host driver numbers them",
		`{vgpu: [{gpus: ["0000:3b:00.0"], type: 471}, 1]}`:                        `vgpu[1]: must be a mapping of fields`,
		`{vgpu: {gpus: ["0000:3b:00.0"], type: 471, replicas: 0}}`:                `vgpu.replicas: "0" is not a whole number from 1 to 1024`,
		`{vgpu: [{gpus: [[]], type: 471}, {gpus: ["0000:3b:00.0"], type: "00"}]}`: `vgpu[0].gpus[0]: "" is no PCI address such as 0000:3b:00.0: index and UUID are the driver's, which a GPU for a virtual machine leaves` + "\nagent.yaml:3: backends.vgpu[1].type: \"00\" is no type of vGPUs: write such as nvidia-471, as the host driver numbers them",
	} {
		_, err := Parse("agent.yaml", []byte(head+"backends: "+text), lab{})
		if want = "agent.yaml:3: backends." + want; err == nil || err.Error() != want {
			t.Errorf("%s:\n%v, want\n%s", text, err, want)
		}
	}
}
