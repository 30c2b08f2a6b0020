package cli

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/backend"
)

// migLab are GPUs that MIG divides in every way, and two that it does not.
func migLab() *control.Forms {
	part := func(uuid, profile string, start, size int, origin backend.Origin) backend.Part {
		return backend.Part{
			Origin: origin,
			Instance: backend.Instance{
				UUID: uuid, Parent: "GPU-h0", Profile: profile, Start: start, Size: size, GPUInstance: 3 + start,
				Bytes: uint64(size) * 10 << 30, Multiprocessors: 16 * size,
			},
		}
	}
	half := part("", "1g.10gb", 3, 1, backend.OriginForeign)
	half.Half = "it has no compute instance"
	divided := &control.Divided{
		On: true, Pending: true,
		Profiles: []control.Profile{
			{Name: "1g.10gb", Bytes: 10 << 30, Multiprocessors: 16, Size: 1, Free: []int{1, 2}},
			{Name: "3g.40gb", Bytes: 40 << 30, Multiprocessors: 60, Size: 4},
		},
		Instances: []control.Instance{
			{Part: part("MIG-a", "1g.10gb", 0, 1, backend.OriginShare), Backend: "mig", Shares: []control.FormedShare{{Name: "eval", User: "ada"}}},
			{Part: half},
			{Part: part("MIG-b", "3g.40gb", 4, 4, backend.OriginLayout), Backend: "slice", Shares: []control.FormedShare{{Name: "train", User: "ada"}, {Name: "serve", User: "bob"}}},
			{Part: part("MIG-c", "1g.10gb", 8, 1, backend.OriginForeign), Outside: []control.Outside{{PID: 77}}},
		},
	}
	return &control.Forms{Info: control.Info{PID: 7, User: "root", Driver: "550.54.15"}, GPUs: []control.Formed{
		{Index: 0, UUID: "GPU-h0", Name: "H100", DeviceID: 0x233010DE, Form: "mig", Given: control.GivenByFile, Layout: "fixed", MIG: divided, Shares: []control.FormedShare{{Name: "eval", User: "ada"}, {Name: "train", User: "ada"}, {Name: "serve", User: "bob"}}},
		{Index: 1, UUID: "GPU-h1", Name: "H100", DeviceID: 0x233010DE, MIG: &control.Divided{Pending: true}},
		{Index: 2, UUID: "GPU-h2", Name: "H100", DeviceID: 0x233010DE, MIG: &control.Divided{Unknown: "the driver does not answer"}},
		{Index: 3, UUID: "GPU-t4", Name: "T4", DeviceID: 0x1EB810DE, Form: "slice", Given: control.GivenByFile},
	}}
}

func TestInstancesOfGPUs(t *testing.T) {
	var table strings.Builder
	formsList{Machines: []machineForms{{Forms: migLab()}}}.print(&table, true)
	golden(t, "gpu-ls-mig.table", table.String())
	var text bytes.Buffer
	if err := format("json").print(&text, formsList{Machines: []machineForms{{Forms: migLab()}}}, nil); err != nil {
		t.Fatal(err)
	}
	golden(t, "gpu-ls-mig.json", text.String())
	table.Reset()
	printProfiles(&table, migLab().GPUs[3:])
	if !strings.Contains(table.String(), "No GPU here is in MIG mode") {
		t.Errorf("without profiles: %s", table.String())
	}
}

// on runs a command line on the agents of a run directory.
func (l *line) on(args ...string) (status int, out, errOut string) {
	var stdout, stderr bytes.Buffer
	a := &app{rundir: l.dir, out: &stdout, err: &stderr}
	status = a.execute(args)
	return status, stdout.String(), stderr.String()
}

func TestMIGModeIsTurned(t *testing.T) {
	l := succession(t, deeds{control.MethodMIGMode: func() (any, error) {
		formed := control.Formed{Index: 1, Name: "H100", Form: "mig", MIG: &control.Divided{On: true, Pending: true}}
		return awaiting{[]string{"GPU 1 has shares: ada/train", "GPU 1: in use by dcgm"}, formed}, nil
	}})
	status, out, errOut := l.on("gpu", "set", "1", "--mig", "on", "--wait")
	if status != 0 || !strings.Contains(out, "MIG MODE") || !strings.Contains(out, "mig") {
		t.Errorf("status %d, %s%s", status, out, errOut)
	}
	if want := "divvy: waiting: GPU 1 has shares: ada/train\ndivvy: waiting: GPU 1: in use by dcgm\n"; errOut != want {
		t.Errorf("told %q, want %q", errOut, want)
	}
	if want := []string{`mig-mode {"gpu":"1","on":true,"wait":true}`}; !slices.Equal(l.asked, want) {
		t.Errorf("asked %q, want %q", l.asked, want)
	}
}

const layoutFile = `version: v1
mig-configs:
  small:
  - {devices: [0], mig-enabled: true, mig-devices: {1g.10gb: 2, 3g.40gb: 1, 2g.20gb: 1}}
  - {devices: [1], mig-enabled: true, mig-devices: {1g.10gb: 1}}
  - {devices: [3], mig-enabled: false}
  same:
  - {devices: [3], mig-enabled: false}
  plain:
  - {devices: [3], mig-enabled: true}
  filtered:
  - {devices: all, device-filter: "0x1EB810DE", mig-enabled: false}
`

// layoutsIn writes a file of layouts.
func layoutsIn(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "layouts.yaml")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// rearranging is an agent that works out or makes layouts: of the first GPU an instance moves, the second one changes its mode.
func rearranging(fault error) deeds {
	gpu := 0
	return deeds{
		control.MethodForms: func() (any, error) { return migLab(), nil },
		control.MethodLayout: func() (any, error) {
			gpu++
			if gpu%2 == 1 {
				return control.Rearrangement{
					Index: 0, UUID: "GPU-h0", Remove: []control.Placement{{UUID: "MIG-x", Profile: "1g.10gb", Start: 1}},
					Add: []control.Placement{{Profile: "2g.20gb", Start: 0}},
				}, nil
			}
			return control.Rearrangement{Index: 1, UUID: "GPU-h1", Mode: new(true), Add: []control.Placement{{Profile: "1g.10gb", Start: -1}}}, fault
		},
	}
}

// What there is to do is printed for all GPUs before anything is done, and nothing is done where one of them cannot be.
func TestLayoutIsApplied(t *testing.T) {
	file := layoutsIn(t, layoutFile)
	dry := []string{
		`forms `,
		`layout {"gpu":"GPU-h0","on":true,"instances":{"1g.10gb":2,"2g.20gb":1,"3g.40gb":1},"dry":true}`,
		`layout {"gpu":"GPU-h1","on":true,"instances":{"1g.10gb":1},"dry":true}`,
	}
	done := slices.Concat(dry, []string{
		`layout {"gpu":"GPU-h0","on":true,"instances":{"1g.10gb":2,"2g.20gb":1,"3g.40gb":1}}`,
		`layout {"gpu":"GPU-h1","on":true,"instances":{"1g.10gb":1}}`,
	})
	refused := errors.New("GPU 1 cannot have it: instance MIG-y has to stay: share train of ada is on it")
	for name, c := range map[string]struct {
		args   []string
		fault  error
		status int
		asked  []string
	}{
		"for real":  {nil, nil, 0, done},
		"dry":       {[]string{"--dry-run"}, nil, 0, dry},
		"refused":   {nil, refused, 1, dry},
		"fails":     {nil, nil, 1, done},
		"no change": {[]string{"--config", "same"}, nil, 0, dry[:1]},
	} {
		agent := rearranging(c.fault)
		if lay := agent[control.MethodLayout]; name == "fails" {
			n := 0
			agent[control.MethodLayout] = func() (any, error) {
				if n++; n == 4 {
					return nil, errors.New("GPU 1 keeps its layout: the driver failed")
				}
				return lay()
			}
		}
		l := succession(t, agent)
		status, out, errOut := l.on(append([]string{"gpu", "apply", "-f", file, "--config", "small"}, c.args...)...)
		if status != c.status || !slices.Equal(l.asked, c.asked) {
			t.Errorf("%s: status %d, asked %q, want %q; %s", name, status, l.asked, c.asked, errOut)
		}
		switch {
		case c.fault != nil && (!strings.Contains(errOut, "nothing was changed") || !strings.Contains(errOut, "share train of ada")):
			t.Errorf("%s: %s", name, errOut)
		case name == "fails" && errOut != "divvy: GPU 1 keeps its layout: the driver failed; 1 of 2 GPUs have the new one\n":
			t.Errorf("%s: %s", name, errOut)
		case name == "for real":
			golden(t, "gpu-apply.text", out)
		}
	}
}

func TestLayoutIsCompared(t *testing.T) {
	file := layoutsIn(t, layoutFile)
	for config, want := range map[string]int{"small": 1, "same": 0, "filtered": 0, "plain": 2, "none": 2} {
		l := succession(t, rearranging(nil))
		status, out, errOut := l.on("gpu", "diff", "-f", file, "--config", config)
		if status != want {
			t.Errorf("%s: status %d, want %d: %s%s", config, status, want, out, errOut)
		}
		if (status == 2) != (errOut != "") || (status == 1) != (out != "") {
			t.Errorf("%s: status %d, output %q, error %q", config, status, out, errOut)
		}
		if config == "small" {
			golden(t, "gpu-diff.table", out)
		}
	}
}

func TestLayoutIsExported(t *testing.T) {
	known := migLab()
	known.GPUs = slices.Delete(known.GPUs, 2, 3)
	l := succession(t, deeds{control.MethodForms: func() (any, error) { return known, nil }})
	status, out, errOut := l.on("gpu", "export", "--config", "lab")
	if status != 0 || !strings.Contains(errOut, "GPU 0: left out is 1g.10gb at memory slice 3: it has no compute instance") {
		t.Errorf("status %d, %s", status, errOut)
	}
	golden(t, "gpu-export.yaml", out)
	l = succession(t, deeds{control.MethodForms: func() (any, error) { return migLab(), nil }})
	if status, out, errOut := l.on("gpu", "export"); status == 0 || out != "" || !strings.Contains(errOut, "how MIG divides GPU 2 is not known: the driver does not answer") {
		t.Errorf("of a GPU that is not known: status %d, %s%s", status, out, errOut)
	}
}

// What is wrong with the file is said before a GPU is asked to change.
func TestFaultsOfLayouts(t *testing.T) {
	for want, args := range map[string][]string{
		"say which file":                       {"apply"},
		"no such file":                         {"apply", "-f", filepath.Join(t.TempDir(), "none.yaml")},
		"file is empty":                        {"apply", "-f", layoutsIn(t, "")},
		`unknown field "mig-device"`:           {"diff", "-f", layoutsIn(t, "version: v1\nmig-configs: {a: [{devices: all, mig-enabled: true, mig-device: {}}]}")},
		"name one with --config: filtered":     {"apply", "-f", layoutsIn(t, layoutFile)},
		"no configuration \"huge\"":            {"apply", "-f", layoutsIn(t, layoutFile), "--config", "huge"},
		"has no MIG, and the layout turns":     {"apply", "-f", layoutsIn(t, layoutFile), "--config", "plain"},
		"how MIG divides GPU 2 is not known":   {"apply", "-f", layoutsIn(t, "version: v1\nmig-configs: {a: [{devices: [2], mig-enabled: true}]}")},
		"this machine has no GPU 9":            {"apply", "-f", layoutsIn(t, "version: v1\nmig-configs: {a: [{devices: [9], mig-enabled: true}]}")},
		"its filters take no GPU of this mach": {"diff", "-f", layoutsIn(t, "version: v1\nmig-configs: {a: [{devices: all, device-filter: 0x20B010DE, mig-enabled: true}]}")},
	} {
		l := succession(t, rearranging(nil))
		status, out, errOut := l.on(append([]string{"gpu"}, args...)...)
		if status == 0 || out != "" || !strings.Contains(errOut, want) {
			t.Errorf("%v: status %d, %s%s; want %q", args, status, out, errOut, want)
		}
		if slices.ContainsFunc(l.asked, func(asked string) bool { return strings.HasPrefix(asked, "layout") }) {
			t.Errorf("%v: asked %q", args, l.asked)
		}
	}
}

// Without an agent there is a document all the same.
func TestFormsWithoutAnAgent(t *testing.T) {
	status, out, errOut := call(t, "gpu", "ls", "-o", "json")
	if status != 0 || errOut != "" || strings.TrimSpace(out) != "{\n  \"machines\": []\n}" {
		t.Errorf("status %d, %s%s", status, out, errOut)
	}
	if status, out, _ := call(t, "gpu", "ls"); status != 0 || !strings.Contains(out, "No agent runs") {
		t.Errorf("status %d, %s", status, out)
	}
}
