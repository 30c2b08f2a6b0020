package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/mps"
	"github.com/divvy-gpu/divvy/internal/simgpu"
	"github.com/divvy-gpu/divvy/test/bench/simulated"
	"github.com/divvy-gpu/divvy/test/escape"
)

// yard is a machine whose daemons serve shares without ceilings, so that they limit nobody else to less.
type yard struct {
	bench
	m *simulated.Machine
	// agent are the flags that choose the machine's own agent; without them the system agent serves.
	agent []string
	// own and other are the pipe directories of GPUs 0 and 1.
	own, other      string
	multiprocessors int
	holders         []*holder
}

func (b bench) yard(client string) (y *yard, err error) {
	m, err := simulated.Open(b.ctx, b.build, escapeMachine)
	if err != nil {
		return nil, err
	}
	y = &yard{bench: b, m: m, agent: []string{"--simgpu", escapeMachine}}
	for gpu := range 2 {
		err = errors.Join(err, y.occupy(client, gpu))
	}
	if err == nil {
		err = y.find()
	}
	if err != nil {
		return nil, errors.Join(err, y.close())
	}
	return y, nil
}

// occupy starts a share of a GPU without a ceiling.
func (y *yard) occupy(client string, gpu int) error {
	s, err := y.hold([]string{"--backend", "mps", "--gpu", strconv.Itoa(gpu), "--memory", "20Gi"}, client, "plain")
	if err != nil {
		return err
	}
	y.holders = append(y.holders, s)
	report, err := y.report()
	if err != nil {
		return err
	}
	for _, p := range report.Processes {
		if p.PID == s.said.PID && p.MPSServer != 0 && len(p.GPUs) > 0 {
			y.multiprocessors = p.GPUs[0].Multiprocessors
			return nil
		}
	}
	return fmt.Errorf("serve a share without a ceiling: the driver has no such client: %+v", s.said)
}

// find finds the pipe directories.
func (y *yard) find() error {
	l, err := y.list()
	if err != nil {
		return err
	}
	if len(l.GPUs) < 2 {
		return errors.New("find the pipe directories: there are no two GPUs")
	}
	pipes, err := filepath.Glob(filepath.Join(y.m.Instance, "mps", "*", "pipe"))
	if err != nil || len(pipes) != 2 {
		return fmt.Errorf("find the pipe directories: %q, %w", pipes, err)
	}
	for _, pipe := range pipes {
		if strings.HasPrefix(l.GPUs[0].UUID, filepath.Base(filepath.Dir(pipe))) {
			y.own = pipe
		} else {
			y.other = pipe
		}
	}
	if y.own == "" || y.other == "" {
		return fmt.Errorf("find the pipe directories: %q are not of GPU %s and another one", pipes, l.GPUs[0].UUID)
	}
	return nil
}

// release ends all shares, and returns when the daemons of a folder have ended, which would outlive the machine.
func (y *yard) release(daemons string) error {
	for _, s := range y.holders {
		s.end()
	}
	return errors.Join(y.m.Alone(), y.await("the control daemons end", func() (bool, error) { return len(mps.Left(daemons)) == 0, nil }))
}

func (y *yard) close() error {
	return errors.Join(y.release(filepath.Join(y.m.Instance, "mps")), y.m.Close())
}

// tight are the flags of the share that is tried.
func (y *yard) tight() []string {
	return []string{"--backend", "mps", "--gpu", "0", "--cores", strconv.Itoa(escapePercent), "--memory", strconv.Itoa(escapeMemory)}
}

func (y *yard) report() (report simgpu.Report, err error) {
	text, err := exec.Command(y.m.Simgpuctl, "report", y.m.Instance).Output()
	if err == nil {
		err = json.Unmarshal(text, &report)
	}
	if err != nil {
		return report, fmt.Errorf("read the simulated driver's report: %w", err)
	}
	return report, nil
}

// judge asks the simulated driver what a process has, and what of it its share has not.
func (y *yard) judge(pid int) (served bool, more string, err error) {
	report, err := y.report()
	grant := escape.Grant{Multiprocessors: (y.multiprocessors*escapePercent + 99) / 100, Memory: escapeMemory}
	served, more = grant.Judge(report, pid)
	return served, more, err
}

// list is what the agent says.
func (y *yard) list() (l control.Listing, err error) {
	out, err := exec.Command(y.m.Divvy, "ls", "-o", "json", "--simgpu", escapeMachine).Output()
	var document struct {
		Agents []control.Listing `json:"agents"`
	}
	if err == nil {
		err = json.Unmarshal(out, &document)
	}
	if err == nil && len(document.Agents) != 1 {
		err = fmt.Errorf("%d agents answer", len(document.Agents))
	}
	if err != nil {
		return l, fmt.Errorf("list shares: %w", err)
	}
	return document.Agents[0], nil
}

// holder is a client in a share, which stays until its input ends.
type holder struct {
	said    escape.Said
	command *exec.Cmd
	input   io.Closer
}

// hold starts a client in a share, and returns when it has said its line.
func (y *yard) hold(flags []string, program ...string) (s *holder, err error) {
	argv := slices.Concat([]string{"run"}, y.agent, flags, []string{"--"}, program)
	s = &holder{command: exec.Command(y.m.Divvy, argv...)}
	// A group of its own, so that everything in the share can be ended at once.
	s.command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	var said strings.Builder
	s.command.Stderr = &said
	if s.input, err = s.command.StdinPipe(); err != nil {
		return nil, fmt.Errorf("start a share: %w", err)
	}
	out, err := s.command.StdoutPipe()
	if err == nil {
		err = s.command.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("start a share: %w", err)
	}
	late := time.AfterFunc(longest, s.kill)
	line, err := bufio.NewReader(out).ReadString('\n')
	late.Stop()
	if err == nil {
		s.said, err = escape.Read(line)
	}
	if err != nil {
		s.end()
		return nil, fmt.Errorf("run %s: %w: %s", strings.Join(argv, " "), err, said.String())
	}
	return s, nil
}

func (s *holder) kill() { _ = syscall.Kill(-s.command.Process.Pid, syscall.SIGKILL) }

// end closes the program's input and waits until it has ended; a second call does nothing.
func (s *holder) end() {
	late := time.AfterFunc(longest, s.kill)
	defer late.Stop()
	_ = s.input.Close()
	_ = s.command.Wait()
}
