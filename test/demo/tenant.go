package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"time"
)

// answer is what gpubench prints after each of its commands.
type answer struct {
	Command   string `json:"command"`
	Result    string `json:"result"`
	Allocated uint64 `json:"allocated_bytes"`
	Total     uint64 `json:"total_bytes"`
	Equal     bool   `json:"equal"`
}

// tenant is one `divvy run`.
type tenant struct {
	name    string
	cmd     *exec.Cmd
	input   io.Closer // its end tells gpubench to let go
	answers chan answer
	ended   chan struct{}
	said    bytes.Buffer // standard error, to be read after ended
}

// start runs a shell line inside a share; gpubench is the variable $G there.
func (m *machine) start(name, memory, line string) (*tenant, error) {
	args := append([]string{"run", "--name", name, "--memory", memory}, m.on()...)
	cmd := exec.Command(m.program("divvy"), append(args, "--", "sh", "-c", line)...)
	cmd.Env = append(m.environment(), "G="+m.program("gpubench"))
	t := &tenant{name: name, cmd: cmd, answers: make(chan answer, 16), ended: make(chan struct{})}
	cmd.Stderr = &t.said
	input, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	t.input = input
	output, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start tenant %s: %w", name, err)
	}
	m.tenants = append(m.tenants, t)
	go t.follow(output)
	return t, nil
}

// follow hands answers on and waits for the end, whose status the caller of
// kill or end expects and nobody else asks for.
func (t *tenant) follow(output io.Reader) {
	lines := bufio.NewScanner(output)
	for lines.Scan() {
		var a answer
		if json.Unmarshal(lines.Bytes(), &a) == nil {
			t.answers <- a
		}
	}
	_ = t.cmd.Wait()
	close(t.ended)
}

// next is the tenant's next answer.
func (t *tenant) next(ctx context.Context) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	select {
	case a := <-t.answers:
		return a, nil
	default:
	}
	select {
	case a := <-t.answers:
		return a, nil
	case <-t.ended:
		return answer{}, fmt.Errorf("tenant %s ended: %s", t.name, strings.TrimSpace(t.said.String()))
	case <-ctx.Done():
		return answer{}, fmt.Errorf("wait for tenant %s: %w", t.name, ctx.Err())
	}
}

// kill sends SIGKILL and returns when the process is gone.
func (t *tenant) kill() error {
	if err := t.cmd.Process.Kill(); err != nil {
		return fmt.Errorf("kill tenant %s: %w", t.name, err)
	}
	<-t.ended
	return nil
}

// end lets the tenant go, by force if need be.
func (t *tenant) end() {
	_ = t.input.Close() // a second close is harmless
	select {
	case <-t.ended:
	case <-time.After(longest / 4):
		_ = t.cmd.Process.Kill()
		<-t.ended
	}
}
