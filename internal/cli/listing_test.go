package cli

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/agent/gpulock"
	"github.com/divvy-gpu/divvy/internal/cli/text"
	"github.com/divvy-gpu/divvy/internal/nvml"
)

// busyGPU is what a GPU of a server tells that works.
func busyGPU() *nvml.Reading {
	return &nvml.Reading{
		Utilisation: new(97), Temperature: new(64), Milliwatts: new(uint64(312_400)), LimitMilliwatts: new(uint64(400_000)), PerformanceState: new(0),
		Persistence: new(true), Display: new(false), ECC: new(true), Uncorrected: new(uint64(2)), ComputeMode: "default", MIG: new(false),
	}
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
				Index: 0, UUID: "GPU-7b8aaf23-1b7a-4c55-9d0f-5b6c7d8e9f00", Name: "Tesla T4", PCI: "00000000:3B:00.0", Total: 16 * gib, Reserved: gib / 2, Capacity: 16*gib - gib/2, Fault: "the driver does not answer",
			}},
		}},
		{Machine: "a100-80g", Listing: control.Listing{
			Time: at.Add(3 * time.Hour),
			Info: control.Info{Protocol: 1, PID: 4000, UID: 1000, User: "alice", Ephemeral: true, Driver: "550.54.15", CUDA: 12040},
			GPUs: []control.GPU{
				{Index: 0, UUID: "GPU-00", Name: "NVIDIA A100-SXM4-80GB", PCI: "00000000:07:00.0", Reading: busyGPU(), Capacity: 80 * gib, Granted: 24 * gib, Used: new(uint64(11 * gib)), Cores: 80},
				{Index: 1, UUID: "GPU-01", Name: "NVIDIA A100-SXM4-80GB", Capacity: 80 * gib, Granted: 96 * gib, Cores: 120, Unwatched: "the driver does not tell", Hidden: "the driver does not tell what each process has", Excess: "6Gi of its memory belong to no process"},
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
				{PID: 4300, User: "bob", Command: "python3.11", UUID: "GPU-01", Used: new(uint64(gib)), Percent: new(41.5), Answer: "stopped (SIGSTOP)"},
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

// unservedExample is a machine without an agent: one GPU tells all, the other nothing.
func unservedExample() unserved {
	const gib = 1 << 30
	return unserved{
		Machine: "t4", Driver: "550.54.15",
		GPUs: []control.GPU{
			{Index: 0, UUID: "GPU-7b8aaf23-1b7a-4c55-9d0f-5b6c7d8e9f00", Name: "Tesla T4", PCI: "00000000:3B:00.0", Capacity: 15 * gib, Used: new(uint64(4 * gib)), Reading: busyGPU()},
			{Index: 1, UUID: "GPU-8b8aaf23-1b7a-4c55-9d0f-5b6c7d8e9f00", Name: "Tesla T4", Capacity: 15 * gib},
		},
		Processes: []control.Outside{
			{PID: 4300, User: "bob", Command: "python3.11", UUID: "GPU-7b8aaf23-1b7a-4c55-9d0f-5b6c7d8e9f00", Used: new(uint64(gib)), Percent: new(41.5)},
			{PID: 4301, UUID: "GPU-7b8aaf23-1b7a-4c55-9d0f-5b6c7d8e9f00"},
		},
		Notes: []string{"! GPU 1: the driver does not answer"},
	}
}

func TestListingsAsTable(t *testing.T) {
	time.Local = time.UTC
	all := survey{agents: example(), unserved: []unserved{unservedExample()}}
	for _, test := range []struct {
		name string
		as   look
	}{
		{"ls.table", look{}},
		{"ls-160.table", look{width: 160}},
		{"ls-80.table", look{width: 80}},
		{"ls-60.table", look{width: 60}},
		{"ls-40.table", look{width: 40}},
		{"ls-wide.table", look{wide: true}},
		{"ls-wide-80.table", look{wide: true, width: 80}},
		{"ls-colours.table", look{width: 80, paint: true}},
	} {
		var w strings.Builder
		printSurvey(&w, all, test.as)
		golden(t, test.name, w.String())
		if test.as.paint {
			continue
		}
		for line := range strings.Lines(w.String()) {
			line = strings.TrimSuffix(line, "\n")
			// Sentences are the terminal's to break.
			if columns := text.Width(line); test.as.width > 0 && columns > test.as.width && (strings.Contains(line, "   ") || strings.HasPrefix(line, "  ")) {
				t.Errorf("%s: %d columns: %s", test.name, columns, line)
			}
		}
	}
	var w strings.Builder
	printSurvey(&w, survey{}, look{})
	golden(t, "ls-none.table", w.String())
	w.Reset()
	printSurvey(&w, survey{apart: "train"}, look{})
	golden(t, "ls-apart.table", w.String())
	w.Reset()
	served := example()[1]
	served.Tenants = served.Tenants[:2]
	served.Tenants[1].Remote = &control.Remote{Client: "bea", Address: "10.0.0.7", Host: "laptop", User: "bea"}
	printSurvey(&w, survey{agents: []listing{served}}, look{})
	golden(t, "ls-clients.table", w.String())
	w.Reset()
	printSurvey(&w, survey{
		agents:   example()[:1],
		away:     []absence{{Reason: "the agent is away", Yours: new(3), Others: new(5)}, {Machine: "m", Reason: "the agent is away"}},
		held:     []gpulock.Holder{{UUID: "GPU-00", UID: 1001, PID: 762, User: "u2"}},
		unserved: []unserved{{Fault: "the driver is broken"}},
	}, look{})
	golden(t, "ls-away.table", w.String())
}

// What people name can neither command a terminal nor fill it.
func TestHostileNames(t *testing.T) {
	hostile := "\x1b]0;owned\x07\x1b[2J\n\xff" + strings.Repeat("x", 1<<20)
	l := example()[1]
	l.Tenants = l.Tenants[:1]
	l.Tenants[0].Name, l.Tenants[0].User, l.Tenants[0].Command = hostile, hostile, []string{hostile, hostile}
	l.GPUs[0].Name, l.GPUs[0].Fault = hostile, hostile
	l.Outside[0].Command, l.Events[0].Text, l.Waiting[0].Reason = hostile, hostile, hostile
	u := unservedExample()
	u.Processes[0].Command, u.Notes[0], u.GPUs[0].Name = hostile, hostile, hostile
	for _, as := range []look{{}, {width: 80}, {width: 40}, {width: 1}, {width: 200, wide: true}} {
		var w strings.Builder
		printSurvey(&w, survey{agents: []listing{l}, unserved: []unserved{u}}, as)
		if said := w.String(); strings.ContainsAny(said, "\x1b\x07") || len(said) > 20_000 || !strings.Contains(said, `\x1b]0;owned`[:min(10, max(4, as.width/8))]) && as.width != 1 {
			t.Errorf("%+v: %d bytes: %.300q", as, len(said), said)
		}
	}
}

func TestListingsAsDocuments(t *testing.T) {
	for _, f := range []format{"json", "yaml"} {
		var w bytes.Buffer
		if err := f.print(&w, agents{Agents: example()[1:], Unserved: []unserved{unservedExample()}}, nil); err != nil {
			t.Fatal(err)
		}
		golden(t, "ls."+string(f), w.String())
	}
}

// A selection leaves what was asked for, in the order that was asked for.
func TestSelection(t *testing.T) {
	for _, test := range []struct {
		selection
		want string
	}{
		{selection{}, "[0] 0/0/0 [0 1] train:0,1 many:0 broken:1 gone:0 passed:0 2/1/4 ; 2/2"},
		{selection{user: "bob"}, "[0] 0/0/0 [0 1] many:0 1/1/0 ; 2/1"},
		{selection{gpu: "1"}, "[1] train:1 broken:1 1/1/4 ; 1/0"},
		{selection{gpu: "GPU-7B8AAF23"}, "[0] 0/0/0 ; 1/2"},
		{selection{sort: "name"}, "[0] 0/0/0 [0 1] broken:1 gone:0 many:0 passed:0 train:0,1 2/1/4 ; 2/2"},
		{selection{sort: "used"}, "[0] 0/0/0 [0 1] many:0 passed:0 train:0,1 broken:1 gone:0 2/1/4 ; 2/2"},
		{selection{sort: "time"}, "[0] 0/0/0 [0 1] many:0 train:0,1 broken:1 gone:0 passed:0 2/1/4 ; 2/2"},
		{selection{sort: "gpu"}, "[0] 0/0/0 [0 1] train:0,1 many:0 gone:0 passed:0 broken:1 2/1/4 ; 2/2"},
	} {
		all := survey{agents: example(), unserved: []unserved{unservedExample()}}
		all.agents[1].Tenants[1].User = "bob"
		if err := test.choose(&all); err != nil {
			t.Error(err)
		}
		if got := selected(all); got != test.want {
			t.Errorf("%+v: got %s\nwant %s", test.selection, got, test.want)
		}
	}
	if err := (selection{gpu: "9"}).choose(&survey{agents: example()}); err == nil || !strings.Contains(err.Error(), "divvy ls") {
		t.Errorf("no such GPU: %v", err)
	}
}

// selected is what is left of a survey: GPUs and shares of each agent, numbers of processes, waiters and events; the same
// of machines without an agent.
func selected(all survey) string {
	var texts []string
	for _, l := range all.agents {
		var gpus []int
		for _, g := range l.GPUs {
			gpus = append(gpus, g.Index)
		}
		texts = append(texts, fmt.Sprint(gpus))
		for _, t := range l.Tenants {
			var on []string
			for _, s := range t.Shares {
				on = append(on, fmt.Sprint(s.Index))
			}
			texts = append(texts, t.Name+":"+strings.Join(on, ","))
		}
		texts = append(texts, fmt.Sprintf("%d/%d/%d", len(l.Outside), len(l.Waiting), len(l.Events)))
	}
	for _, u := range all.unserved {
		texts = append(texts, fmt.Sprintf("; %d/%d", len(u.GPUs), len(u.Processes)))
	}
	return strings.Join(texts, " ")
}
