package box

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/agent"
	"github.com/divvy-gpu/divvy/internal/agentconfig"
	"github.com/divvy-gpu/divvy/internal/driver"
	"github.com/divvy-gpu/divvy/internal/edits"
	"github.com/divvy-gpu/divvy/internal/simgpu/simfiles"
	"github.com/divvy-gpu/divvy/test/attack"
)

// Every way past the memory limit that root of a container tries is prevented, or
// noticed by the driver's figures and answered as the configuration says.
func TestWaysPastTheMemoryLimit(t *testing.T) {
	for _, c := range []struct {
		name   string
		answer agentconfig.Outside
		user   bool // in a user namespace
	}{
		{name: "report", answer: agentconfig.OutsideReport},
		{name: "stop", answer: agentconfig.OutsideStop},
		{name: "kill", answer: agentconfig.OutsideKill},
		{name: "kill in a user namespace", answer: agentconfig.OutsideKill, user: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := newGuard(t, c.answer)
			honest := g.box(t, "honest", c.user).hold("gpubench", "hold", "--bytes", "1Gi")
			before := g.held(t)
			for _, way := range attack.Ways {
				g.try(t, way, c.user)
				eventually(t, way.Name+" has nothing left", func() bool { return g.held(t) == before })
			}
			if g.told("honest") || stateOf(t, honest.init()) == 'T' {
				t.Errorf("the honest one is accused: %s", g.log.text())
			}
			honest.end()
		})
	}
}

// A process that leaves all mounts of its container before it touches the GPU still
// belongs to the container, by its cgroup, and is answered.
func TestLeavingAContainersMounts(t *testing.T) {
	g := newGuard(t, agentconfig.OutsideKill)
	box := g.box(t, "leaver", false)
	box.spec.Process.Env = append(box.spec.Process.Env, "DIVVY_SIMGPU="+g.machine.Dir)
	files, err := simfiles.Shared(g.machine.Dir)
	if err != nil {
		t.Fatal(err)
	}
	args := append([]string{"look", filepath.Join(edits.ShareDir, driver.CUDA.Real()), strconv.Itoa(attack.Wanted)}, files...)
	r := box.begin(args...)
	defer r.remove()
	eventually(t, "it is told or has ended by itself", func() bool { return g.told("leaver") || r.ended() })
	_ = r.cmd.Wait() // the status says it
	if status := r.cmd.ProcessState.ExitCode(); status != 128+int(unix.SIGKILL) {
		t.Fatalf("exit status %d, %s, %s", status, r.said, g.log.text())
	}
	eventually(t, "it is told", func() bool { return g.told("leaver") })
}

// ended is whether the program has ended.
func (r *running) ended() bool {
	return stateOf(r.t, r.cmd.Process.Pid) == 'Z'
}

// guard is a host whose agent answers shares that take more than they were granted.
type guard struct {
	*host
	answer  agentconfig.Outside
	log     *record
	program string // the directory of the program that tries the ways
}

func newGuard(t *testing.T, answer agentconfig.Outside) *guard {
	t.Helper()
	g := &guard{answer: answer, log: &record{}, program: t.TempDir()}
	g.host = useHost(t).withAgent(t, answer, slog.New(slog.NewTextHandler(g.log, nil)))
	if err := attack.Build(t.Context(), g.program); err != nil {
		t.Fatal(err)
	}
	return g
}

// box is a container in which the ways can be tried, with a share of its own.
func (g *guard) box(t *testing.T, name string, user bool) *container {
	t.Helper()
	box := g.newContainer(t, g.prepareNamed(t, name, agent.TenancyShare{UUID: g.gpu, Memory: attack.Limit}))
	for _, file := range []string{attack.Program, attack.Preload} {
		copyFile(t, filepath.Join(g.program, file), filepath.Join(box.root, "usr/bin", file))
	}
	// As containerd gives it: who lacks it cannot be root in a namespace of their own.
	rights := box.spec.Process.Capabilities
	rights.Bounding = append(rights.Bounding, "CAP_SETFCAP")
	rights.Effective, rights.Permitted = rights.Bounding, rights.Bounding
	if user {
		box.inUserNamespace()
	}
	return box
}

// try has a container try a way, and checks what comes of it. It asks the agent for
// nothing: the agent looks by itself.
func (g *guard) try(t *testing.T, way attack.Way, user bool) {
	t.Helper()
	before := g.held(t)
	box := g.box(t, way.Name, user)
	run := box.hold
	if !way.Prevented && g.answer != agentconfig.OutsideReport {
		run = box.begin // it may not come to say that it has tried
	}
	r := run(attack.Command("/usr/bin", way.Name)...)
	defer r.remove()
	if way.Prevented {
		if held := g.held(t) - before; held > attack.Limit || g.told(way.Name) {
			t.Errorf("%s: %d bytes are held: %s", way.Name, held, r.first)
		}
		r.end()
		return
	}
	switch g.answer {
	case agentconfig.OutsideReport:
		eventually(t, way.Name+" is told", func() bool { return g.told(way.Name) })
		if held := g.held(t) - before; held < attack.Wanted || stateOf(t, r.init()) == 'T' {
			t.Errorf("%s: %d bytes are held: %s", way.Name, held, r.first)
		}
		r.end()
	case agentconfig.OutsideStop:
		eventually(t, way.Name+" is told", func() bool { return g.told(way.Name) })
		eventually(t, way.Name+" is stopped", func() bool { return stateOf(t, r.init()) == 'T' })
	case agentconfig.OutsideKill:
		_ = r.cmd.Wait() // the status says it
		if status := r.cmd.ProcessState.ExitCode(); status != 128+int(unix.SIGKILL) {
			t.Errorf("%s: exit status %d", way.Name, status)
		}
	}
	eventually(t, way.Name+" is told", func() bool { return g.told(way.Name) })
}

// held is what is in use on the machine, as the simulated driver knows.
func (g *guard) held(t *testing.T) (bytes uint64) {
	t.Helper()
	report, err := g.store.Report(t.Context(), g.machine)
	if err != nil {
		t.Fatal(err)
	}
	for _, gpu := range report.GPUs {
		bytes += gpu.Used
	}
	return bytes
}

// told is whether the agent has said that a share takes too much memory.
func (g *guard) told(name string) bool {
	for line := range strings.Lines(g.log.text()) {
		if strings.Contains(line, "GPU memory is misused") && strings.Contains(line, "tenant=box/"+name+" ") {
			return true
		}
	}
	return false
}

// record keeps what is written to it.
type record struct {
	mu   sync.Mutex
	kept bytes.Buffer
}

func (r *record) Write(text []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.kept.Write(text)
}

func (r *record) text() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.kept.String()
}

// stateOf is the letter of proc_pid_stat(5) of a process.
func stateOf(t *testing.T, pid int) byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		t.Fatal(err)
	}
	return text[bytes.LastIndexByte(text, ')')+2]
}
