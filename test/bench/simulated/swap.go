package simulated

import (
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

//go:embed swap-4g.yaml
var swapMachine string

// linkOf is the rate of the link in the file of the small machine.
const linkOf = "host: 64G"

// SwapMachine writes a machine's file into a folder: a GPU of 4 GiB that can do managed memory and checkpoints, whose link to
// the host has so many GB a second. Its contexts take 32 MiB, and 4064 MiB can be used.
func SwapMachine(dir string, link int) (file string, err error) {
	file = filepath.Join(dir, "swap-4g.yaml")
	text := strings.Replace(swapMachine, linkOf, fmt.Sprintf("host: %dG", link), 1)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return "", fmt.Errorf("write the machine's file: %w", err)
	}
	return file, nil
}

// Agent is an agent of a machine that stays without shares.
type Agent struct {
	command *exec.Cmd
	said    strings.Builder
}

// StartAgent starts an agent with flags and waits until it serves.
func (m *Machine) StartAgent(flags ...string) (*Agent, error) {
	socket := filepath.Join(m.Instance, "agent.sock")
	// That of an agent that was killed would be taken for the new one's.
	if err := os.Remove(socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("remove an agent's socket: %w", err)
	}
	a := &Agent{command: exec.Command(m.Divvy, append([]string{"agent", "--simgpu-dir", m.Instance, "--metrics-address", "none"}, flags...)...)}
	a.command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	a.command.Stderr = &a.said
	if err := a.command.Start(); err != nil {
		return nil, fmt.Errorf("start the agent: %w", err)
	}
	for deadline := time.Now().Add(longest); ; {
		if _, err := os.Stat(socket); err == nil {
			return a, nil
		}
		err := m.Pause(5 * time.Millisecond)
		if err == nil && time.Now().After(deadline) {
			err = errors.New("the agent does not serve")
		}
		if err != nil {
			a.End(syscall.SIGKILL)
			return nil, fmt.Errorf("%w: %s", err, a.said.String())
		}
	}
}

// End ends the agent by a signal and returns what it said.
func (a *Agent) End(signal syscall.Signal) string {
	_ = a.command.Process.Signal(signal) // also one that has ended by itself
	_ = a.command.Wait()                 // what it said tells how
	return a.said.String()
}
