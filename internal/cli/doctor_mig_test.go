package cli

import (
	"slices"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/doctor"
)

func TestDoctorOfMIG(t *testing.T) {
	own := control.Info{Ephemeral: true, UID: 1000, User: "ada"}
	instance := func(origin backend.Origin, half string) *control.Divided {
		part := backend.Part{Instance: backend.Instance{Profile: "1g.10gb", Start: 2, Size: 1, GPUInstance: 9}, Origin: origin, Half: half}
		return &control.Divided{On: true, Pending: true, Instances: []control.Instance{{Part: part}}}
	}
	slice := func(value string) []control.GPUMode { return []control.GPUMode{{Mode: "time-slice", Value: value}} }
	for name, c := range map[string]struct {
		info control.Info
		gpu  control.Formed
		want []doctor.Check // found and next are parts
	}{
		"no MIG":                {own, control.Formed{}, nil},
		"MIG off":               {own, control.Formed{Modes: slice("long"), MIG: &control.Divided{}}, nil},
		"instances are made":    {control.Info{}, control.Formed{Form: "mig", MIG: &control.Divided{On: true, Pending: true}}, nil},
		"nobody makes them":     {own, control.Formed{MIG: &control.Divided{On: true, Pending: true}}, []doctor.Check{{Status: doctor.Warn, Found: "without instances, and the agent, which is ada's own", Next: "divvy agent"}}},
		"a fixed layout":        {control.Info{}, control.Formed{Layout: "fixed", MIG: &control.Divided{On: true, Pending: true}}, []doctor.Check{{Status: doctor.Warn, Found: "keeps its layout fixed", Next: "divvy gpu apply"}}},
		"ours":                  {control.Info{}, control.Formed{MIG: instance(backend.OriginLayout, "")}, nil},
		"another tool's":        {control.Info{}, control.Formed{MIG: instance(backend.OriginForeign, "")}, []doctor.Check{{Status: doctor.OK, Found: "another tool made 1g.10gb at memory slice 2"}}},
		"left by another tool":  {control.Info{}, control.Formed{MIG: instance(backend.OriginForeign, "no compute instance")}, []doctor.Check{{Status: doctor.Warn, Found: "another tool left 1g.10gb at memory slice 2", Next: "`nvidia-smi mig -i 0 -gi 9 -dci` where it has a compute instance, then `nvidia-smi mig -i 0 -gi 9 -dgi`"}}},
		"half made":             {control.Info{}, control.Formed{MIG: instance(backend.OriginShare, "no compute instance")}, []doctor.Check{{Status: doctor.Warn, Found: "is half made", Next: "start the agent again"}}},
		"pending":               {control.Info{}, control.Formed{Index: 4, MIG: &control.Divided{Pending: true}}, []doctor.Check{{Status: doctor.Warn, Found: "is off and will be on", Next: "divvy gpu set 4 --mig off"}}},
		"not known":             {control.Info{}, control.Formed{MIG: &control.Divided{Unknown: "no answer"}}, []doctor.Check{{Status: doctor.Warn, Found: "is not known: no answer", Next: "nvidia-smi"}}},
		"given and off":         {control.Info{}, control.Formed{Index: 2, Form: "mig", Given: control.GivenByFile, MIG: &control.Divided{}}, []doctor.Check{{Status: doctor.Warn, Found: "its MIG mode is off", Next: "divvy gpu set 2 --mig on"}}},
		"given and impossible":  {control.Info{}, control.Formed{Form: "mig", Given: control.GivenByFile}, []doctor.Check{{Status: doctor.Warn, Found: "it has no MIG", Next: "agent.yaml"}}},
		"slices without effect": {control.Info{}, control.Formed{Modes: slice("long"), MIG: &control.Divided{On: true, Pending: true}}, []doctor.Check{{Status: doctor.Warn, Found: "set to long, which has no effect", Next: "--set-timeslice=0"}}},
		"usual slices":          {control.Info{}, control.Formed{Modes: slice("default"), MIG: &control.Divided{On: true, Pending: true}}, nil},
	} {
		checks := migChecks(&control.Forms{Info: c.info, GPUs: []control.Formed{c.gpu}})
		if !slices.EqualFunc(checks, c.want, func(got, want doctor.Check) bool {
			return got.Status == want.Status && strings.Contains(got.Found, want.Found) && strings.Contains(got.Next, want.Next) && (got.Next == "") == (want.Next == "")
		}) {
			t.Errorf("%s: %+v, want %+v", name, checks, c.want)
		}
	}
	if checks := migChecks(nil); checks != nil {
		t.Errorf("of an agent that tells no forms: %+v", checks)
	}
}

// Instances of which the machine has no files are told of, by whichever machine the agent serves.
func TestDoctorOfCapabilities(t *testing.T) {
	whole := control.Instance{Part: backend.Part{Instance: backend.Instance{GPUInstance: 1}}}
	half := control.Instance{Part: backend.Part{Instance: backend.Instance{GPUInstance: 2}, Half: "no compute instance"}}
	forms := &control.Forms{GPUs: []control.Formed{{MIG: &control.Divided{On: true, Instances: []control.Instance{half}}}}}
	if checks := capabilityChecks(forms, t.TempDir()); len(checks) != 0 {
		t.Errorf("of a half-made instance: %+v", checks)
	}
	forms.GPUs[0].MIG.Instances = append(forms.GPUs[0].MIG.Instances, whole)
	if checks := capabilityChecks(forms, t.TempDir()); len(checks) != 1 || !strings.Contains(checks[0].Found, "MIG instances cannot be given") {
		t.Errorf("%+v", checks)
	}
}

// Which daemon serves a GPU of form mps is told, and that none does.
func TestDoctorOfMPS(t *testing.T) {
	forms := &control.Forms{GPUs: []control.Formed{{Index: 0, UUID: "GPU-0", Form: "slice"}, {Index: 1, UUID: "GPU-1", Form: "mps"}}}
	checks := mpsChecks(forms, t.TempDir())
	if len(checks) != 1 || checks[0].Name != "MPS on GPU 1" || checks[0].Status != doctor.Warn || checks[0].Next == "" {
		t.Errorf("%+v", checks)
	}
}
