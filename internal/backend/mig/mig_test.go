package mig

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/mig"
	"github.com/divvy-gpu/divvy/internal/nvml"
	"github.com/divvy-gpu/divvy/internal/process"
	"github.com/divvy-gpu/divvy/internal/simgpu"
)

// machines are those with MIG, with the smallest and the largest profile.
var machines = []struct{ name, small, large string }{
	{"h200x8", "1g.18gb", "7g.141gb"},
	{"h100x8", "1g.10gb", "7g.80gb"},
	{"b200x8", "1g.23gb", "7g.180gb"},
	{"a30", "1g.6gb", "4g.24gb"},
	{"a100-80g", "1g.10gb", "7g.80gb"},
}

func TestInstancesOfEveryMachine(t *testing.T) {
	for _, m := range machines {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, m.name)
			a := b.agent()
			if err := a.SetMode(t.Context(), b.gpu, true); err != nil {
				t.Fatal(err)
			}
			d := b.divide(a)
			if !d.On || !d.Pending || len(d.Parts) != 0 || len(d.Profiles) != len(d.Sizes) {
				t.Fatalf("divided as %+v", d)
			}
			at := slices.IndexFunc(d.Sizes, func(i backend.Instance) bool { return i.Profile == m.small })
			if at < 0 {
				t.Fatalf("no %s among %+v", m.small, d.Sizes)
			}
			var made []backend.Instance
			for _, start := range d.Profiles[at].Starts {
				i := b.create(a, m.small, start)
				want := d.Sizes[at]
				want.Start, want.UUID, want.GPUInstance, want.ComputeInstance, want.ContextBytes, want.Reserved = start, i.UUID, i.GPUInstance, i.ComputeInstance, i.ContextBytes, i.Reserved
				if i != want || !strings.HasPrefix(i.UUID, "MIG-") {
					t.Errorf("made %+v, want %+v", i, want)
				}
				made = append(made, i)
			}
			d = b.divide(a)
			for i, p := range d.Parts {
				if i >= len(made) || p.Instance != made[i] || p.Origin != backend.OriginShare || p.Half != "" {
					t.Errorf("part %d is %+v, made were %+v", i, p, made)
				}
			}
			if _, err := a.Create(t.Context(), b.gpu, m.large, 0, backend.OriginShare); !errors.Is(err, mig.ErrOccupied) {
				t.Errorf("one more: %v, want %v", err, mig.ErrOccupied)
			}
			for _, i := range made {
				if err := a.Destroy(t.Context(), b.gpu, i.UUID); err != nil {
					t.Error(err)
				}
			}
			whole := b.create(a, m.large, 0)
			if err := a.SetMode(t.Context(), b.gpu, false); !errors.Is(err, mig.ErrUsed) || !strings.HasPrefix(err.Error(), "in use: it has 1 instance") {
				t.Errorf("off with an instance: %v", err)
			}
			if err := a.Destroy(t.Context(), b.gpu, whole.UUID); err != nil {
				t.Error(err)
			}
			off(t, b, a)
		})
	}
}

// off turns the mode off.
func off(t *testing.T, b *bench, a *Backend) {
	t.Helper()
	if err := a.SetMode(t.Context(), b.gpu, false); err != nil {
		t.Errorf("off: %v", err)
	}
	if d := b.divide(a); d.On || d.Pending {
		t.Errorf("off, and it is divided as %+v", d)
	}
}

// Where the driver cannot reset an Ampere GPU, the pending mode is taken back, and what to run is said.
func TestDriverThatCannotReset(t *testing.T) {
	b := newBench(t, "a800x8")
	a := b.agent()
	if err := b.store.Inject(t.Context(), b.instance, 0, simgpu.Injection{Call: simgpu.CallNoReset}); err != nil {
		t.Fatal(err)
	}
	err := a.SetMode(t.Context(), b.gpu, true)
	if d := b.divide(a); !errors.Is(err, mig.ErrReset) || !strings.Contains(err.Error(), "--gpu-reset") || d.On || d.Pending {
		t.Errorf("on: %v, and it is divided as %+v", err, d)
	}
}

func TestGPUWithoutMIG(t *testing.T) {
	b := newBench(t, "t4")
	a := b.agent()
	if d := b.divide(a); d.On || d.Pending || d.Profiles != nil {
		t.Errorf("divided as %+v", d)
	}
	if why := a.Unsuited(b.gpu); !strings.Contains(why, "no MIG") {
		t.Errorf("unsuited: %q", why)
	}
	if err := a.SetMode(t.Context(), b.gpu, true); !errors.Is(err, nvml.ErrNoMIG) {
		t.Errorf("on: %v, want %v", err, nvml.ErrNoMIG)
	}
}

// What is asked for must exist. Nothing is made otherwise.
func TestWhatAGPUDoesNotHave(t *testing.T) {
	b := newBench(t, "h100x8", "gpus[0].migMode=true")
	a := b.agent()
	for name, c := range map[string]struct {
		profile string
		start   int
		says    string
	}{
		"a profile of other GPUs":         {"1g.18gb", 0, "1g.10gb"},
		"a place between those it can be": {"3g.40gb", 1, "[0 4]"},
	} {
		if _, err := a.Create(t.Context(), b.gpu, c.profile, c.start, backend.OriginShare); !errors.Is(err, ErrProfile) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if got := b.parts(a); len(got) != 0 {
		t.Errorf("made %q", got)
	}
}

// Whose an instance is outlives the agent. What is another tool's is listed, keeps its place, and stays.
func TestWhoseInstancesAre(t *testing.T) {
	b := newBench(t, "h100x8", "gpus[0].migMode=true")
	a := b.agent()
	share, layout := b.create(a, "1g.10gb", 0), b.create(a, "1g.10gb", 1)
	if err := a.Claim(t.Context(), b.gpu, layout.UUID, backend.OriginLayout); err != nil {
		t.Fatal(err)
	}
	foreign := b.foreign(a, "2g.20gb", 2)
	want := []string{"1g.10gb at 0, share", "1g.10gb at 1, layout", "2g.20gb at 2, foreign"}
	next := b.agent()
	if gone, err := next.RecoverInstances(t.Context()); err != nil || len(gone) != 0 {
		t.Errorf("recovered: %v, %v", gone, err)
	}
	if got := b.parts(next); !slices.Equal(got, want) {
		t.Errorf("it has %q, want %q", got, want)
	}
	for name, err := range map[string]error{
		"taken away": next.Destroy(t.Context(), b.gpu, foreign), "claimed": next.Claim(t.Context(), b.gpu, foreign, backend.OriginShare),
	} {
		if !errors.Is(err, mig.ErrForeign) {
			t.Errorf("another's instance is %s: %v", name, err)
		}
	}
	if _, err := next.Create(t.Context(), b.gpu, "1g.10gb", 2, backend.OriginShare); !errors.Is(err, mig.ErrOccupied) {
		t.Errorf("in another's place: %v", err)
	}
	if err := next.SetMode(t.Context(), b.gpu, false); !errors.Is(err, mig.ErrUsed) {
		t.Errorf("off: %v", err)
	}
	// Somebody takes Divvy's away.
	tool := b.tool()
	if err := errors.Join(tool.DestroyMIGCompute(t.Context(), b.gpu.UUID, share.GPUInstance, share.ComputeInstance), tool.DestroyMIGInstance(t.Context(), b.gpu.UUID, share.GPUInstance)); err != nil {
		t.Fatal(err)
	}
	gone, err := next.RecoverInstances(t.Context())
	if err != nil || len(gone) != 1 || gone[0].UUID != share.UUID || gone[0].Parent != b.gpu.UUID {
		t.Errorf("vanished: %+v, %v", gone, err)
	}
	if got := b.parts(next); !slices.Equal(got, want[1:]) {
		t.Errorf("it has %q, want %q", got, want[1:])
	}
	// And one while the agent runs: its place is free as soon as it is read, and what another tool makes there is not Divvy's.
	takeAway := func(i backend.Instance) error {
		return errors.Join(tool.DestroyMIGCompute(t.Context(), b.gpu.UUID, i.GPUInstance, i.ComputeInstance), tool.DestroyMIGInstance(t.Context(), b.gpu.UUID, i.GPUInstance))
	}
	if err := takeAway(layout); err != nil {
		t.Fatal(err)
	}
	if got := b.parts(next); !slices.Equal(got, want[2:]) {
		t.Errorf("it has %q, want %q", got, want[2:])
	}
	if err := takeAway(b.create(next, "1g.10gb", 1)); err != nil {
		t.Fatal(err)
	}
	b.parts(next)
	b.foreign(next, "1g.10gb", 1)
	if got := b.parts(next); !slices.Equal(got, []string{"1g.10gb at 1, foreign", want[2]}) {
		t.Errorf("with another's in the place of one that went: %q", got)
	}
}

// What another tool made by halves is of no use to shares, and is left so.
func TestHalvesOfOthers(t *testing.T) {
	b := newBench(t, "h100x8", "gpus[0].migMode=true")
	a := b.agent()
	tool := b.tool()
	profiles, err := tool.MIGProfiles(t.Context(), b.gpu.UUID)
	if err != nil {
		t.Fatal(err)
	}
	p, at, err := placed(profiles, "2g.20gb", 4)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tool.CreateMIGInstance(t.Context(), b.gpu.UUID, p.ID, at); err != nil {
		t.Fatal(err)
	}
	want := []string{"2g.20gb at 4, foreign, it has no compute instance"}
	if got := b.parts(a); !slices.Equal(got, want) {
		t.Errorf("it has %q, want %q", got, want)
	}
	if _, err := b.agent().RecoverInstances(t.Context()); err != nil {
		t.Error(err)
	}
	if got := b.parts(a); !slices.Equal(got, want) {
		t.Errorf("afterwards it has %q, want %q", got, want)
	}
}

// A second half that fails undoes the first.
func TestSecondHalfThatFails(t *testing.T) {
	b := newBench(t, "h100x8", "gpus[0].migMode=true")
	a := b.agent()
	err := b.store.Inject(t.Context(), b.instance, 0, simgpu.Injection{Call: "nvmlGpuInstanceCreateComputeInstance", Result: 999, Count: 1})
	if err != nil {
		t.Fatal(err)
	}
	if i, err := a.Create(t.Context(), b.gpu, "1g.10gb", 0, backend.OriginShare); err == nil {
		t.Errorf("made %+v", i)
	}
	if got := b.parts(a); len(got) != 0 {
		t.Errorf("it has %q", got)
	}
	b.create(a, "1g.10gb", 0)
}

// A driver that does not make an instance in time is given up; what it made all the same is taken away, and the book
// and the GPU agree.
func TestDriverThatHangs(t *testing.T) {
	b := newBench(t, "h100x8", "gpus[0].migMode=true")
	b.limits.Change = 5 * time.Second // of which all other changes take milliseconds
	a := b.agent()
	err := b.store.Inject(t.Context(), b.instance, 0, simgpu.Injection{Call: "nvmlGpuInstanceCreateComputeInstance", Delay: time.Minute, Count: 1})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.Create(t.Context(), b.gpu, "1g.10gb", 0, backend.OriginShare); !errors.Is(err, nvml.ErrSilent) {
		t.Fatalf("%v, want %v", err, nvml.ErrSilent)
	}
	want := "1g.10gb at 0, share, Divvy is about to make it"
	if got := b.parts(a); len(got) != 1 || got[0] != want {
		t.Errorf("it has %q, want %q", got, want)
	}
	b.create(a, "1g.10gb", 0) // which finishes with it first
	if got := b.parts(a); !slices.Equal(got, []string{"1g.10gb at 0, share"}) {
		t.Errorf("it has %q", got)
	}
}

// Who holds a GPU keeps its mode, and is named: also who runs no program there.
func TestModeOfAGPUThatAMonitorHolds(t *testing.T) {
	b := newBench(t, "h100x8")
	a := b.agent()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), monitorVariable+"="+b.library)
	input, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	output, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	end := func() {
		input.Close()
		_ = cmd.Wait() // it ends when its input does
	}
	defer end()
	if line, err := bufio.NewReader(output).ReadString('\n'); err != nil || line != "<nil>\n" {
		t.Fatalf("the monitor says %q, %v", line, err)
	}
	err = a.SetMode(t.Context(), b.gpu, true)
	// It is the test's own child, which the agent takes for a helper of its own: the driver refuses.
	if !errors.Is(err, nvml.ErrInUse) {
		t.Errorf("held: %v", err)
	}
	users, _, err := Lone{Holding: func(string) (string, error) { return b.instance.Dir + "/state", nil }}.holders(b.gpu)
	if err != nil {
		t.Fatal(err)
	}
	name := fmt.Sprintf("%s (pid %d, %s)", process.Command(cmd.Process.Pid), cmd.Process.Pid, process.UserName(os.Getuid()))
	if !slices.ContainsFunc(users, func(id process.ID) bool { return nameOf(id) == name }) {
		t.Errorf("held by %v, want %s", users, name)
	}
	if d := b.divide(a); d.On || d.Pending {
		t.Errorf("afterwards: %+v", d)
	}
	end()
	if err := a.SetMode(t.Context(), b.gpu, true); err != nil {
		t.Errorf("let go: %v", err)
	}
}

// An agent that makes no instances says so.
func TestAgentWithoutABook(t *testing.T) {
	b := newBench(t, "h100x8", "gpus[0].migMode=true")
	a := b.agent()
	b.create(a, "1g.10gb", 0)
	a.options.Book = nil
	if got := b.parts(a); !slices.Equal(got, []string{"1g.10gb at 0, foreign"}) {
		t.Errorf("it sees %q", got)
	}
	_, err := a.Create(t.Context(), b.gpu, "1g.10gb", 1, backend.OriginShare)
	for _, err := range []error{err, a.Destroy(t.Context(), b.gpu, "MIG-1"), a.Claim(t.Context(), b.gpu, "MIG-1", backend.OriginShare), a.SetMode(t.Context(), b.gpu, false)} {
		if err == nil || !strings.Contains(err.Error(), "system agent") {
			t.Errorf("%v", err)
		}
	}
}

// The driver tells what is in use of each instance.
func TestMemoryOfInstances(t *testing.T) {
	b := newBench(t, "h100x8", "gpus[0].migMode=true")
	a := b.agent()
	large, small := b.create(a, "3g.40gb", 4), b.create(a, "1g.10gb", 0)
	held := b.driver().Holdings([]int{0, 1})
	if len(held[1].Instances) != 0 {
		t.Errorf("a whole GPU has %+v", held[1].Instances)
	}
	for _, i := range []backend.Instance{large, small} {
		if !slices.ContainsFunc(held[0].Instances, func(m nvml.InstanceMemory) bool {
			return m.UUID == i.UUID && m.GPUInstance == i.GPUInstance && m.ComputeInstance == i.ComputeInstance && m.Total > 0 && m.Used <= m.Total
		}) {
			t.Errorf("no %+v among %+v", i, held[0].Instances)
		}
	}
	if len(held[0].Instances) != 2 || held[0].Instances[0].Total == held[0].Instances[1].Total {
		t.Errorf("held %+v", held[0].Instances)
	}
}
