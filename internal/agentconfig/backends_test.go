package agentconfig

import (
	"testing"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

const (
	uuidA = "GPU-6e5f0d1c-0000-0000-0000-00000000000a"
	uuidB = "GPU-6e5f0d1c-0000-0000-0000-00000000000b"
)

func TestBackends(t *testing.T) {
	c := parse(t, "backends: {timeslice: [0, "+uuidB+"], slice: [2]}")
	for gpu, want := range map[GPU]v1alpha1.Backend{
		{0, uuidA}: v1alpha1.BackendTimeslice, {1, uuidB}: v1alpha1.BackendTimeslice, {2, "GPU-c"}: v1alpha1.BackendSlice, {3, "GPU-d"}: v1alpha1.BackendSlice,
	} {
		if got, ok := c.Backend(gpu); !ok || got != want {
			t.Errorf("%v: %s, %v, want %s", gpu, got, ok, want)
		}
	}
	for _, none := range []*Config{nil, parse(t, "outside: stop")} {
		if got, ok := none.Backend(GPU{}); ok {
			t.Errorf("without the field: %s", got)
		}
	}
}

func TestFaultsOfBackends(t *testing.T) {
	for text, want := range map[string]string{
		"backends: [0]":                                                 "agent.yaml:3: backends: must be a mapping of fields",
		"backends: {}":                                                  "agent.yaml:3: backends: names no backend: leave it out, or write such as {timeslice: [0]}",
		"backends: {mps: [0]}":                                          "agent.yaml:3: backends.mps: unknown field; known here: slice, timeslice",
		"backends: {timeslice: 0}":                                      "agent.yaml:3: backends.timeslice: must be a list of GPUs, such as [0, 3]",
		"backends: {timeslice: []}":                                     "agent.yaml:3: backends.timeslice: must be a list of GPUs, such as [0, 3]",
		"backends:\n  timeslice: [all]":                                 "agent.yaml:4: backends.timeslice[0]: \"all\" is neither an index nor a whole UUID: `divvy ls` lists them",
		"backends: {timeslice: [01]}":                                   "agent.yaml:3: backends.timeslice[0]: \"01\" is neither an index nor a whole UUID: `divvy ls` lists them",
		"backends: {timeslice: [GPU-6e5f]}":                             "agent.yaml:3: backends.timeslice[0]: \"GPU-6e5f\" is neither an index nor a whole UUID: `divvy ls` lists them",
		"backends: {timeslice: [[0]]}":                                  "agent.yaml:3: backends.timeslice[0]: \"\" is neither an index nor a whole UUID: `divvy ls` lists them",
		"backends: {timeslice: [0, 0]}":                                 "agent.yaml:3: backends.timeslice[1]: names the same GPU as backends.timeslice[0]",
		"backends: {slice: [1], timeslice: [0, 1]}":                     "agent.yaml:3: backends.timeslice[1]: names the same GPU as backends.slice[0]",
		"backends: {timeslice: [" + uuidA + ", gpu-" + uuidA[4:] + "]}": "agent.yaml:3: backends.timeslice[1]: names the same GPU as backends.timeslice[0]",
	} {
		_, err := Parse("agent.yaml", []byte(head+text), lab{})
		if err == nil || err.Error() != want {
			t.Errorf("%s:\n%v, want\n%s", text, err, want)
		}
	}
}

// Names are compared with the machine, as far as its GPUs are known.
func TestBackendsOfTheMachine(t *testing.T) {
	two := []GPU{{0, uuidA}, {1, uuidB}}
	for _, c := range []struct {
		text    string
		machine Machine
		want    string
	}{
		{"[0, 1]", Machine{GPUs: 2, Named: two}, ""},
		{"[2]", Machine{GPUs: 2, Named: two}, "agent.yaml:3: backends.timeslice[0]: this machine has no GPU 2: `divvy ls` lists them"},
		{"[2]", Machine{GPUs: 3, Named: two}, ""},
		{"[" + uuidB + "]", Machine{GPUs: 2, Named: two}, ""},
		{"[" + uuidB + "]", Machine{GPUs: 1, Named: two[:1]}, "agent.yaml:3: backends.timeslice[0]: this machine has no GPU " + uuidB + ": `divvy ls` lists them"},
		{"[" + uuidB + "]", Machine{GPUs: 2, Named: two[:1]}, ""},
		{"[1, " + uuidB + "]", Machine{GPUs: 2, Named: two}, "agent.yaml:3: backends.timeslice[1]: names the same GPU as backends.timeslice[0]"},
	} {
		err := parse(t, "backends: {timeslice: "+c.text+"}").Check(c.machine)
		if (c.want == "") != (err == nil) || err != nil && err.Error() != c.want {
			t.Errorf("%s on %d GPUs: %v, want %q", c.text, c.machine.GPUs, err, c.want)
		}
	}
}
