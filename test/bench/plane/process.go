package plane

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Program is a program to be started.
type Program struct {
	// Name is what the process is asked for by, and its log is called.
	Name, Path string
	// Ports is how many ports it listens on. Scheme is that of the first.
	Ports  int
	Scheme string
	// Args are its arguments for these ports; Env is added to an environment that has nothing of this process's.
	Args func(ports []int) []string
	Env  []string
	// Ready is nil once the program does its work; url is that of the first port.
	Ready func(ctx context.Context, url string) error
}

// Process is a program that runs until the plane is stopped.
type Process struct {
	program Program
	log     string // file
	ports   []int
	cmd     *exec.Cmd
	done    chan struct{} // closed once it has been reaped
}

const (
	// poll is the time between two looks at a condition that nothing announces.
	poll = 50 * time.Millisecond
	// attempts is how often a program is started that found a port taken: between the search for a free one and its use
	// another program of the machine may get it.
	attempts = 5
	// taken is what programs say of such a port.
	taken = "address already in use"
)

// Run starts a program on free ports of the loopback interface and waits until it is ready.
func (p *Plane) Run(ctx context.Context, program Program) (*Process, error) {
	for attempt := 1; ; attempt++ {
		began := time.Now()
		process, err := p.launch(program, nil)
		if err == nil {
			err = process.wait(ctx)
		}
		if err == nil {
			p.options.Log("%s is ready after %.1f s", program.Name, time.Since(began).Seconds())
			return process, nil
		}
		if attempt == attempts || !strings.Contains(err.Error(), taken) {
			return nil, fmt.Errorf("start %s: %w", program.Name, err)
		}
	}
}

// Restart kills a program and starts it on the ports that it had, so that whoever is connected to it finds it again.
func (p *Plane) Restart(ctx context.Context, name string) error {
	before := p.Process(name)
	before.Kill()
	process, err := p.launch(before.program, before.ports)
	if err == nil {
		err = process.wait(ctx)
	}
	if err != nil {
		return fmt.Errorf("start %s again: %w", name, err)
	}
	return nil
}

// Forget kills a program that need not run any more. What has not been started is left alone.
func (p *Plane) Forget(name string) {
	if process := p.Process(name); process != nil {
		process.Kill()
	}
	p.mutex.Lock()
	defer p.mutex.Unlock()
	delete(p.processes, name)
}

// launch starts a program; the plane knows it from then on. Without ports it gets free ones.
func (p *Plane) launch(program Program, ports []int) (*Process, error) {
	if ports == nil {
		free, err := freePorts(program.Ports)
		if err != nil {
			return nil, err
		}
		ports = free
	}
	log, err := os.Create(p.file(program.Name + ".log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.Command(program.Path, program.Args(ports)...)
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + p.dir, "LANG=C.UTF-8"}, program.Env...)
	cmd.Dir = p.dir
	cmd.Stdout, cmd.Stderr = log, log
	// A group of its own: the terminal's Ctrl-C is for this process, which ends the others in order.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := p.parent.start(cmd); err != nil {
		return nil, err
	}
	process := &Process{program: program, log: log.Name(), ports: ports, cmd: cmd, done: make(chan struct{})}
	go func() {
		_ = cmd.Wait()
		close(process.done)
	}()
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.processes[program.Name] = process
	return process, nil
}

// freePorts finds ports that nobody listens on; they are held until all are found, so that they differ.
func freePorts(n int) ([]int, error) {
	var ports []int
	for range n {
		listener, err := net.Listen("tcp", loopback+":0")
		if err != nil {
			return nil, fmt.Errorf("find a free port: %w", err)
		}
		defer listener.Close()
		if at, ok := listener.Addr().(*net.TCPAddr); ok {
			ports = append(ports, at.Port)
		}
	}
	return ports, nil
}

// wait waits until the process is ready. The last reason why it is not is part of the error.
func (p *Process) wait(ctx context.Context) error {
	ticker := time.NewTicker(poll)
	defer ticker.Stop()
	for {
		if err := p.Alive(); err != nil {
			return err
		}
		err := p.program.Ready(ctx, p.URL())
		if err == nil {
			return nil
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return fmt.Errorf("wait until it is ready: %w: %w", context.Cause(ctx), err)
		}
	}
}

// URL is where the process answers.
func (p *Process) URL() string { return p.program.Scheme + "://" + address(p.ports[0]) }

// Port is one of the ports that it listens on, in the order in which its arguments got them.
func (p *Process) Port(i int) int { return p.ports[i] }

// Get asks the process for a path and returns what it answers.
func (p *Process) Get(ctx context.Context, path string) ([]byte, error) {
	text, err := get(ctx, p.URL()+path, "")
	if err != nil {
		return nil, fmt.Errorf("ask %s: %w", p.program.Name, err)
	}
	return text, nil
}

// Processor is the processor time that the process has taken so far.
func (p *Process) Processor() (time.Duration, error) {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(p.cmd.Process.Pid), "stat"))
	if err != nil {
		return 0, fmt.Errorf("read processor time of %s: %w", p.program.Name, err)
	}
	// After the name, which may hold anything, the time in user and in kernel mode are the 12th and 13th field
	// (proc_pid_stat(5)), in hundredths of a second.
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	if len(fields) < 13 {
		return 0, fmt.Errorf("read processor time of %s: %q", p.program.Name, text)
	}
	var ticks int64
	for _, field := range fields[11:13] {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("read processor time of %s: %w", p.program.Name, err)
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond, nil
}

// Memory is what the process has in memory now, and the most that it ever had, in bytes.
func (p *Process) Memory() (now, most uint64, err error) {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(p.cmd.Process.Pid), "status"))
	if err != nil {
		return 0, 0, fmt.Errorf("read memory of %s: %w", p.program.Name, err)
	}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(line, ":")
		var kibibytes uint64
		if into, wanted := map[string]*uint64{"VmRSS": &now, "VmHWM": &most}[name]; wanted {
			if _, err := fmt.Sscan(value, &kibibytes); err != nil {
				return 0, 0, fmt.Errorf("read memory of %s: %w", p.program.Name, err)
			}
			*into = kibibytes << 10
		}
	}
	return now, most, nil
}

// deadError says that a process has ended that nobody stopped.
type deadError struct{ name, tail string }

func (e *deadError) Error() string { return fmt.Sprintf("%s has ended: %s", e.name, e.tail) }

// Alive is nil while the process runs.
func (p *Process) Alive() error {
	select {
	case <-p.done:
		return &deadError{p.program.Name, fmt.Sprintf("%v: %s", p.cmd.ProcessState, tail(p.log))}
	default:
		return nil
	}
}

// Kill ends the process at once, as if it had crashed, and waits for its end. A program of its name can be run again.
func (p *Process) Kill() {
	if err := p.cmd.Process.Kill(); err == nil || errors.Is(err, os.ErrProcessDone) {
		<-p.done
	}
}

// Signal sends a signal to the process.
func (p *Process) Signal(signal syscall.Signal) error {
	if err := p.cmd.Process.Signal(signal); err != nil {
		return fmt.Errorf("signal %s: %w", p.program.Name, err)
	}
	return nil
}

// tail is the end of a log.
func tail(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(lines[max(0, len(lines)-15):], "\n")
}

// parent is the thread that starts the programs. The kernel ends them when it does, thus also when this process is
// killed (PR_SET_PDEATHSIG(2const)). It is locked, because Go ends other threads as it likes.
type parent struct {
	orders chan func()
	ended  chan struct{}
}

func newParent() *parent {
	p := &parent{orders: make(chan func()), ended: make(chan struct{})}
	go func() {
		runtime.LockOSThread()
		defer close(p.ended)
		for order := range p.orders {
			order()
		}
	}()
	return p
}

func (p *parent) start(cmd *exec.Cmd) error {
	started := make(chan error, 1)
	p.orders <- func() { started <- cmd.Start() }
	return <-started
}

func (p *parent) end() {
	close(p.orders)
	<-p.ended
}
