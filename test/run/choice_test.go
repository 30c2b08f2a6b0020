package run

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// shown runs `divvy run` by a caller with these variables and flags, and returns the
// variable that the command sees and the machine's indexes of the GPUs that CUDA shows it.
func (h *host) shown(index map[string]int, script string, env []string, flags ...string) (variable string, gpus []int) {
	h.t.Helper()
	o := h.called(script, env, append(flags, "--memory", "1Gi", "--", "sh", "-c",
		`echo "${CUDA_VISIBLE_DEVICES-unset}"; exec "$0" --order libcuda.so.1`, h.tree.Program("divvy-probe"))...)
	variable, answer, _ := strings.Cut(o.out, "\n")
	var list struct{ UUIDs []string }
	if err := json.Unmarshal([]byte(answer), &list); err != nil || o.status != 0 {
		h.t.Fatalf("%v %v: exit status %d, %s%s", env, flags, o.status, o.out, o.err)
	}
	for _, uuid := range list.UUIDs {
		at, known := index[uuid]
		if !known {
			h.t.Fatalf("%v %v: CUDA shows %s", env, flags, uuid)
		}
		gpus = append(gpus, at)
	}
	return variable, gpus
}

// called is `divvy run` by a shell that has first run the script in a mount namespace of
// its own, if there is one: that is how a job's GPUs are hidden.
func (h *host) called(script string, env []string, args ...string) outcome {
	h.t.Helper()
	words := []string{filepath.Join(string(h.tree), "bin", "divvy"), "run", "--simgpu", "m"}
	words = append(words, args...)
	if script != "" {
		words = append([]string{"unshare", "--user", "--map-root-user", "--mount", "sh", "-c", "set -e\n" + script + "\n" + `exec "$@"`, "sh"}, words...)
	}
	return h.ended(h.command("env", append(slices.Clone(env), words...)...))
}

// indexes are NVML's, by UUID. A share makes the agent run.
func (h *host) indexes() map[string]int {
	h.t.Helper()
	h.hold([]string{"--memory", "1Gi", "--name", "keeper", "--gpu", "7"}, "sh", "-c", "echo; read x")
	index := map[string]int{}
	for _, gpu := range h.list().GPUs {
		index[gpu.UUID] = gpu.Index
	}
	return index
}

func uuidOf(index map[string]int, wanted int) string {
	for uuid, at := range index {
		if at == wanted {
			return uuid
		}
	}
	return ""
}

func TestTheGPUThatWasMeant(t *testing.T) {
	h := newHostOf(t, "a800x8")
	index := h.indexes()
	third := uuidOf(index, 3)
	for name, c := range map[string]struct {
		env, flags []string
		variable   string
		gpus       []int
	}{
		"nothing said: the fullest that fits": {nil, nil, "unset", []int{7}},
		"a flag":                              {nil, []string{"--gpu", "2"}, "unset", []int{2}},
		"several":                             {nil, []string{"--gpu", "4,0"}, "unset", []int{4, 0}},
		"a flag that is repeated":             {nil, []string{"--gpu", "0", "--gpu", "4"}, "unset", []int{0, 4}},
		"by the beginning of a UUID":          {nil, []string{"--gpu", third[:16]}, "unset", []int{3}},
		"all":                                 {nil, []string{"--gpus", "all"}, "unset", []int{0, 1, 2, 3, 4, 5, 6, 7}},
		"the variable":                        {[]string{"CUDA_VISIBLE_DEVICES=3"}, nil, "0", []int{3}},
		"the variable, several":               {[]string{"CUDA_VISIBLE_DEVICES=3,2"}, nil, "0,1", []int{3, 2}},
		"the variable, all of it":             {[]string{"CUDA_VISIBLE_DEVICES=3,2"}, []string{"--gpus", "all"}, "0,1", []int{3, 2}},
		"the variable, one of it":             {[]string{"CUDA_VISIBLE_DEVICES=2,7"}, []string{"--gpus", "1"}, "0", []int{7}},
		"the variable by UUID":                {[]string{"CUDA_VISIBLE_DEVICES=" + third}, nil, "0", []int{3}},
		"both agree":                          {[]string{"CUDA_VISIBLE_DEVICES=3,2"}, []string{"--gpu", "2"}, "0", []int{2}},
		"without namespaces":                  {[]string{"CUDA_VISIBLE_DEVICES=3"}, []string{"--layer", "env"}, "0", []int{3}},
	} {
		t.Run(name, func(t *testing.T) {
			variable, gpus := h.shown(index, "", c.env, c.flags...)
			if variable != c.variable || !slices.Equal(gpus, c.gpus) {
				t.Errorf("CUDA shows %v and the variable is %q, want %v and %q", gpus, variable, c.gpus, c.variable)
			}
		})
	}
	for name, c := range map[string]struct {
		variable, flags, says string
	}{
		"contradiction":   {"1", "--gpu 3", "--gpu 3 contradicts CUDA_VISIBLE_DEVICES=1, which leaves GPU 1 (" + uuidOf(index, 1)},
		"too many":        {"1,2", "--gpus 3", "asks for more than the 2 GPUs of CUDA_VISIBLE_DEVICES=1,2"},
		"no such GPU":     {"8", "", "CUDA shows this process GPUs 0 to 7 and no GPU 8"},
		"no GPU":          {"", "", "means no GPU"},
		"Slurm's no GPU":  {"NoDevFiles", "", "means no GPU"},
		"MIG":             {"MIG-6e5f0d1c-3b5e-4a8e-9f7a-2d1c0b9a8f7e", "", "names a MIG instance"},
		"twice":           {"1,1", "", "names GPU 1 twice"},
		"unknown UUID":    {"GPU-00000000-0000-0000-0000-000000000000", "", "`divvy ls -o wide` shows their UUIDs"},
		"unknown by flag": {"1", "--gpu 9", "GPU 9 does not exist and this machine has GPUs 0 to 7"},
	} {
		t.Run(name, func(t *testing.T) {
			o := h.called("", []string{"CUDA_VISIBLE_DEVICES=" + c.variable}, append(strings.Fields(c.flags), "--memory", "1Gi", "--", "true")...)
			if o.status != 125 || !strings.Contains(o.err, c.says) {
				t.Errorf("exit status %d, %s, want %q", o.status, o.err, c.says)
			}
		})
	}
	if table := h.ok("ls"); !strings.Contains(table, third) {
		t.Errorf("`divvy ls` does not show %s:\n%s", third, table)
	}
}

// Inside a share the variable means the share's GPUs.
func TestTheVariableInsideAShare(t *testing.T) {
	h := newHostOf(t, "a800x8")
	index := h.indexes()
	second := uuidOf(index, 2)
	for value, want := range map[string]int{"1": 2, second: 2, second[:20]: 2, "0": 3} {
		o := h.called("", []string{"CUDA_VISIBLE_DEVICES=3,2"}, "--memory", "1Gi", "--",
			"env", "CUDA_VISIBLE_DEVICES="+value, h.tree.Program("divvy-probe"), "--order", "libcuda.so.1")
		if o.status != 0 || o.out != fmt.Sprintf(`{"uuids": [%q]}`, uuidOf(index, want)) {
			t.Errorf("%s: exit status %d, %s%s, want GPU %d", value, o.status, o.out, o.err, want)
		}
	}
}

// hide leaves a job of Slurm's, which constrains devices, the GPUs with these minor
// numbers: the others' device nodes cannot be opened any more, not even by root.
func (h *host) hide(left ...int) string {
	var script strings.Builder
	for minor := range 8 {
		if node := filepath.Join(h.instance, "dev", fmt.Sprintf("nvidia%d", minor)); !slices.Contains(left, minor) {
			fmt.Fprintf(&script, "mount --bind %[1]s %[1]s && mount -o remount,bind,ro %[1]s\n", node)
		}
	}
	return script.String()
}

func TestAJobThatSeesSomeGPUs(t *testing.T) {
	h := newHostOf(t, "a800x8").namespaces()
	index := h.indexes()
	job := h.hide(5, 2)
	slurm := []string{"CUDA_VISIBLE_DEVICES=0,1", "SLURM_JOB_GPUS=2,5", "SLURM_STEP_GPUS=2,5", "NVIDIA_VISIBLE_DEVICES=0,1"}
	for name, c := range map[string]struct {
		env, flags []string
		variable   string
		gpus       []int
	}{
		"as Slurm starts it":          {slurm, nil, "0,1", []int{2, 5}},
		"its second GPU":              {append(slices.Clone(slurm), "CUDA_VISIBLE_DEVICES=1"), nil, "0", []int{5}},
		"one of its GPUs":             {slurm, []string{"--gpus", "1"}, "0", []int{5}},
		"by UUID":                     {[]string{"CUDA_VISIBLE_DEVICES=" + uuidOf(index, 5)}, nil, "0", []int{5}},
		"without the variable":        {nil, nil, "unset", []int{5}},
		"without the variable, all":   {nil, []string{"--gpus", "all"}, "unset", []int{2, 5}},
		"by the index of `divvy ls`":  {nil, []string{"--gpu", "5"}, "unset", []int{5}},
		"a flag beside the variable":  {slurm, []string{"--gpu", "5"}, "0", []int{5}},
		"in the order of the machine": {append(slices.Clone(slurm), "CUDA_DEVICE_ORDER=PCI_BUS_ID"), nil, "0,1", []int{2, 5}},
	} {
		t.Run(name, func(t *testing.T) {
			variable, gpus := h.shown(index, job, c.env, c.flags...)
			if variable != c.variable || !slices.Equal(gpus, c.gpus) {
				t.Errorf("CUDA shows %v and the variable is %q, want %v and %q", gpus, variable, c.gpus, c.variable)
			}
		})
	}
	for flags, says := range map[string]string{
		"--gpu 0":  "GPU 0 is hidden from this process",
		"--gpus 3": "asks for more than the 2 GPUs that this process may use",
	} {
		o := h.called(job, nil, append(strings.Fields(flags), "--memory", "1Gi", "--", "true")...)
		if o.status != 125 || !strings.Contains(o.err, says) {
			t.Errorf("%s: exit status %d, %s, want %q", flags, o.status, o.err, says)
		}
	}
	if o := h.called(h.hide(), nil, "--memory", "1Gi", "--", "true"); o.status != 125 || !strings.Contains(o.err, "every GPU is hidden") {
		t.Errorf("every GPU hidden: exit status %d, %s", o.status, o.err)
	}
}

// CUDA counts from the fastest GPU, NVML and `divvy ls` by PCI address.
func TestFastestFirst(t *testing.T) {
	h := newHostOf(t, "testdata/mixed.yaml")
	index := map[string]int{}
	h.hold([]string{"--memory", "1Gi", "--name", "keeper"}, "sh", "-c", "echo; read x")
	for _, gpu := range h.list().GPUs {
		index[gpu.UUID] = gpu.Index
	}
	for order, want := range map[string][]int{"FASTEST_FIRST": {2, 0}, "PCI_BUS_ID": {0, 1}} {
		_, gpus := h.shown(index, "", []string{"CUDA_VISIBLE_DEVICES=0,1", "CUDA_DEVICE_ORDER=" + order})
		if !slices.Equal(gpus, want) {
			t.Errorf("%s: CUDA shows %v, want %v", order, gpus, want)
		}
	}
	if _, gpus := h.shown(index, "", []string{"CUDA_VISIBLE_DEVICES=0"}); !slices.Equal(gpus, []int{2}) {
		t.Errorf("without an order: CUDA shows %v, want the fastest", gpus)
	}
	if _, gpus := h.shown(index, "", nil, "--gpu", "0"); !slices.Equal(gpus, []int{0}) {
		t.Errorf("--gpu 0: CUDA shows %v", gpus)
	}
}

// Where CUDA cannot be asked what it shows, indexes are refused and UUIDs work.
func TestChoiceWithoutCUDA(t *testing.T) {
	h := newHostOf(t, "a800x8")
	index := h.indexes()
	third := uuidOf(index, 3)
	blind := "DIVVY_PREFIX=" + h.without("divvy-probe")
	for _, flags := range [][]string{nil, {"--gpu", "3"}} {
		o := h.called("", []string{blind, "CUDA_VISIBLE_DEVICES=3"}, append(flags, "--memory", "1Gi", "--", "true")...)
		if o.status != 125 || !strings.Contains(o.err, "CUDA could not be asked") || !strings.Contains(o.err, "give UUIDs") {
			t.Errorf("%v: exit status %d, %s", flags, o.status, o.err)
		}
	}
	o := h.called("", []string{blind, "CUDA_VISIBLE_DEVICES=" + third}, "--memory", "1Gi", "--",
		h.tree.Program("divvy-probe"), "--order", "libcuda.so.1")
	if o.status != 0 || o.out != fmt.Sprintf(`{"uuids": [%q]}`, third) {
		t.Errorf("a UUID: exit status %d, %s%s", o.status, o.out, o.err)
	}
}

// without makes an installation in which one program always fails.
func (h *host) without(program string) string {
	h.t.Helper()
	prefix := h.t.TempDir()
	link := func(from, to string) {
		if err := os.Symlink(from, filepath.Join(prefix, to)); err != nil {
			h.t.Fatal(err)
		}
	}
	if err := os.MkdirAll(filepath.Join(prefix, "libexec", "divvy"), 0o755); err != nil {
		h.t.Fatal(err)
	}
	for _, name := range []string{"bin", "lib"} {
		link(filepath.Join(string(h.tree), name), name)
	}
	programs, err := filepath.Glob(filepath.Join(string(h.tree), "libexec", "divvy", "*"))
	if err != nil {
		h.t.Fatal(err)
	}
	for _, path := range programs {
		if name := filepath.Base(path); name != program {
			link(path, filepath.Join("libexec", "divvy", name))
		}
	}
	link("/bin/false", filepath.Join("libexec", "divvy", program))
	return prefix
}
