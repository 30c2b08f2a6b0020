package simgpu

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestEmbeddedMachinesAreValid(t *testing.T) {
	names := Names()
	if len(names) < 4 {
		t.Errorf("only %v are embedded", names)
	}
	for _, name := range names {
		machine, err := Load(name)
		if err != nil {
			t.Error(err)
			continue
		}
		if machine.Name != name || machine.Description == "" {
			t.Errorf("%s.yaml describes %q: %q", name, machine.Name, machine.Description)
		}
	}
}

// file is the text of t4.yaml with one piece replaced.
func file(t *testing.T, old, replacement string) []byte {
	t.Helper()
	content, _, err := Source("t4")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(content), old) {
		t.Fatalf("t4.yaml has no %q", old)
	}
	return []byte(strings.Replace(string(content), old, replacement, 1))
}

func TestFaultsSayWhereAndWhat(t *testing.T) {
	cases := []struct{ old, replacement, want string }{
		{"kind: SimulatedMachine", "kind: Machine", `lab.yaml:2: kind: "Machine" is none of SimulatedMachine`},
		{"v1alpha1", "v2", `lab.yaml:1: apiVersion: "divvy.dev/v2" is none of divvy.dev/v1alpha1`},
		{"name: t4", "name: T4", `lab.yaml:3: name: "T4" is not of the form`},
		{"lag: 300ms", "lag: 300ms, processes: secret", `sampling.processes: "secret" is none of foreign, hidden, told`},
		{"lag: 300ms", "lag: 300ms, processLag: 9s", `sampling.processLag`},
		{"name: t4", "name: t4\ndeadHandles: forgive", `lab.yaml:4: deadHandles: "forgive" is none of count, end, reuse`},
		{"name: t4", "name: t4\nmanaged: {duplex: both}", `lab.yaml:4: managed.duplex: "both" is none of full, half`},
		{"name: t4", "name: t4\nmanaged: {kernels: all}", `lab.yaml:4: managed.kernels: "all" is none of named, nothing`},
		{"name: t4", "name: t4\nmanaged: {fault: 2m, batch: 99999}", `lab.yaml:4: managed.fault: 2m0s is not between 0s and 1m0s`},
		{"name: t4", "name: t4\nmanaged: {hostMemory: 1Mi, scattered: 1}", `lab.yaml:4: managed.hostMemory: 1Mi is not between 2Mi and`},
		{"  memory: 15Gi", "  memory: 15GiB", `lab.yaml:11: invalid amount of memory`},
		{"  memory: 15Gi", "  memory: 150%", `lab.yaml:11: invalid amount of memory`},
		{"  memory: 15Gi", "  memory: 50%", `lab.yaml:11: "50%": a machine's memory cannot be a percentage`},
		{"  memory: 15Gi", "  memory: 0", `lab.yaml:11: invalid amount of memory`},
		{"  memory: 15Gi", "  memory: 1Mi", `lab.yaml:11: gpu.memory: 1Mi is not between 64Mi and 4Ti`},
		{"reserved: 430Mi", "reserved: 431Mi", `lab.yaml:12: gpu.reserved: 431Mi of 15Gi leaves`},
		{"reserved: 430Mi", "reserved: 16Gi", `lab.yaml:12: gpu.reserved: 16Gi leaves nothing of 15Gi`},
		{"context: 104Mi", "context: 15Gi", `lab.yaml:13: gpu.context: 15Gi is more than`},
		{"multiprocessors: 40", "multiprocessors: many", `lab.yaml:15: "many" is not a whole number`},
		{"multiprocessors: 40", "multiprocessors: [40]", `lab.yaml:15: must be a whole number`},
		{"ecc: true", "ecc: perhaps", `lab.yaml:22: "perhaps" is not true or false`},
		{"ecc: true", "ecc: true\n  ecc: true", `lab.yaml:23: gpu.ecc: given twice`},
		{"ecc: true", "eec: true", `lab.yaml:22: gpu.eec: unknown field; known here: architecture,`},
		{"kernel: 100us", "kernel: fast", `lab.yaml:24: "fast" is not a duration such as 100us`},
		{"kernel: 100us", "kernel: -1us", `lab.yaml:24: costs.kernel: -1µs is not between 0s and 1m0s`},
		{"[{cpus: 0-7}]", "[{cpus: 7-0}]", `lab.yaml:26: numaNodes[0].cpus: CPUs 7-0`},
		{"[{cpus: 0-7}]", "[]", `lab.yaml:26: numaNodes: 0 is not between 1 and 16`},
		{"numaNode: 0}", "numaNode: 1}", `lab.yaml:28: gpus[0].numaNode: 1, but the machine has 1 NUMA nodes`},
		{"hostBridge: \"pci0000:00\"", "switch: \"0000:01:00.0\"", `lab.yaml:28: gpus[0].switch: no switch has the address`},
		{"numaNode: 0}", "numaNode: 0, migMode: true}", `lab.yaml:28: gpus[0].migMode: the model has no MIG`},
		{`pci: "0000:00:1e.0"`, "pci: 0:1e", `lab.yaml:28: gpus[0].pci: "0:1e" is not of the form`},
		{"gpus:", "nvlink: {switches: 2}\ngpus:", `lab.yaml:27: nvlink: switches and links come together`},
		{"gpus:", "nvlink: {pairs: [{gpus: [0, 0], links: 1}]}\ngpus:", `lab.yaml:27: nvlink.pairs[0].gpus: must be two different numbers`},
		{"gpus:", "gpus: &a\n  - *a", "lab.yaml"},
		{"gpus:", "gpus", "lab.yaml:"},
		{"apiVersion", "---\n---\napiVersion", "more than one document"},
	}
	for _, c := range cases {
		_, err := Parse("lab.yaml", file(t, c.old, c.replacement))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q instead of %q:\n got %v\nwant %s", c.replacement, c.old, err, c.want)
		}
	}
}

func TestAllFaultsAreReported(t *testing.T) {
	content := file(t, "ecc: true", "ecc: true\n  colour: green")
	_, err := Parse("lab.yaml", content, "gpu.memory=1Mi", "costs.queue=0", "numaNodes[0].cpus=x")
	var joined interface{ Unwrap() []error }
	if !errors.As(err, &joined) {
		t.Fatal(err)
	}
	want := []string{
		"lab.yaml:23: gpu.colour: unknown field",
		"--set: gpu.memory: 1Mi is not between",
		"--set: costs.queue: 0 is not between",
		"--set: numaNodes[0].cpus: \"x\" is not of the form",
	}
	for _, text := range want {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("the fault %q is missing from:\n%v", text, err)
		}
	}
}

func TestOverridesReplaceFields(t *testing.T) {
	content := file(t, "gpus:", "gpus:")
	machine, err := Parse("t4", content, "gpu.memory=1Gi", "gpu.reserved=64Mi", "costs.alloc=20us", "gpus[0].pci=0000:05:00.0")
	if err != nil {
		t.Fatal(err)
	}
	if machine.GPU.Memory != 1<<30 || machine.Costs.Alloc != 20*time.Microsecond || machine.GPUs[0].PCI != "0000:05:00.0" {
		t.Errorf("overrides gave %+v, %+v, %+v", machine.GPU, machine.Costs, machine.GPUs)
	}
	for override, want := range map[string]string{
		"gpu.memory":       "write FIELD=VALUE",
		"gpu.memory=":      "write FIELD=VALUE",
		"gpus[1].pci=x":    "no element [1]",
		"gpu.memory.x=1":   "below a field that has no fields",
		"gpu.colour=green": "--set: gpu.colour: unknown field",
		"gpu=1":            `--set: gpu: "1" is not a mapping of fields`,
	} {
		if _, err := Parse("t4", content, override); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("--set %s: %v; want %s", override, err, want)
		}
	}
}

func TestMachinesOfTheUsersOwn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lab.yaml")
	if err := os.WriteFile(path, file(t, "name: t4", "name: lab"), 0o600); err != nil {
		t.Fatal(err)
	}
	machine, err := Load(path)
	if err != nil || machine.Name != "lab" {
		t.Errorf("Load(%s) = %v, %v", path, machine, err)
	}
	for _, unknown := range []string{"t5", "./t4", path + ".yml", "../machines/t4"} {
		if _, err := Load(unknown); !errors.Is(err, ErrUnknownMachine) {
			t.Errorf("Load(%s): %v", unknown, err)
		}
	}
	if _, err := Load("t5"); err == nil || !strings.Contains(err.Error(), "a100-80g, a30, a800x8, b200x8, h100x8, h200x8, p100-16g, t4") {
		t.Errorf("the known machines are not named: %v", err)
	}
	if _, err := Load("/dev/zero.yaml/"); err == nil {
		t.Error("a device was read as a machine file")
	}
}

func FuzzParse(f *testing.F) {
	for _, name := range Names() {
		content, _, err := Source(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(content, "gpu.memory=1Gi")
	}
	f.Add([]byte("a: &a [*a]"), "a[0]=1")
	f.Add([]byte("gpus: [{<<: {pci: 1}}]"), "gpus[0].pci=x")
	f.Fuzz(func(t *testing.T, content []byte, override string) {
		machine, err := Parse("fuzz", content, override)
		if err != nil {
			return
		}
		if faults := machine.Validate(); len(faults) > 0 {
			t.Errorf("parsed with the fault %v", faults[0])
		}
		if got := len(machine.image("seed")); got != SizeOfSimMachine {
			t.Errorf("image of %d bytes; want %d", got, SizeOfSimMachine)
		}
	})
}

func FuzzParseReport(f *testing.F) {
	f.Add([]byte(`{"machine": "t4", "gpus": [{"index": 0, "used": 2097152}], "processes": [{"pid": 7}], "visitors": 1}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		report, err := ParseReport(text)
		if (report == nil) == (err == nil) {
			t.Errorf("ParseReport = %v, %v", report, err)
		}
	})
}
