package integration

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/simgpu"
	"github.com/divvy-gpu/divvy/internal/tenantdir"
)

// part is a MIG instance as a program lists it.
type part struct {
	Index int    `json:"index"`
	UUID  string `json:"uuid"`
	Name  string `json:"name"`
	GI    int    `json:"gi"`
	CI    int    `json:"ci"`
	Total uint64 `json:"total"`
	Used  uint64 `json:"used"`

	Processes []member `json:"processes"`
}

// member is a process in an instance.
type member struct {
	PID int    `json:"pid"`
	GI  uint32 `json:"gi"`
	CI  uint32 `json:"ci"`
}

// divided is a GPU with its instances.
type divided struct {
	UUID      string   `json:"uuid"`
	Mode      int      `json:"mode"`
	Processes []member `json:"processes"`
	Instances []part   `json:"instances"`
}

// said is what a program lists, which must succeed.
func said(t *testing.T, where place, name string, args ...string) (gpus []divided, found []*string) {
	t.Helper()
	cmd := where(t, name, args...)
	var errors strings.Builder
	cmd.Stderr = &errors
	text, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %v: %v: %s", name, args, err, errors.String())
	}
	var list struct {
		GPUs  []divided `json:"gpus"`
		Found []*string `json:"found"`
	}
	if err := json.Unmarshal(text, &list); err != nil {
		t.Fatalf("read %q: %v", text, err)
	}
	return list.GPUs, list.Found
}

// instanceTenant is [machine.tenant] of a share on a MIG instance.
func (m *machine) instanceTenant(t *testing.T, gpu simgpu.GPUReport, uuid string, total, limit uint64) place {
	t.Helper()
	dir := t.TempDir()
	tenant := backend.Tenant{ID: "test", Name: t.Name(), Layer: backend.LayerNamespace, Shares: []backend.Share{{
		GPU: backend.GPU{
			UUID: uuid, PCI: gpu.PCI, Total: total, ContextBytes: m.contextBytes,
			Instance: backend.Instance{UUID: uuid, Parent: gpu.UUID, Bytes: total},
		},
		Limit: limit, Weight: 1, Policy: v1alpha1.PolicyWeighted, Class: v1alpha1.ClassOffline,
	}}}
	config, err := tenantdir.Encode(tenant, 0)
	must(t, err)
	must(t, tenantdir.Dir(dir).Make(&config, nil, tenantdir.AccessOwner, -1))
	must(t, os.Symlink(m.instance.Dir, filepath.Join(dir, "simgpu")))
	for _, library := range []string{"libcuda", "libnvidia-ml"} {
		m.placeLibrary(t, dir, library)
	}
	return in(dir)
}

// bare is what the machine's report and a program both tell of instances.
func bare(gpus []divided) (all [][]part) {
	for _, g := range gpus {
		parts := []part{}
		for _, p := range g.Instances {
			parts = append(parts, part{Index: p.Index, UUID: p.UUID, GI: p.GI, CI: p.CI})
		}
		all = append(all, parts)
	}
	return all
}

// truth is the same from the report.
func truth(r *simgpu.Report) (all [][]part) {
	for _, g := range r.GPUs {
		parts := []part{}
		for _, i := range g.MIG.Instances {
			for _, c := range i.Computes {
				parts = append(parts, part{Index: len(parts), UUID: c.UUID, GI: i.ID, CI: c.ID})
			}
		}
		all = append(all, parts)
	}
	return all
}

// dividedMachine has two GPUs with instances among eight: 3g, 1g, 1g on GPU 0 and 3g on GPU 5.
func dividedMachine(t *testing.T) (*machine, *simgpu.Report) {
	t.Helper()
	m := startMachine(t, "h200x8", "gpus[0].migMode=true", "gpus[5].migMode=true")
	for _, args := range [][]string{{"0", "9:2", "19:0", "19:0"}, {"5", "9:2"}} {
		cmd := m.outside()(t, python(t), append([]string{"testdata/instances.py", "make"}, args...)...)
		if text, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("make instances: %v: %s", err, text)
		}
	}
	r := m.report(t)
	if len(r.GPUs[0].MIG.Instances) != 3 || len(r.GPUs[5].MIG.Instances) != 1 {
		t.Fatalf("the machine has %+v and %+v", r.GPUs[0].MIG, r.GPUs[5].MIG)
	}
	return m, r
}

// occupied is a machine whose first instance of 1g has a share with a holder, and whose first of 3g a holder without one.
type occupied struct {
	*machine
	all           [][]part
	gpus          []simgpu.GPUReport
	share         place
	holder, other holder
}

const (
	instanceBytes = 16 << 30
	instanceLimit = 2 << 30
)

func occupy(t *testing.T) occupied {
	t.Helper()
	m, r := dividedMachine(t)
	o := occupied{machine: m, all: truth(r), gpus: r.GPUs}
	o.share = m.instanceTenant(t, r.GPUs[0], o.own().UUID, instanceBytes, instanceLimit)
	o.holder = hold(t, o.share, "0", "1Gi")
	o.other = hold(t, func(t *testing.T, name string, args ...string) *exec.Cmd {
		t.Helper()
		cmd := m.outside()(t, name, args...)
		cmd.Env = append(cmd.Env, "CUDA_VISIBLE_DEVICES="+o.all[0][0].UUID)
		return cmd
	}, "0", "1Gi")
	return o
}

func (o occupied) own() part { return o.all[0][1] }

// compare compares what a program lists natively and in the share.
func (o occupied) compare(t *testing.T, whole, inside []divided) {
	t.Helper()
	if got := bare(whole); !reflect.DeepEqual(got, o.all) {
		t.Errorf("lists %+v, the machine has %+v", got, o.all)
	}
	want := [][]part{{{UUID: o.own().UUID, GI: o.own().GI, CI: o.own().CI}}}
	if got := bare(inside); !reflect.DeepEqual(got, want) || inside[0].UUID != o.gpus[0].UUID || inside[0].Mode != 1 {
		t.Errorf("lists %+v in the share, want %+v", inside, want)
	}
}

// `divvy gpu ls` lists what the bindings and the monitor below are compared with. Its agent serves another GPU's share.
func TestInstancesByDivvy(t *testing.T) {
	python(t)
	o := occupy(t)
	divvy := filepath.Join(prefix(t), "bin", "divvy")
	cmd := command(t, divvy, "run", "--simgpu", "test", "--gpu", "1", "--memory", "1Gi", "--",
		divvy, "gpu", "ls", "--simgpu", "test", "-o", "json")
	cmd.Env = append(cmd.Env, "DIVVY_RUNDIR="+filepath.Dir(o.store.Root))
	var errors strings.Builder
	cmd.Stderr = &errors
	text, err := cmd.Output()
	if err != nil {
		t.Fatalf("list with divvy: %v: %s", err, errors.String())
	}
	var document struct {
		Machines []struct {
			GPUs []struct {
				MIG struct {
					Instances []struct {
						UUID            string
						GPUInstance     int
						ComputeInstance int
					}
				}
			}
		}
	}
	if err := json.Unmarshal(text, &document); err != nil || len(document.Machines) != 1 {
		t.Fatalf("read %q: %v", text, err)
	}
	var got [][]part
	for _, g := range document.Machines[0].GPUs {
		parts := []part{}
		for _, i := range g.MIG.Instances {
			parts = append(parts, part{UUID: i.UUID, GI: i.GPUInstance, CI: i.ComputeInstance})
		}
		slices.SortFunc(parts, func(a, b part) int { return a.GI - b.GI })
		for i := range parts {
			parts[i].Index = i
		}
		got = append(got, parts)
	}
	if !reflect.DeepEqual(got, o.all) {
		t.Errorf("divvy lists %+v, the machine has %+v", got, o.all)
	}
}

// NVIDIA's bindings for Python list the instances that there are; in a share on one, that one, its memory and its users.
func TestInstancesByPython(t *testing.T) {
	interpreter := python(t)
	o := occupy(t)
	whole, _ := said(t, o.outside(), interpreter, "testdata/instances.py", "list")
	inside, found := said(t, o.share, interpreter, "testdata/instances.py", "list",
		o.own().UUID, o.all[0][0].UUID, o.all[5][0].UUID, o.gpus[0].UUID, o.gpus[5].UUID)
	o.compare(t, whole, inside)
	for at, want := range []string{o.own().UUID, "", "", o.gpus[0].UUID, ""} {
		if (found[at] == nil) != (want == "") || found[at] != nil && *found[at] != want {
			t.Errorf("the share finds %v, want %q", found[at], want)
		}
	}
	if p := inside[0].Instances[0]; p.Total != instanceLimit || p.Used != 1<<30+o.contextBytes {
		t.Errorf("in the share %d of %d bytes are used", p.Used, p.Total)
	}
	users := []member{{o.holder.PID, uint32(o.own().GI), uint32(o.own().CI)}}
	if g := inside[0]; !slices.Equal(g.Processes, users) || !slices.Equal(g.Instances[0].Processes, users) {
		t.Errorf("in the share processes are %+v and %+v, want %+v", g.Processes, g.Instances[0].Processes, users)
	}
}

// The same by NVIDIA's bindings for Go.
func TestInstancesByGo(t *testing.T) {
	o := occupy(t)
	lister := filepath.Join(t.TempDir(), "instances")
	if text, err := command(t, "go", "build", "-o", lister, "./testdata/instances").CombinedOutput(); err != nil {
		t.Fatalf("build the program with bindings for Go: %v: %s", err, text)
	}
	whole, _ := said(t, o.outside(), lister)
	inside, _ := said(t, o.share, lister)
	o.compare(t, whole, inside)
}

// The same by nvitop.
func TestInstancesByMonitor(t *testing.T) {
	interpreter := python(t)
	o := occupy(t)
	text := monitorIn(t, o.share, interpreter)
	if !strings.Contains(text, strconv.Itoa(o.holder.PID)) || strings.Contains(text, strconv.Itoa(o.other.PID)) {
		t.Errorf("in the share nvitop shows process %d or not %d:\n%s", o.other.PID, o.holder.PID, text)
	}
	want := fmt.Sprintf("0:0 1g.18gb %d/%d", o.own().GI, o.own().CI)
	if got := monitored(text); !slices.Equal(got, []string{want}) || strings.Count(text, " 2048MiB") != 2 {
		t.Errorf("in the share nvitop shows %q, want %s with 2048 MiB:\n%s", got, want, text)
	}
	var rows []string
	for gpu, parts := range o.all {
		for _, p := range parts {
			profile := map[bool]string{true: "3g.71gb", false: "1g.18gb"}[p.Index == 0]
			rows = append(rows, fmt.Sprintf("%d:%d %s %d/%d", gpu, p.Index, profile, p.GI, p.CI))
		}
	}
	if got := monitored(monitorIn(t, o.outside(), interpreter)); !slices.Equal(got, rows) {
		t.Errorf("nvitop shows %q, want %q", got, rows)
	}
}

var monitoredRow = regexp.MustCompile(`(\d+:\d+) +(\S+) @ GI/CI: *(\d+/\d+)`)

// monitored are the instances that nvitop shows: numbers, profile, GPU instance and compute instance.
func monitored(text string) (rows []string) {
	for _, found := range monitoredRow.FindAllStringSubmatch(text, -1) {
		rows = append(rows, strings.Join(found[1:], " "))
	}
	return rows
}
