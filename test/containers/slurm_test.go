package containers

import (
	"context"
	"errors"
	"path/filepath"
	"testing"

	"github.com/divvy-gpu/divvy/internal/agent/agenttest"
)

// newSlurm is a server with an agent of a simulated machine, of which Slurm gives the first two GPUs to jobs.
func newSlurm(t *testing.T) *machine {
	t.Helper()
	programs := filepath.Join(unpacked(t, "slurm"), "debian")
	m := open(t, "slurm")
	m.start("slurm.sh", programs)
	m.serve()
	return m
}

// slurmed has a script know Slurm's configuration.
const slurmed = "export SLURM_CONF=/opt/slurm/slurm.conf\n"

// sharesOn are the GPUs of shares by name.
func (m *machine) sharesOn() map[string]int {
	found := map[string]int{}
	for _, tenant := range m.tenants() {
		found[tenant.Name] = tenant.Shares[0].Index
	}
	return found
}

// Each job of Slurm's has its share on the GPU that Slurm gave it, whole or as shards, and the share ends with the job.
func TestSlurmGivesTheGPU(t *testing.T) {
	m := newSlurm(t)
	job := func(name, gres string) {
		cmd := m.Command(context.WithoutCancel(t.Context()), "root", "env", "PATH=/opt/divvy/bin:/usr/sbin:/usr/bin:/sbin:/bin", "SLURM_CONF=/opt/slurm/slurm.conf",
			"srun", "--job-name="+name, "--gres="+gres, "divvy", "run", "--memory", "8Gi", "--name", name, "--", "sleep", "1000")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = errors.Join(cmd.Process.Kill(), cmd.Wait()) }) // the server's own processes end with it
		agenttest.Eventually(t, "job "+name+" has a share", func() bool { _, there := m.sharesOn()[name]; return there })
	}
	agenttest.Eventually(t, "the node serves", func() bool {
		out, _ := m.sh(slurmed + "sinfo --noheader --format %T")
		return out == "idle\n"
	})
	job("first", "gpu:1")
	job("second", "shard:2")
	if got := m.sharesOn(); got["first"] != 0 || got["second"] != 1 || len(got) != 2 {
		t.Errorf("the shares are on %v", got)
	}
	if out, err := m.sh(slurmed + "scancel --name=first"); err != nil {
		t.Fatalf("cancel the first job: %v: %s", err, out)
	}
	agenttest.Eventually(t, "the first job's share has ended", func() bool { _, there := m.sharesOn()["first"]; return !there })
	if got := m.sharesOn(); got["second"] != 1 {
		t.Errorf("the shares are on %v then", got)
	}
}
