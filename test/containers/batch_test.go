package containers

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/agent/agenttest"
	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/install/installtest"
)

// kernels is the folder of Jupyter's kernels.
const kernels = "/opt/jupyter/.local/share/jupyter/kernels/"

// kernelOfPage is the page's Jupyter kernel.
func kernelOfPage(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(installtest.Root(t), "docs", "containers.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, begins := strings.Cut(string(text), "    {\n      \"display_name\"")
	kernel, _, ends := strings.Cut(rest, "\n    }\n")
	if !begins || !ends {
		t.Fatal("the page has no kernel")
	}
	return "{\"display_name\"" + kernel + "\n}\n"
}

// tenants are those of the agent.
func (m *machine) tenants() []control.Tenant {
	m.t.Helper()
	listing, err := m.List(m.t.Context())
	if err != nil {
		m.t.Fatal(err)
	}
	return listing.Tenants
}

// The page's Jupyter kernel has its memory, can be interrupted and started again, and its share ends with it.
func TestJupyterKernel(t *testing.T) {
	m := newMachine(t)
	script, err := os.ReadFile("kernel.py")
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Write("/opt/kernel.py", string(script)); err != nil {
		t.Fatal(err)
	}
	const want = `memory: 8589934592
interrupted: KeyboardInterrupt
shares: 1
same kernel: False
memory again: 8589934592
shares again: 1
`
	out, err := m.sh("HOME=/opt/jupyter PYTHONPATH=$1/modules PYTHONDONTWRITEBYTECODE=1 python3 /opt/kernel.py 2>/opt/kernel.log || cat /opt/kernel.log", unpacked(t, "jupyter"))
	if err != nil || out != want {
		t.Errorf("it prints %s(%v), want %s", out, err, want)
	}
	agenttest.Eventually(t, "the kernel's share has ended", func() bool { return len(m.tenants()) == 0 })
}

// The ranks of MPI have one share, and what they have together stays below its limit.
func TestRanksShareTheLimit(t *testing.T) {
	m := newMachine(t)
	const rank = `sleep 1000 | gpubench hold --bytes 3Gi >/opt/rank.$OMPI_COMM_WORLD_RANK; sleep 1000`
	cmd := m.Command(context.WithoutCancel(t.Context()), "root", "env", "PATH=/opt/tools:/opt/divvy/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"divvy", "run", "--memory", "8Gi", "--name", "ranks", "--", "mpirun", "-n", "4", "sh", "-c", rank)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = errors.Join(cmd.Process.Kill(), cmd.Wait()) }) // the server's own processes end with it
	refused, served := 0, 0
	agenttest.Eventually(t, "each rank has memory or was refused it", func() bool {
		refused, served = 0, 0
		files, _ := filepath.Glob(filepath.Join(m.Root, "opt/rank.*"))
		for _, file := range files {
			text, _ := os.ReadFile(file)
			refused += strings.Count(string(text), `"CUDA_ERROR_OUT_OF_MEMORY"`)
			served += strings.Count(string(text), `"CUDA_SUCCESS"`)
		}
		return refused+served == 4
	})
	all := m.tenants()
	if len(all) != 1 || served != 2 || all[0].Shares[0].Used < 6<<30 || all[0].Shares[0].Used > 8<<30 {
		t.Errorf("%d ranks have memory and %d were refused it, in %+v", served, refused, all)
	}
}
