package cli

import (
	"bytes"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/cli/program"
)

// formsOfALab are GPUs in every form.
func formsOfALab() []machineForms {
	mode := func(name, value, made, before string) control.GPUMode {
		return control.GPUMode{Mode: name, Value: value, Made: made, Before: before}
	}
	return []machineForms{{Forms: &control.Forms{Info: control.Info{Driver: "550.54.15"}, GPUs: []control.Formed{
		{Index: 0, UUID: "GPU-a", Name: "A100", Form: "timeslice", Given: control.GivenByHand, Slice: "short", Replicas: 4,
			Modes:  []control.GPUMode{mode("compute-mode", "default", "", ""), mode("time-slice", "short", "short", "default")},
			Shares: []control.FormedShare{{Name: "train", User: "ada"}, {Name: "serve", User: "bob"}}},
		{Index: 1, UUID: "GPU-b", Name: "A100", Form: "mps", Given: control.GivenByFile, MultiUser: true,
			Modes: []control.GPUMode{mode("compute-mode", "prohibited", "exclusive-process", "default"), {Mode: "time-slice", Unknown: "no tool"}},
			Fault: "the MPS control daemon does not answer"},
		{Index: 2, UUID: "GPU-c", Name: "A100", Form: "slice", Shares: []control.FormedShare{{Name: "eval", User: "ada"}}},
		{Index: 3, UUID: "GPU-d", Name: "A100", Outside: []control.Outside{{PID: 41}}},
	}}}}
}

func TestFormsOfGPUs(t *testing.T) {
	var table strings.Builder
	printForms(&table, formsOfALab(), false)
	golden(t, "gpu-ls.table", table.String())
	var text bytes.Buffer
	if err := format("json").print(&text, formsList{Machines: formsOfALab()}, nil); err != nil {
		t.Fatal(err)
	}
	golden(t, "gpu-ls.json", text.String())
}

// What makes no sense is refused before an agent is asked.
func TestArgumentsOfGPUSet(t *testing.T) {
	for line, want := range map[string]string{
		"gpu":                              "say what to do",
		"gpu set":                          "one GPU",
		"gpu set 0":                        "say which form",
		"gpu set 0 1 --form slice":         "one GPU",
		"gpu set 0 --form mig":             "use --mig on",
		"gpu set 0 --form vgpu":            `backend "vgpu": use slice, timeslice, mps`,
		"gpu set 0 --mig maybe":            "use on or off",
		"gpu set 0 --mig on --form slice":  "leave out --form",
		"gpu set 0 --mig off --replicas 2": "leave out --form",
		"gpu apply":                        "say which file",
		"gpu diff":                         "say which file",
		"gpu apply -f x y":                 "give no arguments",
		"gpu set 0 --form timeslice --slice brief":     `slice "brief": use default, short, medium, long`,
		"gpu set 0 --form mps --slice short":           "slice is for timeslice",
		"gpu set 0 --form timeslice --slice=":          "--slice is empty",
		"gpu set 0 --form timeslice --replicas 0":      "--replicas 0: give 1 to 1024",
		"gpu set 0 --form timeslice --replicas -1":     "--replicas -1: give 1 to 1024",
		"gpu set 0 --form slice --replicas 5000":       "5000 replicas: use 1 to 1024",
		"gpu set 0 --form timeslice --multi-user":      "multiUser is for backend mps",
		"gpu set 0 --form none --replicas 2":           "--form none is given with nothing",
		"gpu ls extra":                                 "extra",
		"gpu ls -o xml":                                "xml",
		"gpu set 0 --form slice --simgpu no-such-gpus": "no-such-gpus",
	} {
		var out, errOut bytes.Buffer
		a := &app{rundir: t.TempDir(), out: &out, err: &errOut}
		status := a.execute(strings.Fields(line))
		if status == 0 || !strings.Contains(errOut.String(), want) {
			t.Errorf("%s: status %d, %s; want %q", line, status, errOut.String(), want)
		}
		if !strings.Contains(line, "no-such") && status != program.ExitUsage {
			t.Errorf("%s: status %d, want that of wrong usage", line, status)
		}
	}
}
