package agentconfig

import (
	"strings"
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

func TestFormMIG(t *testing.T) {
	for text, want := range map[string]Form{
		"{mig: [0]}":                                        {Backend: v1alpha1.BackendMIG},
		"{mig: {gpus: [0], layout: dynamic}}":               {Backend: v1alpha1.BackendMIG, Layout: LayoutDynamic},
		"{mig: [{gpus: [1]}, {gpus: [0], layout: fixed}]}":  {Backend: v1alpha1.BackendMIG, Layout: LayoutFixed},
		"{mig: {gpus: all, layout: fixed}, timeslice: [1]}": {Backend: v1alpha1.BackendMIG, Layout: LayoutFixed},
		"{mig: {gpus: [1], layout: fixed}, timeslice: [2]}": {Backend: v1alpha1.BackendSlice},
	} {
		if got, ok := parse(t, "backends: "+text).Form(GPU{0, uuidA}); !ok || got != want {
			t.Errorf("%s: %+v, %v, want %+v", text, got, ok, want)
		}
	}
	for want, form := range map[string]Form{
		"no effect":                      {Backend: v1alpha1.BackendMIG, Slice: "short"},
		"replicas":                       {Backend: v1alpha1.BackendMIG, Replicas: 2},
		"multiUser is for":               {Backend: v1alpha1.BackendMIG, MultiUser: true},
		"layout is for":                  {Backend: v1alpha1.BackendSlice, Layout: LayoutFixed},
		"use dynamic or fixed":           {Backend: v1alpha1.BackendMIG, Layout: "loose"},
		"use slice, timeslice, mps, mig": {Backend: "vgpu"},
	} {
		if err := form.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", form, err, want)
		}
	}
	if err := (Form{Backend: v1alpha1.BackendMIG, Layout: LayoutFixed}).Check(); err != nil {
		t.Error(err)
	}
}

func TestFaultsOfBackends(t *testing.T) {
	for text, want := range map[string]string{
		"backends: [0]":           "agent.yaml:3: backends: must be a mapping of fields",
		"backends: {}":            "agent.yaml:3: backends: names no backend: leave it out, or write such as {timeslice: [0]}",
		"backends: {remote: [0]}": "agent.yaml:3: backends.remote: unknown field; known here: mig, mps, passthrough, slice, timeslice, vf, vgpu",
		"backends: {mig: {gpus: [0], slice: short}}":                    "agent.yaml:3: backends.mig.slice: unknown field; known here: gpus, layout",
		"backends: {mig: {gpus: [0], replicas: 2}}":                     "agent.yaml:3: backends.mig.replicas: unknown field; known here: gpus, layout",
		"backends: {mig: {gpus: [0], layout: loose}}":                   "agent.yaml:3: backends.mig.layout: \"loose\" is neither dynamic nor fixed",
		"backends: {mig: {layout: fixed}}":                              "agent.yaml:3: backends.mig: names no GPUs: add gpus, such as [0, 3], or all",
		"backends: {mig: [0], slice: [0]}":                              "agent.yaml:3: backends.slice[0]: names the same GPU as backends.mig[0]",
		"backends: {slice: {gpus: [0], layout: fixed}}":                 "agent.yaml:3: backends.slice.layout: unknown field; known here: gpus, replicas",
		"backends: {timeslice: {slice: short}}":                         "agent.yaml:3: backends.timeslice: names no GPUs: add gpus, such as [0, 3], or all",
		"backends: {timeslice: {gpus: []}}":                             "agent.yaml:3: backends.timeslice.gpus: must be a list of GPUs, such as [0, 3]",
		"backends: {timeslice: {gpus: [0], slice: brief}}":              "agent.yaml:3: backends.timeslice.slice: \"brief\" is none of default, short, medium, long",
		"backends: {timeslice: {gpus: [0], replicas: 0}}":               "agent.yaml:3: backends.timeslice.replicas: \"0\" is not a whole number from 1 to 1024",
		"backends: {timeslice: {gpus: [0], replicas: -2}}":              "agent.yaml:3: backends.timeslice.replicas: \"-2\" is not a whole number from 1 to 1024",
		"backends: {timeslice: {gpus: [0], multiUser: true}}":           "agent.yaml:3: backends.timeslice.multiUser: unknown field; known here: gpus, replicas, slice",
		"backends: {mps: {gpus: [0], slice: short}}":                    "agent.yaml:3: backends.mps.slice: unknown field; known here: gpus, multiUser, replicas",
		"backends: {mps: {gpus: [0], multiUser: 1}}":                    "agent.yaml:3: backends.mps.multiUser: must be true or false",
		"backends: {mps: [{gpus: [0]}, 1]}":                             "agent.yaml:3: backends.mps[1]: must be such as {gpus: [1], replicas: 4}, as the one before",
		"backends: {mps: {gpus: all}, slice: {gpus: all}}":              "agent.yaml:3: backends.slice.gpus: names the same GPU as backends.mps.gpus",
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

// What is given with a backend holds for the GPUs beside it.
func TestForms(t *testing.T) {
	c := parse(t, "backends:\n  timeslice: [{gpus: [0], slice: short, replicas: 4}, {gpus: ["+uuidB+"]}]\n  mps: {gpus: all, multiUser: true}\n  slice: {gpus: [3], replicas: 2}")
	for gpu, want := range map[GPU]Form{
		{0, uuidA}:   {Backend: v1alpha1.BackendTimeslice, Slice: "short", Replicas: 4},
		{1, uuidB}:   {Backend: v1alpha1.BackendTimeslice},
		{2, "GPU-c"}: {Backend: v1alpha1.BackendMPS, MultiUser: true},
		{3, "GPU-d"}: {Backend: v1alpha1.BackendSlice, Replicas: 2},
	} {
		got, ok := c.Form(gpu)
		if !ok || got != want || got.Check() != nil {
			t.Errorf("%v: %+v, %v, %v, want %+v", gpu, got, ok, got.Check(), want)
		}
	}
	if err := c.Check(Machine{GPUs: 4, Named: []GPU{{0, uuidA}, {1, uuidB}, {2, "GPU-c"}, {3, "GPU-d"}}}); err != nil {
		t.Error(err)
	}
}

func TestFormsThatMakeNoSense(t *testing.T) {
	for _, f := range []Form{
		{}, {Backend: "vgpu"}, {Backend: v1alpha1.BackendSlice, Slice: "short"}, {Backend: v1alpha1.BackendTimeslice, Slice: "brief"},
		{Backend: v1alpha1.BackendTimeslice, Replicas: -1}, {Backend: v1alpha1.BackendTimeslice, Replicas: MaxReplicas + 1}, {Backend: v1alpha1.BackendTimeslice, MultiUser: true},
	} {
		if f.Check() == nil {
			t.Errorf("%+v is valid", f)
		}
	}
}
