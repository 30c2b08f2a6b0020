package simulated

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// longest bounds every wait for something that takes milliseconds.
const longest = 20 * time.Second

// Line is one line of gpubench; each command fills a part. Times are ns of CLOCK_MONOTONIC.
type Line struct {
	Command  string  `json:"command"`
	Result   string  `json:"result"`
	PID      int     `json:"pid"`
	At       uint64  `json:"at_ns"`
	Phase    string  `json:"phase"`
	Begin    uint64  `json:"begin_ns"`
	End      uint64  `json:"end_ns"`
	Arrival  uint64  `json:"arrival_ns"`
	Launched uint64  `json:"launched_ns"`
	Done     uint64  `json:"done_ns"`
	First    bool    `json:"first"`
	P99      float64 `json:"p99_ms"`
	Wall     uint64  `json:"wall_ns"`    // of one round, from gpubench rounds, or one pair, from gpubench await
	Launch   float64 `json:"launch_ns"`  // for each launch, from gpubench cost
	AskP50   uint64  `json:"ask_p50_ns"` // of calls that the driver answers by itself, from gpubench calls
	AskP99   uint64  `json:"ask_p99_ns"`
	WaitP50  uint64  `json:"wait_p50_ns"` // of waits for a stream that has nothing to do
	WaitP99  uint64  `json:"wait_p99_ns"`
	To       uint64  `json:"to_ns"` // of a copy to the GPU, and of one back, from gpubench bulk
	From     uint64  `json:"from_ns"`
	Steps    uint64  `json:"steps"` // of gpubench sweep, and how many bytes were not as it wrote them
	Changed  uint64  `json:"changed_bytes"`
	Asked    uint64  `json:"allocations"` // so far, of gpubench churn, and how many of them were refused
	Refused  uint64  `json:"refused"`
	Start    uint64  `json:"start_ns"` // of cuInit and the first context, from gpubench start
}

// Tenant is a program on the simulated GPU, in a share or without one, with what its gpubenches said.
type Tenant struct {
	command *exec.Cmd
	input   io.WriteCloser  // ends with the program, or with the measurement
	said    strings.Builder // on standard error

	mutex sync.Mutex
	lines []Line
	ended chan struct{}
	err   error // of reading, valid when ended
	once  sync.Once
	exit  error // of the program, valid after collect
}

// Start starts a program. Without a share the flags are nil.
func (m *Machine) Start(flags []string, program ...string) (*Tenant, error) {
	argv := slices.Concat([]string{m.Divvy, "simgpu", "exec", m.name, "--"}, program)
	if flags != nil {
		argv = m.share(flags, program)
	}
	return start(argv)
}

// StartAnew starts a program in a new share whenever it has ended.
func (m *Machine) StartAnew(flags []string, program ...string) (*Tenant, error) {
	return start(append([]string{"sh", "-c", `while :; do "$@"; done`, "sh"}, m.share(flags, program)...))
}

func (m *Machine) share(flags, program []string) []string {
	return slices.Concat([]string{m.Divvy, "run", "--simgpu", m.name, "--memory", "2Gi"}, flags, []string{"--"}, program)
}

// StartBare starts a program as its command line has it.
func StartBare(argv ...string) (*Tenant, error) { return start(argv) }

func start(argv []string) (*Tenant, error) {
	t := &Tenant{command: exec.Command(argv[0], argv[1:]...), ended: make(chan struct{})}
	// A group of its own, so that everything in a share can be ended at once.
	t.command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	t.command.Stderr = &t.said
	out, err := t.command.StdoutPipe()
	if err == nil {
		t.input, err = t.command.StdinPipe()
	}
	if err == nil {
		err = t.command.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", strings.Join(argv, " "), err)
	}
	go t.read(out)
	return t, nil
}

func (t *Tenant) read(out io.Reader) {
	defer close(t.ended)
	scanner := bufio.NewScanner(out)
	for scanner.Scan() {
		var l Line
		if err := json.Unmarshal(scanner.Bytes(), &l); err != nil {
			t.err = fmt.Errorf("read what gpubench said: %w: %q", err, scanner.Text())
			return
		}
		t.mutex.Lock()
		t.lines = append(t.lines, l)
		t.mutex.Unlock()
	}
	t.err = scanner.Err()
}

// All returns the lines so far.
func (t *Tenant) All() []Line {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	return slices.Clone(t.lines)
}

// Working waits until that many processes of the tenant work, and returns their ids and the moment since which
// the last of them does.
func (t *Tenant) Working(processes int) (pids []int, since uint64, err error) {
	deadline := time.After(longest)
	for {
		pids, since = nil, 0
		for _, l := range t.All() {
			if l.Result != "" && l.Result != "CUDA_SUCCESS" {
				return nil, 0, fmt.Errorf("gpubench said %s", l.Result)
			}
			if l.PID != 0 && !slices.Contains(pids, l.PID) {
				pids = append(pids, l.PID)
				since = max(since, l.At, l.Begin)
			}
		}
		if len(pids) >= processes {
			return pids, since, nil
		}
		select {
		case <-t.ended:
			return nil, 0, fmt.Errorf("a tenant ended: %w: %s", errors.Join(t.err, t.collect()), t.said.String())
		case <-time.After(5 * time.Millisecond):
		case <-deadline:
			return nil, 0, errors.New("a tenant does not begin to work")
		}
	}
}

// Wait waits for the tenant's own end and returns all lines.
func (t *Tenant) Wait(ctx context.Context) ([]Line, error) {
	select {
	case <-t.ended:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if err := errors.Join(t.err, t.collect()); err != nil {
		return nil, fmt.Errorf("a tenant failed: %w: %s", err, t.said.String())
	}
	return t.All(), nil
}

// Await waits until the tenant says that it is in a phase.
func (t *Tenant) Await(phase string, most time.Duration) error {
	deadline := time.After(most)
	for {
		for _, l := range t.All() {
			if l.Phase == phase {
				return nil
			}
		}
		select {
		case <-t.ended:
			return fmt.Errorf("a tenant ended: %w: %s %v", errors.Join(t.err, t.collect()), t.said.String(), t.All())
		case <-time.After(5 * time.Millisecond):
		case <-deadline:
			return fmt.Errorf("a tenant does not come to %q", phase)
		}
	}
}

// Go lets a tenant begin that waits for its standard input.
func (t *Tenant) Go() error {
	if _, err := t.input.Write([]byte("\n")); err != nil {
		return fmt.Errorf("let a tenant begin: %w", err)
	}
	return nil
}

// Said is what the tenant wrote on standard error, once it has ended.
func (t *Tenant) Said() string {
	<-t.ended
	_ = t.collect()
	return t.said.String()
}

// Ended is closed when the tenant writes no more.
func (t *Tenant) Ended() <-chan struct{} { return t.ended }

// collect waits for the program, whose output has ended.
func (t *Tenant) collect() error {
	t.once.Do(func() { t.exit = t.command.Wait() })
	return t.exit
}

// Signal sends a signal to everything of the tenant.
func (t *Tenant) Signal(number syscall.Signal) error {
	return syscall.Kill(-t.command.Process.Pid, number)
}

// End kills everything of the tenant and waits until it is gone.
func (t *Tenant) End() {
	select {
	case <-t.ended:
	default:
		_ = t.Signal(syscall.SIGKILL)
		<-t.ended
	}
	_ = t.collect()
}

// Alone waits until no share is left, so that the next measurement begins with none.
func (m *Machine) Alone() error {
	deadline := time.Now().Add(longest)
	for time.Now().Before(deadline) {
		entries, err := os.ReadDir(filepath.Join(m.rundir, "tenants"))
		if errors.Is(err, os.ErrNotExist) || (err == nil && len(entries) == 0) {
			return nil
		}
		if err := m.Pause(5 * time.Millisecond); err != nil {
			return err
		}
	}
	return errors.New("a share does not end with its last process")
}

// Pause lets time pass, unless the measurement is broken off.
func (m *Machine) Pause(d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-m.ctx.Done():
		return m.ctx.Err()
	}
}
