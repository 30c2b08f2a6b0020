package agent

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/nvml"
)

// onFirst asks for a fixed share of the first GPU.
func onFirst(cores int) control.CreateParams {
	p := ask(gib)
	p.Request.Among, p.Request.Cores = []string{firstID}, cores
	return p
}

// The kernel says whose a process is: a page that names a stranger's pid must not
// get that stranger stopped.
func TestPidsInPagesAreNotBelieved(t *testing.T) {
	n := newNode(t)
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
	if got := r.ownerOf(stranger.Process.Pid); got != "" {
		t.Errorf("the stranger is of %q", got)
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
	n.grant(r, a, onFirst(0))
	n.driver.busy.Store(&map[int]float64{a.cmd.Process.Pid: 0.5, os.Getpid(): 0.4})
	eventually(t, "its time is shown", func() bool {
		time := n.list(r).Tenants[0].Shares[0].Time
		return time != nil && !time.Limited && time.Percent != nil && *time.Percent == 50
	})
}
