package run

import (
	"bufio"
	"bytes"
	"io"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// A program that begins when the server stands still for longer hears why the share has ended, not what its own connection met.
func TestHostsSilence(t *testing.T) {
	s, c := one(t)
	p := c.command(filepath.Join(string(c.tree), "bin", "divvy"), "run", "--remote", s.name, "--memory", "2Gi", "--",
		"sh", "-c", `"$0" info && read -r _ && "$0" info`, c.bench())
	input, err := p.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := p.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var said bytes.Buffer
	p.Stderr = &said
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Process.Kill() }) // where it has not ended
	lines := bufio.NewReader(out)
	if line, err := lines.ReadString('\n'); err != nil || !strings.Contains(line, "CUDA_SUCCESS") {
		t.Fatalf("the first program says %q, %v", line, err)
	}
	if err := s.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(input, "\n"); err != nil {
		t.Fatal(err)
	}
	line, _ := lines.ReadString('\n')
	_ = p.Wait() // the program's own status
	if !strings.Contains(line, "CUDA_ERROR_DEVICE_UNAVAILABLE") || !strings.Contains(said.String(), "the other side has been silent for too long") {
		t.Errorf("the next one says %q, %q", line, said.String())
	}
}
