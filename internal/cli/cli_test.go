package cli

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/agent/gpulock"
	"github.com/divvy-gpu/divvy/internal/doctor"
	"github.com/divvy-gpu/divvy/internal/process"
	"github.com/divvy-gpu/divvy/internal/rundir"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v (go test -update writes it)", err)
	}
	if got != string(want) {
		t.Errorf("%s differs (go test -update rewrites it); got:\n%s", path, got)
	}
}

// call runs the command line on a run directory of its own.
func call(t *testing.T, args ...string) (status int, out, errOut string) {
	t.Helper()
	t.Setenv(rundir.Variable, t.TempDir())
	var stdout, stderr bytes.Buffer
	status = Main(args, &stdout, &stderr)
	return status, stdout.String(), stderr.String()
}

func example() []listing {
	at := time.Date(2026, 3, 1, 12, 30, 0, 0, time.UTC)
	const gib = 1 << 30
	share := func(index int, used, limit uint64, cores int, policy v1alpha1.Policy, pids ...int) control.Share {
		s := control.Share{
			UUID: "GPU-0" + string(rune('0'+index)), Index: index, Used: used, Limit: limit, Cores: cores,
			Policy: policy, Weight: 1, Class: v1alpha1.ClassOnline, Backend: v1alpha1.BackendSlice,
		}
		if len(pids) > 0 {
			s.Overhead = 424 << 20
		}
		for _, pid := range pids {
			s.Process = append(s.Process, control.Process{PID: pid, Used: used / uint64(len(pids))})
		}
		return s
	}
	tenant := func(name string, held bool, layer control.Layer, shares ...control.Share) control.Tenant {
		return control.Tenant{
			ID: name + "-1", Name: name, UID: 1000, User: "alice", Dir: "/dev/shm/divvy-1000/tenants/" + name + "-1",
			Layer: layer, Command: []string{"python", name + ".py"}, Created: at, Held: held, Shares: shares,
		}
	}
	broken := tenant("broken", true, control.LayerNamespace, share(1, 0, 2*gib, 0, v1alpha1.PolicyWeighted))
	broken.Fault = "its state page is truncated: only this share suffers; stop it with `divvy stop broken`"
	broken.Idle, broken.Until = new(at.Add(-time.Hour)), new(at.Add(24*time.Hour))
	own, part := share(0, 3*gib+gib/10, 8*gib, 30, v1alpha1.PolicyFixed, 4101), 29.94
	own.Time = &control.Time{
		Limited: true, Percent: &part, HeldBack: true, Used: 71_000_000_123, Charged: 80_000_000_456, Waited: 5_000, Launches: 123_456,
	}
	lying := share(0, 17*gib, 16*gib, 50, v1alpha1.PolicyBurst, 1, 2, 3, 4, 5, 6)
	own.Observed, own.Process[0].Observed = new(uint64(3*gib)), new(uint64(3*gib))
	lying.MaxCores, lying.Observed, lying.Excess = 80, new(uint64(17*gib)), "its processes have 17Gi by the driver's figures, and it was granted 16Gi"
	lying.Time = &control.Time{Limited: true, Percent: new(95.0), Fault: "it uses 95% of the GPU's time and says less"}
	kept := share(0, 6*gib, 8*gib, 0, v1alpha1.PolicyWeighted)
	kept.ByDescriptor = 6 * gib
	return []listing{
		{Listing: control.Listing{
			Info: control.Info{Protocol: 1, PID: 700, UID: 0, User: "root", Driver: "550.54.15", CUDA: 12040},
			GPUs: []control.GPU{{
				Index: 0, UUID: "GPU-7b8aaf23-1b7a-4c55-9d0f-5b6c7d8e9f00", Name: "Tesla T4", Total: 16 * gib, Reserved: gib / 2, Capacity: 16*gib - gib/2, Fault: "the driver does not answer",
			}},
		}},
		{Machine: "a100-80g", Listing: control.Listing{
			Time: at.Add(3 * time.Hour),
			Info: control.Info{Protocol: 1, PID: 4000, UID: 1000, User: "alice", Ephemeral: true, Driver: "550.54.15", CUDA: 12040},
			GPUs: []control.GPU{
				{Index: 0, UUID: "GPU-00", Name: "NVIDIA A100-SXM4-80GB", Capacity: 80 * gib, Granted: 24 * gib, Used: new(uint64(11 * gib)), Cores: 80},
				{Index: 1, UUID: "GPU-01", Name: "NVIDIA A100-SXM4-80GB", Capacity: 80 * gib, Granted: 10 * gib, Unwatched: "the driver does not tell", Hidden: "the driver does not tell what each process has", Excess: "6Gi of its memory belong to no process"},
			},
			Tenants: []control.Tenant{
				tenant("train", true, control.LayerNamespace,
					own,
					share(1, 0, 8*gib, 30, v1alpha1.PolicyFixed)),
				tenant("many", false, control.LayerEnv, lying),
				broken,
				tenant("gone", false, control.LayerNamespace, share(0, 0, 512<<20, 0, v1alpha1.PolicyWeighted)),
				tenant("passed", false, control.LayerNamespace, kept),
			},
			Waiting: []control.Waiting{{
				Request: v1alpha1.ShareRequest{GPUs: 2, Memory: v1alpha1.Bytes(72 * gib)},
				User:    "bob", Since: at, Reason: "GPU 0 has 56Gi left", Keeps: []int{0, 1},
			}},
			Outside: []control.Outside{
				{PID: 4300, User: "bob", Command: "python3.11", UUID: "GPU-01", Used: new(uint64(gib)), Answer: "stopped (SIGSTOP)"},
				{PID: 4301, UUID: "GPU-00", Used: new(uint64(900 << 20)), Tenant: "many", Owner: "alice"},
			},
			Events: []control.Event{
				{Time: at, Kind: control.EventReaped, Text: "first"},
				{Time: at.Add(time.Second), Kind: control.EventReaped, Text: "2Gi of many: process 4099 died"},
				{Time: at.Add(2 * time.Second), Kind: control.EventEnded, Text: "old: its last process is gone"},
				{Time: at.Add(3 * time.Second), Kind: control.EventOutside, Text: "process 4300 uses GPU 1 without a share", Times: 6},
			},
		}},
	}
}

func TestListingsAsTable(t *testing.T) {
	time.Local = time.UTC
	var w strings.Builder
	printListings(&w, example(), 0)
	golden(t, "ls.table", w.String())
	for _, width := range []int{80, 60} {
		w.Reset()
		printListings(&w, example(), width)
		golden(t, fmt.Sprintf("ls-%d.table", width), w.String())
		for line := range strings.Lines(w.String()) {
			// Sentences are the terminal's to break.
			if columns := strings.TrimSuffix(line, "\n"); strings.Contains(columns, "   ") && len(columns) > width {
				t.Errorf("%d columns instead of %d: %s", len(columns), width, columns)
			}
		}
	}
	w.Reset()
	printListings(&w, nil, 0)
	golden(t, "ls-none.table", w.String())
	w.Reset()
	printSurvey(&w, survey{
		agents: example()[:1],
		away:   []absence{{Reason: "the agent is away", Yours: new(3), Others: new(5)}, {Machine: "m", Reason: "the agent is away"}},
		held:   []gpulock.Holder{{UUID: "GPU-00", UID: 1001, PID: 762, User: "u2"}},
	}, 0)
	golden(t, "ls-away.table", w.String())
}

// While a system agent is away nobody says that there are no shares.
func TestSystemAgentAway(t *testing.T) {
	dir := t.TempDir()
	t.Setenv(rundir.Variable, dir)
	tenants := filepath.Join(dir, "tenants", "t7")
	if err := os.MkdirAll(tenants, 0o700); err != nil {
		t.Fatal(err)
	}
	gone := process.ID{PID: 1, Start: 1 << 60}
	if err := rundir.WriteMark(dir, rundir.Mark{Agent: gone, Tenants: filepath.Dir(tenants)}); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"ls"}, {"ls", "-o", "json"}, {"stop", "train"}, {"set", "train", "--memory", "1Gi"}, {"doctor"}} {
		var out, errOut bytes.Buffer
		status := Main(args, &out, &errOut)
		said := out.String() + errOut.String()
		if status != 1 || !strings.Contains(said, "system agent is away since") || strings.Contains(said, "No shares") || strings.Contains(said, "none runs;") {
			t.Errorf("%v: status %d, %s", args, status, said)
		}
	}
}

func TestListingsAsDocuments(t *testing.T) {
	for _, f := range []format{"json", "yaml"} {
		var w bytes.Buffer
		if err := f.print(&w, agents{Agents: example()[1:]}, nil); err != nil {
			t.Fatal(err)
		}
		golden(t, "ls."+string(f), w.String())
	}
}

func TestChecksAsTable(t *testing.T) {
	var w strings.Builder
	doctor.Write(&w, []doctor.Check{
		{Name: "installation", Status: doctor.OK, Found: "/opt/divvy"},
		{Name: "namespaces", Status: doctor.Warn, Found: "not allowed", Next: "allow them"},
	})
	golden(t, "doctor.table", w.String())
}

func TestSizes(t *testing.T) {
	for n, want := range map[uint64]string{
		0: "0", 512: "512", 2 << 20: "2Mi", 1<<30 - 1: "1024Mi", 1 << 30: "1Gi", 3<<30 + 1<<29: "3.5Gi", 1 << 40: "1Ti",
	} {
		if got := size(n); got != want {
			t.Errorf("size(%d) = %s, want %s", n, got, want)
		}
	}
}

// Help is part of the interface: every command says what it is for and how it
// is used.
func TestHelp(t *testing.T) {
	var visit func(c *cobra.Command)
	visit = func(c *cobra.Command) {
		// What is handed over has its help, and that test, in internal/cli/cluster.
		if c.Name() == "completion" || c.Name() == "help" || c.DisableFlagParsing {
			return
		}
		if !c.Hidden && (c.Example == "" || c.Short == "") {
			t.Errorf("%s has no example or no description", c.CommandPath())
		}
		name := strings.ReplaceAll(c.CommandPath(), " ", "-")
		t.Run(name, func(t *testing.T) {
			args := slices.Concat(strings.Fields(c.CommandPath())[1:], []string{"--help"})
			status, out, errOut := call(t, args...)
			if status != 0 || errOut != "" {
				t.Errorf("exit status %d, %s", status, errOut)
			}
			golden(t, filepath.Join("help", name), out)
		})
		for _, child := range c.Commands() {
			visit(child)
		}
	}
	visit(newRoot(&app{}))
}

func TestWrongUsage(t *testing.T) {
	tests := []struct {
		args   string
		status int
		want   string
	}{
		{"run", 125, "the command to run"},
		{"run --memory 4Gi", 125, "the command to run"},
		{"run --memory 0 -- true", 125, "greater than zero"},
		{"run --memory -1Gi -- true", 125, "greater than zero"},
		{"run --memory lots -- true", 125, "such as 50%"},
		{"run --memory 101% -- true", 125, "1 to 100"},
		{"run --memory 99999999Ti -- true", 125, "larger than any GPU"},
		{"run --cores 0 -- true", 125, "1 to 100"},
		{"run --cores 101 -- true", 125, "1 to 100"},
		{"run --weight 0 -- true", 125, "1 or more"},
		{"run --weight 1001 -- true", 125, "1 to 1000"},
		{"run --cores 30 --weight 2 -- true", 125, "needs policy weighted"},
		{"run --policy burst -- true", 125, "add --cores"},
		{"run --cores 30 --policy burst --max-cores 0 -- true", 125, "1 to 100"},
		{"run --cores 30 --policy burst --max-cores 101 -- true", 125, "1 to 100"},
		{"run --cores 30 --policy burst --max-cores 20 -- true", 125, "the share's cores, 30, to 100"},
		{"run --cores 30 --max-cores 60 -- true", 125, "need policy burst"},
		{"run --class offline --policy burst --cores 30 -- true", 125, "guarantees nothing"},
		{"set train --cores 0", 2, "1 to 100"},
		{"set train --cores 101", 2, "1 to 100"},
		{"set train --max-cores 101", 2, "1 to 100"},
		{"set train --weight 0", 2, "1 or more"},
		{"set train --class batch", 1, "divvy ls"},
		{"run --gpus 0 -- true", 125, "1 or more"},
		{"run --gpus 2 --gpu 1 -- true", 125, "only 1 named (1)"},
		{"run --gpus all --gpu 1 -- true", 125, "exclude each other"},
		{"run --gpus device=1 -- true", 125, "--gpu names GPUs"},
		{"run --gpus 0,1 -- true", 125, "--gpu names GPUs"},
		{"run --gpu all -- true", 125, "--gpus all asks for all GPUs"},
		{"run --gpu 1,1 -- true", 125, "GPU 1 is named twice"},
		{"run --gpu 1, -- true", 125, "neither an index nor a UUID"},
		{"run --gpu MIG-6e5f0d1c-3b5e-4a8e-9f7a-2d1c0b9a8f7e -- true", 125, "is a MIG instance"},
		{"run --gpu first -- true", 125, "neither an index nor a UUID"},
		{"run --gpu= -- true", 125, "leave the flag out"},
		{"run --policy best -- true", 125, "fixed, weighted or burst"},
		{"run --policy fixed -- true", 125, "add --cores"},
		{"run --class batch -- true", 125, "online or offline"},
		{"run --name Ünnamed -- true", 125, "lower-case"},
		{"run --layer none -- true", 125, "auto, namespace or env"},
		{"run --simgpu b200 -- true", 125, "a100-80g"},
		{"run --nonsense -- true", 125, "unknown flag"},
		{"ls extra", 2, "give no arguments"},
		{"ls -o xml", 2, "table, json or yaml"},
		{"ls --simgpu none", 1, "simgpu start"},
		{"lss", 2, "Did you mean this?"},
		{"set", 2, "one share"},
		{"set a b", 2, "unexpected argument"},
		{"set train", 2, "--memory"},
		{"set train --memory 4Gi", 1, "divvy ls"},
		{"stop", 2, "or more shares"},
		{"stop train", 1, "divvy ls"},
		{"stop train --grace -1s", 2, "0 or more"},
		{"top --interval 1ms", 2, "100ms"},
	}
	for _, test := range tests {
		t.Run(test.args, func(t *testing.T) {
			status, out, errOut := call(t, strings.Fields(test.args)...)
			if status != test.status || out != "" || !strings.Contains(errOut, test.want) || !strings.HasPrefix(errOut, "divvy: ") {
				t.Errorf("exit status %d, output %q, error %q; want %d and %q", status, out, errOut, test.status, test.want)
			}
			if test.status == 2 && !strings.Contains(errOut, "--help") {
				t.Errorf("no way to the right usage: %q", errOut)
			}
		})
	}
}

func TestNothingRunsYet(t *testing.T) {
	status, out, errOut := call(t, "ls", "-o", "json")
	if status != 0 || errOut != "" || strings.TrimSpace(out) != "{\n  \"agents\": []\n}" {
		t.Errorf("exit status %d, %s%s", status, out, errOut)
	}
}
