package pacing

import (
	"log/slog"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/arbiter"
	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/nvml"
)

// court is a ledger and a driver: it knows whose processes use the GPU.
type court struct {
	owners map[int]string // tenant by pid
	told   []control.Event
}

func (c *court) Owner(pid int) string          { return c.owners[pid] }
func (c *court) Name(id string) (string, bool) { return id, id != "ended" }
func (c *court) Tell(e control.Event)          { c.told = append(c.told, e) }
func (c *court) Processes(int) ([]nvml.Process, error) {
	var all []nvml.Process
	for pid := range c.owners {
		all = append(all, nvml.Process{PID: pid})
	}
	return all, nil
}

func (c *court) Utilisation(int, time.Time) ([]nvml.Utilisation, error) {
	return nil, nvml.ErrNotSupported
}

// process is one that a tenant runs on the GPU.
func (c *court) process(t *testing.T, tenant string) int {
	t.Helper()
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	c.owners[cmd.Process.Pid] = tenant
	return cmd.Process.Pid
}

// judged is a pacer of tenants of pages alone.
func (c *court) judged(t *testing.T, misuse Misuse, tenants ...string) (*division, *Pacer) {
	t.Helper()
	d := newDivision(t)
	p, err := New(Config{
		GPUs: []backend.GPU{{UUID: firstID}}, Driver: c, Ledger: c, Misuse: misuse, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	p.loop = d.loop
	for _, id := range tenants {
		d.add(id, shareOf(v1alpha1.PolicyFixed, 30, 1, v1alpha1.ClassOnline))
	}
	d.pass(1, nil)
	return d, p
}

// convict makes a tenant's share guilty, as the watch would.
func (d *division) convict(id string, verdict arbiter.Verdict) {
	m := &d.loop.tenants[id].shares[0].misuse
	m.verdict, m.busy = verdict, 0.83
}

// processState is the letter of proc_pid_stat(5), 0 for a process that is gone.
func processState(pid int) byte {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0
	}
	return data[strings.LastIndexByte(string(data), ')')+2]
}

func TestMisuseIsAnswered(t *testing.T) {
	for misuse, want := range map[Misuse]string{MisuseReport: "SR", MisuseStop: "T", MisuseKill: "Z\x00"} {
		t.Run(string(misuse), func(t *testing.T) {
			c := &court{owners: map[int]string{}}
			guilty, innocent, stranger := c.process(t, "guilty"), c.process(t, "innocent"), c.process(t, "")
			d, p := c.judged(t, misuse, "guilty", "innocent")
			d.convict("guilty", arbiter.Understates)
			p.answerMisuse(t.Context())
			deadline := time.After(time.Minute)
			for strings.IndexByte(want, processState(guilty)) < 0 {
				select {
				case <-deadline:
					t.Fatalf("the guilty one is in state %c", processState(guilty))
				case <-time.After(2 * time.Millisecond):
				}
			}
			for _, pid := range []int{innocent, stranger} {
				if got := processState(pid); strings.IndexByte("SR", got) < 0 {
					t.Errorf("an innocent process is in state %c", got)
				}
			}
			if len(c.told) != 1 || c.told[0].Kind != control.EventMisuse || c.told[0].Tenant != "guilty" || !strings.Contains(c.told[0].Text, "83%") {
				t.Errorf("told %+v", c.told)
			}
			if text := p.Times("guilty")[0].Fault; !strings.Contains(text, "says less") {
				t.Errorf("shown as %q", text)
			}
			d.convict("guilty", arbiter.Honest)
			p.answerMisuse(t.Context())
			// A share whose processes were stopped stays shown: they still are.
			if text := p.Times("guilty")[0].Fault; (text == "") != (misuse == MisuseReport) {
				t.Errorf("afterwards shown as %q", text)
			}
		})
	}
}

// A tenant that ended meanwhile is neither told of nor punished.
func TestMisuseOfAnEndedTenant(t *testing.T) {
	c := &court{owners: map[int]string{}}
	pid := c.process(t, "ended")
	d, p := c.judged(t, MisuseKill, "ended")
	d.convict("ended", arbiter.Exceeds)
	p.answerMisuse(t.Context())
	if got := processState(pid); strings.IndexByte("SR", got) < 0 || len(c.told) != 0 {
		t.Errorf("state %c, told %+v", got, c.told)
	}
}
