package run

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/install/installtest"
)

// migHost has GPUs with MIG, and an agent of root's that stays.
func migHost(t *testing.T) *host {
	t.Helper()
	if os.Getuid() != 0 {
		installtest.Missing(t, "users", errors.New("only root's agent makes MIG instances"))
	}
	h := newHostOf(t, "h100x8")
	agent := h.command(filepath.Join(string(h.tree), "bin", "divvy"), "agent", "--simgpu-dir", h.instance)
	if err := agent.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = agent.Process.Signal(syscall.SIGTERM)
		_ = agent.Wait() // its status is that of the signal, or of an end that the test saw
	})
	h.eventually("the agent serves", func() bool {
		o := h.divvy("ls", "--simgpu", "m")
		return o.status == 0 && strings.Contains(o.out, "H100")
	})
	return h
}

// told fails the test unless a command has the status and says something.
func (o outcome) told(t *testing.T, what string, status int, says ...string) {
	t.Helper()
	for _, text := range append(says, "") {
		if o.status != status || !strings.Contains(o.out+o.err, text) {
			t.Errorf("%s: %+v, want status %d and %q", what, o, status, text)
		}
	}
}

// once gives a command that was not told to try again: a mode changes only once all processes of the machine were looked through,
// those of other tests as well.
func (h *host) once(do func() outcome) (o outcome) {
	h.t.Helper()
	h.eventually("the processes of others are looked through", func() bool {
		o = do()
		return !strings.Contains(o.err, "so try again")
	})
	return o
}

// Instances are made for shares, divided, listed, compared and laid out by commands alone, and what shares use stays.
func TestMIGByCommands(t *testing.T) {
	h := migHost(t)
	gpu := func(args ...string) outcome {
		return h.once(func() outcome { return h.divvy(append([]string{"gpu"}, append(args, "--simgpu", "m")...)...) })
	}
	h.run("--profile", "1g.10gb", "--", "true").told(t, "without the mode", 125, "turn it on with `divvy gpu set 0 --mig on`")
	gpu("set", "0", "--mig", "on").told(t, "the mode", 0, "mig")
	sleeper := []string{"sh", "-c", "echo; read x"}
	part := h.hold([]string{"--gpu", "0", "--profile", "3g.40gb", "--backend", "slice", "--memory", "50%", "--cores", "30", "--name", "part"}, sleeper...)
	eval := h.hold([]string{"--gpu", "0", "--profile", "1g.10gb", "--name", "eval"}, sleeper...)
	train := h.hold([]string{"--gpu", "0", "--backend", "mig", "--memory", "11Gi", "--cores", "20", "--name", "train"}, sleeper...)
	if share, _ := h.tenant("train"); share.Shares[0].Instance == nil || share.Shares[0].Instance.Profile != "2g.20gb" {
		t.Errorf("the smallest with 11Gi: %+v", share.Shares)
	}
	share, _ := h.tenant("part")
	if s := share.Shares[0]; s.Instance == nil || s.Instance.Profile != "3g.40gb" || s.Limit > s.Instance.Bytes/2 || s.Limit < s.Instance.Bytes/3 {
		t.Errorf("a part of an instance: %+v", s)
	}
	text := h.ok("gpu", "ls", "--simgpu", "m", "--profiles")
	for _, want := range []string{"Divvy, for a share", "eval", "train", "part", "FREE AT"} {
		if !strings.Contains(text, want) {
			t.Errorf("the list does not tell %q:\n%s", want, text)
		}
	}
	h.divvy("set", "eval", "--memory", "5Gi", "--simgpu", "m").told(t, "another size", 1, "cannot be changed")
	gpu("set", "0", "--mig", "off").told(t, "the mode of a GPU in use", 1, "eval")
	file := filepath.Join(t.TempDir(), "layouts.yaml")
	if err := os.WriteFile(file, []byte(gpu("export", "--config", "found").out+"\n"+`  all:
  - {devices: [0], mig-enabled: true, mig-devices: {1g.10gb: 7}}
  two:
  - {devices: [0], mig-enabled: true, mig-devices: {1g.10gb: 1, 2g.20gb: 1, 3g.40gb: 1}}
  - {devices: [1], mig-enabled: true, mig-devices: {4g.40gb: 1}}
`), 0o600); err != nil {
		t.Fatal(err)
	}
	gpu("diff", "-f", file, "--config", "found").told(t, "what was exported", 0)
	gpu("diff", "-f", file, "--config", "two").told(t, "what differs", 1, "4g.40gb")
	gpu("diff", "-f", file, "--config", "none").told(t, "no such configuration", 2, "no configuration")
	gpu("apply", "-f", file, "--config", "all").told(t, "a layout without what is used", 1, "nothing was changed", "train")
	gpu("apply", "-f", file, "--config", "two", "--dry-run").told(t, "a plan", 0, "GPU 0: nothing to do", "GPU 1: turn the MIG mode on")
	gpu("diff", "-f", file, "--config", "two").told(t, "after a plan", 1)
	gpu("apply", "-f", file, "--config", "two").told(t, "a layout", 0)
	gpu("diff", "-f", file, "--config", "two").told(t, "after it was applied", 0)
	for _, s := range []*holder{eval, train, part} {
		s.end()
	}
	h.eventually("the shares have ended", func() bool { return len(h.list().Tenants) == 0 })
	gpu("diff", "-f", file, "--config", "two").told(t, "after the shares", 0)
	for _, index := range []string{"0", "1"} {
		gpu("set", index, "--mig", "off").told(t, "the mode of a GPU that nobody uses", 0)
	}
	if gpus := h.list().GPUs; slices.IndexFunc(gpus, func(g control.GPU) bool { return g.Form != "" }) >= 0 {
		t.Errorf("listed %+v", gpus)
	}
}
