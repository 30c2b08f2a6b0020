package programs

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// swapped is the way in which a program's memory leaves the GPU and comes back meanwhile: in a swap share, beside two others
// that each go through more than the GPU has room for beside the program's.
const swapped = "swap"

// The GPU of these places has room for 296 MiB of swapped memory, and for 24 MiB more where kept parts are not used. A
// neighbour has 292 MiB, so at most 28 MiB of anybody else's stay beside it.
const (
	swapKept     = 64 << 20
	swapLimit    = 296<<20 + swapKept
	neighbourHas = 292 << 20
	besideIt     = 28 << 20
	// ballast is what a program has on the GPU while it waits to lose it.
	ballast = 256 << 20
	// swapMemory is what the agent allows all of them together.
	swapMemory = 8 << 30
)

// smallGPU has room for what is above. All copies of the ballast take less than a kernel.
var smallGPU = []string{"gpu.memory=512Mi", "gpu.reserved=24Mi", "gpu.context=56Mi", "gpu.bandwidth.host=100G", "managed.kernels=named"}

// lines is what a program prints, by lines. It tells when the first comes that has a mark.
type lines struct {
	mu    sync.Mutex
	mark  string
	begun chan struct{}
	text  bytes.Buffer
}

// Write takes what the program prints.
func (l *lines) Write(text []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text.Write(text)
	select {
	case <-l.begun:
	default:
		if all := l.text.Bytes(); bytes.HasSuffix(all, []byte("\n")) && bytes.Contains(all, []byte(l.mark)) {
			close(l.begun)
		}
	}
	return len(text), nil
}

// last is the last line, and all is everything.
func (l *lines) last() string {
	lines := strings.Split(strings.TrimSpace(l.all()), "\n")
	return lines[len(lines)-1]
}

func (l *lines) all() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// background is a program that runs until it is stopped.
type background struct {
	cmd       *exec.Cmd
	out, errs *lines
	// ended is closed when it has ended, as err says.
	ended chan struct{}
	err   error
}

// start starts a program and waits until it prints a mark, to standard output or error.
func start(ctx context.Context, cmd *exec.Cmd, mark string) (*background, error) {
	b := &background{
		cmd: cmd, ended: make(chan struct{}),
		out: &lines{mark: mark, begun: make(chan struct{})}, errs: &lines{mark: mark, begun: make(chan struct{})},
	}
	cmd.Stdout, cmd.Stderr = b.out, b.errs
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	go func() {
		b.err = cmd.Wait()
		close(b.ended)
	}()
	select {
	case <-b.out.begun:
	case <-b.errs.begun:
	case <-b.ended:
		return nil, errors.Join(fmt.Errorf("it ended: %s%s", b.errs.all(), b.out.all()), b.err)
	case <-ctx.Done():
		return b, ctx.Err()
	}
	return b, nil
}

// wait waits until it has ended, and returns how.
func (b *background) wait() error {
	<-b.ended
	if b.err != nil {
		return fmt.Errorf("%w: %s%s", b.err, b.errs.all(), b.out.all())
	}
	return nil
}

// stop ends it.
func (b *background) stop() error {
	_ = b.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	kill := time.AfterFunc(longestEnd, func() { _ = b.cmd.Process.Kill() })
	defer kill.Stop()
	return b.wait()
}

// swapping is a place with an agent that allows swap, and neighbours.
type swapping struct {
	*place
	agent      *background
	neighbours []*background
	// others are the tenants that there were before the program.
	others map[string]bool
}

// openSwap starts a machine of which everybody wants more than it has.
func (s Setting) openSwap(ctx context.Context) (*swapping, error) {
	p, err := s.open(ctx, "a100-80g", swapped, 0, swapLimit, smallGPU...)
	if err != nil {
		return nil, err
	}
	at := &swapping{place: p, others: map[string]bool{}}
	if err := at.begin(ctx); err != nil {
		return nil, errors.Join(err, at.end(), p.close(ctx))
	}
	return at, nil
}

// begin starts the agent and the neighbours, and waits until all of them work.
func (s *swapping) begin(ctx context.Context) (err error) {
	if err := s.serveSwap(ctx); err != nil {
		return err
	}
	bench := filepath.Join(string(s.Tree), "bin", "gpubench")
	for range 2 {
		cmd := s.swapCommand(ctx, neighbourHas+swapKept, bench, "sweep", "--bytes", strconv.Itoa(neighbourHas), "--ns", "5000000", "--count", "1000000000")
		n, err := start(ctx, cmd, `"step":0`)
		if n != nil {
			s.neighbours = append(s.neighbours, n)
		}
		if err != nil {
			return err
		}
	}
	report, err := s.report(ctx)
	if err != nil {
		return err
	}
	for _, tenant := range report.Tenants {
		s.others[tenant.Tenant] = true
	}
	return nil
}

// serveSwap starts an agent that allows swap, and waits until it serves.
func (s *swapping) serveSwap(ctx context.Context) (err error) {
	// It ends when it is stopped, not with the context.
	cmd := s.divvy(context.WithoutCancel(ctx), "agent", "--simgpu-dir", s.instance.Dir, "--swap-memory", strconv.Itoa(swapMemory), "--metrics-address", "none")
	if s.agent, err = start(ctx, cmd, "msg=serving"); err != nil {
		return fmt.Errorf("start an agent: %w", err)
	}
	return nil
}

// swapCommand runs a program in a swap share with a limit.
func (s *swapping) swapCommand(ctx context.Context, limit int, argv ...string) *exec.Cmd {
	flags := []string{
		"run", "--simgpu", s.instance.Name, "--gpu", strconv.Itoa(s.gpu), "--layer", "namespace",
		"--memory", strconv.Itoa(limit), "--swap", "--kept", strconv.Itoa(swapKept), "--",
	}
	return s.divvy(ctx, append(flags, argv...)...)
}

// end stops the neighbours, whose memory must be as it was, and the agent.
func (s *swapping) end() error {
	var faults []error
	for _, n := range s.neighbours {
		faults = append(faults, n.stop())
		var told struct {
			Result string `json:"result"`
			Equal  bool   `json:"equal"`
			Steps  int    `json:"steps"`
		}
		if err := json.Unmarshal([]byte(n.out.last()), &told); err != nil || !told.Equal || told.Steps == 0 {
			faults = append(faults, fmt.Errorf("a neighbour ends with %q: %w", n.out.last(), err))
		}
	}
	if s.agent != nil {
		faults = append(faults, s.agent.stop())
	}
	return errors.Join(faults...)
}

// lost waits until so many bytes of programs that are no neighbours have left the GPU.
func (s *swapping) lost(ctx context.Context, bytes uint64) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		moved, err := s.moved(ctx)
		if err == nil && moved.out >= bytes {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("%d bytes have left the GPU, want %d", moved.out, bytes), err, ctx.Err())
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// moves is what the driver's own record has of the programs that are no neighbours.
type moves struct {
	in, out, managed uint64
	// busy is their GPU time.
	busy time.Duration
}

func (s *swapping) moved(ctx context.Context) (sum moves, err error) {
	report, err := s.report(ctx)
	if err != nil {
		return sum, err
	}
	for _, tenant := range report.Tenants {
		if tenant.Tenant == "" || s.others[tenant.Tenant] {
			continue
		}
		for _, gpu := range tenant.GPUs {
			sum.in, sum.out = sum.in+gpu.BytesIn, sum.out+gpu.BytesOut
			sum.managed += gpu.Managed
			sum.busy += time.Duration(gpu.GPUNs)
		}
	}
	return sum, nil
}
