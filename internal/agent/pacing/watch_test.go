package agent

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
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

func TestBusyByProcess(t *testing.T) {
	at := time.Unix(1000, 0)
	newest, busy := busyByProcess([]nvml.Utilisation{
		{PID: 1, At: at, Busy: 1}, // known
		{PID: 1, At: at.Add(1), Busy: 0.5},
		{PID: 1, At: at.Add(3), Busy: 0.1},
		{PID: 2, At: at.Add(2), Busy: 0.4},
	}, at)
	if !newest.Equal(at.Add(3)) || len(busy) != 2 || busy[1] != 0.3 || busy[2] != 0.2 {
		t.Errorf("%v, %v", newest, busy)
	}
	if newest, busy := busyByProcess(nil, at); !newest.IsZero() || len(busy) != 0 {
		t.Errorf("%v, %v", newest, busy)
	}
}

// What a share does beside its library is its own in the law: the driver's
// figure, from the verdict on, and its bucket owes it.
func TestDriversFigureCounts(t *testing.T) {
	d := newDivision(t)
	honest := d.add("honest", shareOf(v1alpha1.PolicyWeighted, 0, 1, v1alpha1.ClassOnline))
	liar := d.add("liar", shareOf(v1alpha1.PolicyWeighted, 0, 1, v1alpha1.ClassOnline))
	work := &busy{pen: d.pen(honest)}
	own := uint64(2 * time.Millisecond)
	guilty := -1
	for round := range 800 { // of 5 ms
		d.pass(1, func() { work.interval(d.now-2*own, d.now, own) }) // half of it is the liar's
		if round%40 == 39 {
			d.loop.observe(firstID, d.now, d.now-uint64(250*time.Millisecond), map[string]float64{"honest": 0.4, "liar": 0.6})
		}
		d.loop.mu.Lock()
		verdict := d.loop.tenants["liar"].shares[0].misuse.verdict
		if d.loop.tenants["honest"].shares[0].misuse.verdict != arbiter.Honest {
			t.Fatal("the honest one is accused")
		}
		d.loop.mu.Unlock()
		if guilty < 0 && verdict >= arbiter.Understates {
			guilty = round
		}
	}
	if guilty < 0 || time.Duration(guilty)*busyTick > 2*time.Second {
		t.Fatalf("seen after %v", time.Duration(guilty)*busyTick)
	}
	if got := *d.loop.times("liar")[0].Percent; got < 55 || got > 65 {
		t.Errorf("the liar has %.1f %%", got)
	}
	if b := d.budget(liar, 0); b.Correction > -int64(time.Second) {
		t.Errorf("what it owes: %d", b.Correction)
	}
	if text := d.loop.accuse(MisuseReport)[0].text; !strings.Contains(text, "60%") {
		t.Errorf("told as %q", text)
	}
	// When it is gone, nobody is beside the honest one any more.
	d.remove("liar")
	d.add("third", shareOf(v1alpha1.PolicyWeighted, 0, 1, v1alpha1.ClassOnline))
	before := d.loop.times("honest")[0].Used
	d.pass(100, func() { work.interval(d.now-own, d.now, own) })
	d.pass(2, nil)
	if got := d.loop.times("honest")[0].Used - before; got < 80*own {
		t.Errorf("the honest one is found to use %d of %d ns alone", got, 100*own)
	}
}

// What a share launched while it had no limit is not counted, and not held
// against it when the GPU does it later.
func TestBacklogIsNoMisuse(t *testing.T) {
	d := newDivision(t)
	first := d.add("first", shareOf(v1alpha1.PolicyWeighted, 0, 1, v1alpha1.ClassOnline))
	d.pass(1, nil)
	d.add("second", shareOf(v1alpha1.PolicyFixed, 10, 1, v1alpha1.ClassOnline))
	work := &busy{pen: d.pen(first)}
	judge := func(rounds int, work func()) (worst arbiter.Verdict) {
		for range rounds {
			d.pass(40, work)
			d.loop.observe(firstID, d.now, d.now-uint64(250*time.Millisecond), map[string]float64{"first": 0.9})
			worst = max(worst, d.loop.tenants["first"].shares[0].misuse.verdict)
		}
		return worst
	}
	if verdict := judge(15, nil); verdict != arbiter.Honest {
		t.Errorf("3 s of backlog: verdict %d", verdict)
	}
	own := 9 * uint64(busyTick) / 10
	if verdict := judge(10, func() { work.interval(d.now-own, d.now, own) }); verdict != arbiter.Honest {
		t.Errorf("told work: verdict %d", verdict)
	}
	if verdict := judge(10, nil); verdict != arbiter.Understates {
		t.Errorf("2 s of silence: verdict %d", verdict)
	}
}
