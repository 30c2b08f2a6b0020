package command

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Arguments and variables come as they are, whatever bytes they have.
func TestExactBytes(t *testing.T) {
	h := serve(t, "TESTED")
	cmd := h.command("printf %s '\xe4\xff' \"$TESTED\" | od -An -tx1")
	cmd.Env = append(os.Environ(), "TESTED=\xfe")
	if out, err := cmd.Output(); err != nil || strings.TrimSpace(string(out)) != "e4 ff fe" {
		t.Errorf("%q, %v", out, err)
	}
	if err := h.ended(); err != nil {
		t.Error(err)
	}
}

// A command runs in a directory of any name.
func TestExactDirectory(t *testing.T) {
	h := serve(t)
	cmd := h.command("pwd -P | od -An -c")
	cmd.Dir = filepath.Join(cmd.Dir, "\xe4\xff")
	if err := os.Mkdir(cmd.Dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if out, err := cmd.Output(); err != nil || !strings.Contains(string(out), `344 377`) {
		t.Errorf("%s, %v", out, err)
	}
	if err := h.ended(); err != nil {
		t.Error(err)
	}
}

// A packet of a line is one that kernels take whose buffers nobody has made larger (net.core.wmem_max).
func TestOrdersFitPackets(t *testing.T) {
	const usual = 212992
	if maxOrder > usual/2 {
		t.Errorf("an order has up to %d bytes", maxOrder)
	}
}

// A command that is too long for the connection is told of by what is too long.
func TestTooLong(t *testing.T) {
	h := serve(t)
	cmd := h.command(strings.Repeat(" ", 100<<10) + "true")
	for range 10 {
		cmd.Args = append(cmd.Args, strings.Repeat("x", 100<<10))
	}
	var errs bytes.Buffer
	cmd.Stderr = &errs
	if err := cmd.Run(); err == nil || !strings.Contains(errs.String(), "the command and its variables have 11") {
		t.Errorf("%v, %s", err, &errs)
	}
	if err := h.ended(); err == nil {
		t.Error("it was served")
	}
	cmd = h.command("echo $#")
	for range 9 {
		cmd.Args = append(cmd.Args, strings.Repeat("x", 100<<10))
	}
	if out, err := cmd.Output(); err != nil || strings.TrimSpace(string(out)) != "8" {
		t.Errorf("%q, %v", out, err)
	}
	if err := h.ended(); err != nil {
		t.Error(err)
	}
}
