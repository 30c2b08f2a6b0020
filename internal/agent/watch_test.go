package agent

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/arbiter"
	"github.com/divvy-gpu/divvy/internal/nvml"
)

// onFirst asks for a fixed share of the first GPU.
func onFirst(cores int) control.CreateParams {
	p := ask(gib)
	p.Request.GPU, p.Request.Cores = firstID, cores
	return p
}

// convict makes a tenant's share guilty, as the watch would.
func convict(r *running, id string, verdict arbiter.Verdict) {
	r.arbiter.mu.Lock()
	defer r.arbiter.mu.Unlock()
	m := &r.arbiter.tenants[id].shares[0].misuse
	m.verdict, m.busy = verdict, 0.83
}

func known(r *running, id string) func() bool {
	return func() bool { return r.arbiter.times(id) != nil }
}

// processState is the letter of proc_pid_stat(5), 0 for a process that is gone.
func processState(t *testing.T, pid int) byte {
	t.Helper()
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0
	}
	return data[strings.LastIndexByte(string(data), ')')+2]
}

func TestMisuseIsAnswered(t *testing.T) {
	for misuse, want := range map[Misuse]string{MisuseReport: "SR", MisuseStop: "T", MisuseKill: "Z\x00"} {
		t.Run(string(misuse), func(t *testing.T) {
			n := newNode(t)
			n.misuse = misuse
			r := n.start()
			guilty, other := n.asker(os.Getuid()), n.asker(os.Getuid())
			created := n.grant(r, guilty, onFirst(30))
			innocent := n.grant(r, other, onFirst(30))
			n.driver.list(nvml.Process{PID: guilty.cmd.Process.Pid}, nvml.Process{PID: other.cmd.Process.Pid})
			eventually(t, "both are divided", func() bool {
				return known(r, created.Tenant.ID)() && known(r, innocent.Tenant.ID)()
			})
			convict(r, created.Tenant.ID, arbiter.Understates)
			r.answerMisuse(t.Context())
			eventually(t, "something is done", func() bool {
				return strings.IndexByte(want, processState(t, guilty.cmd.Process.Pid)) >= 0
			})
			if got := processState(t, other.cmd.Process.Pid); strings.IndexByte("SR", got) < 0 {
				t.Errorf("the innocent one is in state %c", got)
			}
			told := 0
			for _, e := range n.list(r).Events {
				if e.Kind == control.EventMisuse && e.Tenant == created.Tenant.Name && strings.Contains(e.Text, "83%") {
					told++
				}
			}
			if told != 1 {
				t.Errorf("told %d times", told)
			}
			if misuse == MisuseKill {
				return // it has ended, or will
			}
			if s := n.list(r).Tenants[0].Shares[0]; s.Time == nil || !strings.Contains(s.Time.Fault, "says less") {
				t.Errorf("listed as %+v", s.Time)
			}
			convict(r, created.Tenant.ID, arbiter.Honest)
			r.answerMisuse(t.Context())
			// Who was stopped stays shown: the stop is still true.
			if s := n.list(r).Tenants[0].Shares[0]; (s.Time.Fault == "") != (misuse == MisuseReport) {
				t.Errorf("afterwards %+v", s.Time)
			}
		})
	}
}

// Whose a process is, the kernel says: a page that names a stranger's pid must
// not get that stranger stopped.
func TestPidsInPagesAreNobodysWord(t *testing.T) {
	n := newNode(t)
	n.misuse = MisuseKill
	r := n.start()
	stranger := exec.Command("sleep", "1000")
	if err := stranger.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = stranger.Process.Kill(); _ = stranger.Wait() }()
	liar := n.asker(os.Getuid())
	created := n.grant(r, liar, onFirst(30))
	n.enter(created.Tenant.Dir, 0, stranger.Process.Pid, gib/2)
	n.driver.list(nvml.Process{PID: stranger.Process.Pid})
	n.list(r)
	eventually(t, "it is divided", known(r, created.Tenant.ID))
	convict(r, created.Tenant.ID, arbiter.Exceeds)
	r.answerMisuse(t.Context())
	if got := processState(t, stranger.Process.Pid); strings.IndexByte("SR", got) < 0 {
		t.Errorf("the stranger is in state %c", got)
	}
	if got := r.ownerOf(liar.cmd.Process.Pid); got != created.Tenant.ID {
		t.Errorf("the liar's own process is of %q", got)
	}
	if got := r.ownerOf(os.Getpid()); got != "" {
		t.Errorf("the agent is of %q", got)
	}
}

// A driver that does not tell is said to be one, and nobody is accused.
func TestUnwatchedGPU(t *testing.T) {
	n := newNode(t)
	r := n.start()
	n.grant(r, n.asker(os.Getuid()), onFirst(30))
	eventually(t, "it is told that nobody watches", func() bool {
		return strings.Contains(n.list(r).GPUs[0].Unwatched, "does not tell")
	})
	n.driver.busy.Store(&map[int]float64{})
	eventually(t, "it is told that somebody does", func() bool { return n.list(r).GPUs[0].Unwatched == "" })
}

// A share with the GPU to itself is not counted; the driver says what it uses.
func TestShareWithoutLimitShowsTheDriversFigure(t *testing.T) {
	n := newNode(t)
	r := n.start()
	a := n.asker(os.Getuid())
	p := onFirst(0)
	n.grant(r, a, p)
	n.driver.busy.Store(&map[int]float64{a.cmd.Process.Pid: 0.5, os.Getpid(): 0.4})
	eventually(t, "its time is shown", func() bool {
		time := n.list(r).Tenants[0].Shares[0].Time
		return time != nil && !time.Limited && time.Percent != nil && *time.Percent == 50
	})
}
