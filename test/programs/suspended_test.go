package programs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// sleeper is the name of the share that is suspended, and what it holds.
const (
	sleeper      = "sleeper"
	sleeperHolds = 1 << 30
	sleeperLimit = 4 << 30
)

// Monitors of the machine show a program before it is suspended and when it has resumed, and not meanwhile: NVML knows
// nothing of a process that is checkpointed. In its share they show what they ever did: that is the share's account.
func TestMonitorsSeeSuspension(t *testing.T) {
	s := setting(t)
	skipUnable(t, s, "namespace")
	for _, program := range []struct {
		name string
		monitor
	}{{"nvidia-ml-py", bindings}, {"nvitop", nvitop}} {
		t.Run(program.name, func(t *testing.T) {
			if err := program.watchSuspension(t.Context(), s); err != nil {
				t.Error(err)
			}
		})
	}
}

// watchSuspension runs the monitor outside and inside of a share before, during and after its suspension.
func (m monitor) watchSuspension(ctx context.Context, setting Setting) (err error) {
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	p, err := setting.open(ctx, "b200x8", "namespace", 0, sleeperLimit)
	if err != nil {
		return err
	}
	s := &swapping{place: p}
	defer func() { err = errors.Join(err, s.end(), p.close(ctx)) }()
	if err := s.serveSwap(ctx); err != nil {
		return err
	}
	shell, pid, err := s.sleep(ctx, m)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, shell.end()) }()
	holds := p.model.GPU.Context + sleeperHolds
	awake := map[int]uint64{pid: uint64(holds)}
	for _, step := range []struct {
		command   string
		processes map[int]uint64
	}{{"", awake}, {"suspend", nil}, {"resume", awake}, {"suspend", nil}, {"resume", awake}} {
		if step.command != "" {
			if said, err := s.divvy(ctx, step.command, "--simgpu", s.instance.Name, sleeper).CombinedOutput(); err != nil {
				return fmt.Errorf("divvy %s: %w: %s", step.command, err, said)
			}
		}
		if err := m.outsideShare(ctx, s.place, step.processes); err != nil {
			return fmt.Errorf("outside, after %q: %w", step.command, err)
		}
		if err := m.insideShare(ctx, s.place, shell, awake); err != nil {
			return fmt.Errorf("inside, after %q: %w", step.command, err)
		}
	}
	return nil
}

// outside compares what the monitor shows of the whole machine.
func (m monitor) outsideShare(ctx context.Context, p *place, want map[int]uint64) error {
	text, err := output(onWideTerminal(p.outside(ctx, p.python("monitors", m.args(p)...)...)))
	if err != nil {
		return err
	}
	found, err := m.read(text)
	if err != nil || len(found) != len(p.model.GPUs) {
		return fmt.Errorf("it shows %d GPUs in %q: %w", len(found), text, err)
	}
	used := uint64(0)
	for _, bytes := range want {
		used += bytes
	}
	if m.reserved {
		used += uint64(p.model.GPU.Reserved)
	}
	if !m.near(found[0].Used, used) {
		err = fmt.Errorf("it shows %d bytes in use, want %d", found[0].Used, used)
	}
	return errors.Join(err, m.processes(found[0], want))
}

// processes compares the processes that the monitor shows on a GPU.
func (m monitor) processes(shown seen, want map[int]uint64) error {
	if !slices.Equal(slices.Sorted(maps.Keys(shown.Processes)), slices.Sorted(maps.Keys(want))) {
		return fmt.Errorf("it shows the processes %v, want %v", shown.Processes, want)
	}
	for pid, bytes := range want {
		if !m.near(shown.Processes[pid], bytes) {
			return fmt.Errorf("it shows process %d with %d bytes, want %d", pid, shown.Processes[pid], bytes)
		}
	}
	return nil
}

// inside compares what the monitor shows in the share.
func (m monitor) insideShare(ctx context.Context, p *place, shell *asked, want map[int]uint64) error {
	text, err := shell.ask(ctx)
	if err != nil {
		return err
	}
	found, err := m.read(text)
	if err != nil || len(found) != 1 {
		return fmt.Errorf("it shows %d GPUs in %q: %w", len(found), text, err)
	}
	if !m.near(found[0].Total, p.limit) {
		err = fmt.Errorf("it shows %d bytes, want %d", found[0].Total, p.limit)
	}
	return errors.Join(err, m.processes(found[0], want))
}

// asked is a shell in a share that runs a program whenever it is asked.
type asked struct {
	*background
	input io.WriteCloser
	// read is how much of its output was read.
	read int
}

// answered is what the shell prints behind what the program prints.
const answered = "answered\n"

// ask returns what the program prints now.
func (a *asked) ask(ctx context.Context) (string, error) {
	if _, err := io.WriteString(a.input, "\n"); err != nil {
		return "", err
	}
	for {
		text, _, whole := strings.Cut(a.out.all()[a.read:], answered)
		if whole {
			a.read += len(text) + len(answered)
			return text, nil
		}
		select {
		case <-ctx.Done():
			return "", fmt.Errorf("%w: %s%s", ctx.Err(), text, a.errs.all())
		case <-a.ended:
			return "", a.wait()
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// end has the shell end.
func (a *asked) end() error { return errors.Join(a.input.Close(), a.wait()) }

// inShare holds memory and runs a program for each line that it reads, until its input ends. $1 is gpubench, $2 an amount.
const inShare = `bench=$1 bytes=$2
shift 2
coproc HOLD { exec "$bench" hold --bytes "$bytes"; }
read -r line <&"${HOLD[0]}"
echo "$line"
while read -r line; do
	"$@" </dev/null
	echo "answered"
done
kill -KILL "$HOLD_PID"`

// sleep starts the share that is suspended, and returns the number of the process that holds its memory.
func (s *swapping) sleep(ctx context.Context, m monitor) (*asked, int, error) {
	bench := filepath.Join(string(s.Tree), "bin", "gpubench")
	argv := append([]string{"bash", "-c", inShare, "bash", bench, strconv.Itoa(sleeperHolds)}, s.python("monitors", m.args(s.place)...)...)
	cmd := onWideTerminal(s.divvy(ctx, append([]string{
		"run", "--simgpu", s.instance.Name, "--gpu", "0", "--layer", "namespace", "--name", sleeper, "--memory", strconv.Itoa(sleeperLimit), "--",
	}, argv...)...))
	input, err := cmd.StdinPipe()
	if err != nil {
		return nil, 0, err
	}
	started, err := start(ctx, cmd, `"pid"`)
	if err != nil {
		return nil, 0, err
	}
	var own holding
	first, _, _ := strings.Cut(started.out.all(), "\n")
	if err := json.Unmarshal([]byte(first), &own); err != nil || own.Result != "CUDA_SUCCESS" {
		return nil, 0, fmt.Errorf("hold memory: %q: %w", first, err)
	}
	return &asked{started, input, len(first) + 1}, own.PID, nil
}
