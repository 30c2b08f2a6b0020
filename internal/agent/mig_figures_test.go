package agent

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/agentconfig"
	"github.com/divvy-gpu/divvy/internal/nvml"
)

// Listings have what is in use of each instance, as far as the driver tells.
func TestMemoryOfInstances(t *testing.T) {
	q := newQuarry(t)
	foreign := q.mig.Foreign(t, firstID, "1g.10gb", 5)
	r := q.run("")
	mine := q.grant(r, q.asker(os.Getuid()), instanceOf("3g.40gb")).Tenant.Shares[0].Instance
	q.driver.instances.Store(&[]nvml.InstanceMemory{{UUID: mine.UUID, Used: 3 * gib}})
	l := q.list(r)
	if !l.GPUs[0].MIG || l.GPUs[1].MIG || len(l.GPUs[0].Instances) != 2 || len(l.GPUs[1].Instances) != 0 {
		t.Fatalf("listed %+v", l.GPUs)
	}
	for _, i := range l.GPUs[0].Instances {
		switch i.UUID {
		case mine.UUID:
			if i.Used == nil || *i.Used != 3*gib || len(i.Shares) != 1 {
				t.Errorf("the share's instance: %+v", i)
			}
		case foreign.UUID:
			if i.Used != nil || len(i.Shares) != 0 {
				t.Errorf("the other tool's instance: %+v", i)
			}
		}
	}
}

// The cores of a part are of its instance, and those of the GPU are added up as parts of the GPU.
func TestCoresOfPartsOnTheGPU(t *testing.T) {
	q := newQuarry(t)
	r := q.run("")
	p := within("2g.20gb", v1alpha1.BackendSlice, gib)
	p.Request.Cores = 50
	for range 2 {
		if s := q.grant(r, q.asker(os.Getuid()), p).Tenant.Shares[0]; s.Cores != 50 {
			t.Errorf("the share has %+v", s)
		}
	}
	if got := q.list(r).GPUs[0].Cores; got != 28 { // two times 50 % of 32 of 112 SMs
		t.Errorf("the GPU has %d %% of its cores guaranteed", got)
	}
}

// The driver takes programs in proportion to an instance: what has no room on one is on another.
func TestServerOfAnInstanceIsFull(t *testing.T) {
	q := newQuarry(t)
	r := q.run("")
	var on []string
	for range 7 {
		on = append(on, q.grant(r, q.asker(os.Getuid()), within("1g.10gb", v1alpha1.BackendMPS, gib)).Tenant.Shares[0].Instance.UUID)
	}
	if slices.ContainsFunc(on[:6], func(uuid string) bool { return uuid != on[0] }) || on[6] == on[0] {
		t.Errorf("the shares are on %q", on)
	}
}

// outsideEvents are the texts about processes without a share.
func outsideEvents(l *control.Listing) (all []string) {
	for _, e := range l.Events {
		if e.Kind == control.EventOutside {
			all = append(all, e.Text)
		}
	}
	return all
}

// Who is on another tool's instance was given it by that: they are shown there, and neither told of nor signalled. Who is
// on an instance of Divvy's without a share is.
func TestProcessesOnOthersInstances(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root starts processes of other users")
	}
	q := newQuarry(t)
	foreign := q.mig.Foreign(t, firstID, "1g.10gb", 5)
	q.misuse, q.listed = agentconfig.OutsideKill, func(uid int) bool { return uid == 4711 }
	r := q.run("")
	asker := q.asker(os.Getuid())
	mine := q.grant(r, asker, instanceOf("3g.40gb")).Tenant.Shares[0].Instance
	theirs, intruder := q.as(4711), q.as(4711)
	q.driver.list(
		nvml.Process{PID: theirs, Instances: []int{foreign.GPUInstance}}, nvml.Process{PID: intruder, Instances: []int{mine.GPUInstance}},
		nvml.Process{PID: asker.cmd.Process.Pid, Instances: []int{mine.GPUInstance}},
	)
	q.list(r)
	states(t, map[int]string{theirs: "SRD", intruder: "ZX", asker.cmd.Process.Pid: "SRD"})
	l := q.list(r)
	if got := outsideEvents(l); slices.ContainsFunc(got, func(text string) bool { return strings.Contains(text, "process "+strconv.Itoa(theirs)+" ") }) {
		t.Errorf("told %q", got)
	}
	at := slices.IndexFunc(l.GPUs[0].Instances, func(i control.Instance) bool { return i.UUID == foreign.UUID })
	if outside := l.GPUs[0].Instances[at].Outside; len(outside) != 1 || outside[0].PID != theirs {
		t.Errorf("on the other tool's instance are %+v", outside)
	}
}

// A tenant's process on an instance that is not its own is beside its share.
func TestProcessOnTheWrongInstance(t *testing.T) {
	q := newQuarry(t)
	other := q.mig.Foreign(t, firstID, "1g.10gb", 6)
	r := q.run("")
	asker := q.asker(os.Getuid())
	granted := q.grant(r, asker, instanceOf("1g.10gb"))
	if granted.Tenant.Shares[0].Instance.UUID == other.UUID {
		granted = q.grant(r, q.asker(os.Getuid()), instanceOf("1g.10gb"))
	}
	for wrong, instance := range map[bool]int{false: granted.Tenant.Shares[0].Instance.GPUInstance, true: other.GPUInstance} {
		p := onGPU{uuid: firstID, instances: []int{instance}}
		if got := !p.on(granted.Tenant.Shares[0].Instance); got != wrong {
			t.Errorf("on instance %d: beside its share is %v", instance, got)
		}
	}
	if !(onGPU{uuid: firstID}).on(granted.Tenant.Shares[0].Instance) || !(onGPU{instances: []int{3}}).on(nil) {
		t.Error("where the driver does not tell, or on a whole GPU, a process is beside its share")
	}
}
