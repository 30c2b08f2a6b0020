package migfile

import (
	"errors"
	"reflect"
	"strings"
	"testing"
)

const example = `version: v1
mig-configs:
  all-disabled:
  - devices: all
    mig-enabled: false
  mixed:
  - device-filter: ["0x233010DE", "0x20B010DE"]
    devices: [0, 2]
    mig-enabled: true
    mig-devices: {"1g.10gb": 2, "1g.10gb+me": 1, "3g.40gb": 1, "2g.20gb": 0}
  - device-filter: "0x233010DE"
    devices: [1]
    mig-enabled: true
  empty:
  - {devices: all, device-filter: 0x1234, mig-enabled: true, mig-devices: {}}
`

func TestParse(t *testing.T) {
	f, err := Parse([]byte(example))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string][]Entry{
		"all-disabled": {{All: true}},
		"mixed": {
			{Filter: []uint32{0x233010DE, 0x20B010DE}, Devices: []int{0, 2}, Enabled: true, Instances: map[string]int{"1g.10gb": 2, "1g.10gb+me": 1, "3g.40gb": 1}},
			{Filter: []uint32{0x233010DE}, Devices: []int{1}, Enabled: true},
		},
		"empty": {{All: true, Filter: []uint32{0x1234}, Enabled: true, Instances: map[string]int{}}},
	}
	if !reflect.DeepEqual(f.Configs, want) {
		t.Errorf("read %+v, want %+v", f.Configs, want)
	}
}

func TestFaultsOfFiles(t *testing.T) {
	entry := func(fields string) string {
		return "version: v1\nmig-configs:\n  a:\n  - {" + fields + "}\n"
	}
	for content, want := range map[string]string{
		"": "empty",
		"version: v2\nmig-configs: {a: [{devices: all, mig-enabled: true}]}": `"v2" is not v1`,
		"version: v1\n":                                                                         "it has none",
		"version: v1\nmig-configs: {a: []}":                                                     "must be a list",
		"version: v1\nmig-configs: {a: 3}":                                                      "must be a list",
		"version: v1\nmig-configs: {a: [3]}":                                                    "must have fields",
		"version: v1\nhooks: {apply-start: []}\nmig-configs: {}":                                "Divvy starts none",
		"version: v1\nmig-config: {}":                                                           `line 2: unknown field "mig-config": use version, mig-configs`,
		"a: [":                                                                                  "line",
		entry("devices: all"):                                                                   "give true or false",
		entry("devices: some, mig-enabled: true"):                                               "must be all or a list",
		entry("devices: [], mig-enabled: true"):                                                 "must be all or a list",
		entry("devices: [0, -1], mig-enabled: true"):                                            `"-1" is no index`,
		entry("devices: [0, 0], mig-enabled: true"):                                             "names GPU 0 twice",
		entry("mig-enabled: true"):                                                              "must be all or a list",
		entry("devices: all, mig-enabled: 7"):                                                   "cannot unmarshal",
		entry("devices: all, mig-enabled: true, mig-device: {}"):                                `unknown field "mig-device"`,
		entry("devices: all, mig-enabled: true, mig-devices: {gpu: 1}"):                         `"gpu" is no profile`,
		entry("devices: all, mig-enabled: true, mig-devices: {1c.3g.40gb: 1}"):                  "a part of an instance",
		entry("devices: all, mig-enabled: true, mig-devices: {1g.10gb: -1}"):                    "-1 instances",
		entry("devices: all, mig-enabled: true, mig-devices: {1g.10gb: 65}"):                    "65 instances",
		entry("devices: all, mig-enabled: false, mig-devices: {1g.10gb: 1}"):                    "mig-enabled is false",
		entry("devices: all, mig-enabled: true, device-filter: H100"):                           `"H100" is no device id`,
		entry("devices: all, mig-enabled: true, device-filter: []"):                             "a device id or a list",
		entry("devices: all, mig-enabled: true") + "---\nversion: v1\n":                         "more than one document",
		entry("devices: all, mig-enabled: true, mig-devices: {1g.10gb: 1, 1g.10gb: 2}"):         "already defined",
		"version: v1\nmig-configs: {a: [{devices: all, mig-enabled: true, mig-devices: [3g]}]}": "cannot unmarshal",
		strings.Repeat("#", MaxBytes+1):                                                         "larger than",
	} {
		if f, err := Parse([]byte(content)); !errors.Is(err, ErrFile) || !strings.Contains(err.Error(), want) {
			t.Errorf("%.120q: %v, %v; want an error with %q", content, f, err, want)
		}
	}
}

func TestSelect(t *testing.T) {
	f, err := Parse([]byte(example))
	if err != nil {
		t.Fatal(err)
	}
	f.Configs["twice"] = []Entry{{All: true}, {Devices: []int{1}}}
	h100, a100 := uint32(0x233010DE), uint32(0x20B010DE)
	machine := []GPU{{0, h100}, {1, a100}, {2, a100}}
	for name, want := range map[string]string{
		"none":  "it has all-disabled, empty, mixed, twice",
		"empty": "take no GPU",
		"twice": "an entry before it takes GPU 1 too",
	} {
		if _, err := f.Select(name, machine); !errors.Is(err, ErrFile) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want an error with %q", name, err, want)
		}
	}
	if _, err := f.Select("mixed", machine[:2]); !errors.Is(err, ErrFile) || !strings.Contains(err.Error(), "no GPU 2") {
		t.Errorf("a GPU that is not there: %v", err)
	}
	chosen, err := f.Select("mixed", machine)
	mixed := f.Configs["mixed"]
	if want := map[int]Entry{0: mixed[0], 2: mixed[0]}; err != nil || !reflect.DeepEqual(chosen, want) {
		t.Errorf("chosen %+v, %v; want %+v: GPU 1 is no H100", chosen, err, want)
	}
}

// What was exported is read as what the GPUs have.
func TestExport(t *testing.T) {
	states := []State{
		{Index: 0, Enabled: true, Instances: map[string]int{"1g.10gb": 3, "1g.10gb+me": 1}},
		{Index: 1},
		{Index: 2, Enabled: true, Instances: map[string]int{"1g.10gb": 3, "1g.10gb+me": 1}},
		{Index: 3, Enabled: true, Instances: map[string]int{}},
	}
	written := Export("current", states)
	want := `version: v1
mig-configs:
  current:
  - devices: [0, 2]
    mig-enabled: true
    mig-devices:
      "1g.10gb": 3
      "1g.10gb+me": 1
  - devices: [1]
    mig-enabled: false
  - devices: [3]
    mig-enabled: true
    mig-devices: {}
`
	if string(written) != want {
		t.Errorf("written:\n%s\nwant:\n%s", written, want)
	}
	f, err := Parse(written)
	if err != nil {
		t.Fatal(err)
	}
	chosen, err := f.Select("current", []GPU{{Index: 0}, {Index: 1}, {Index: 2}, {Index: 3}})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range states {
		if e := chosen[s.Index]; !(State{Index: s.Index, Enabled: e.Enabled, Instances: e.Instances}).equal(s) {
			t.Errorf("GPU %d is read as %+v, want %+v", s.Index, e, s)
		}
	}
	if alike := string(Export("current", []State{{Index: 0}, {Index: 1}})); !strings.Contains(alike, "devices: all\n") {
		t.Errorf("GPUs that are all alike: %s", alike)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(example))
	f.Add(Export("a", []State{{Index: 1, Enabled: true, Instances: map[string]int{"7g.80gb": 1}}}))
	f.Fuzz(func(t *testing.T, content []byte) {
		file, err := Parse(content)
		if err != nil {
			if !errors.Is(err, ErrFile) {
				t.Errorf("%v is no %v", err, ErrFile)
			}
			return
		}
		for _, name := range file.Names() {
			for _, e := range file.Configs[name] {
				for profile, n := range e.Instances {
					if n < 1 || !e.Enabled {
						t.Errorf("%s: %d of %s, enabled %v", name, n, profile, e.Enabled)
					}
				}
			}
		}
	})
}
