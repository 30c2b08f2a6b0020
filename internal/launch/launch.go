// Package launch starts a tenant's command with its edits applied: in a mount
// namespace where that is allowed, and by environment variables alone elsewhere.
//
// No process supervises the command. The calling process executes divvy-enter,
// which makes the namespaces and executes the command. So the exit status, signals,
// job control and open files are the command's own.
package launch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"strings"
	"syscall"

	"github.com/divvy-gpu/divvy/internal/edits"
)

// ErrNamespaces is returned where the machine allows no mount namespace.
var ErrNamespaces = errors.New("namespaces are not allowed here")

// Enter is the program divvy-enter, by its path.
type Enter string

// Plan is the program that the calling process executes.
type Plan struct {
	Program string
	Args    []string
	Env     []string
}

// Plan computes how to execute command with the edits applied. It is pure.
func (e Enter) Plan(edits edits.Edits, env, command []string) Plan {
	args := []string{string(e)}
	if edits.Contain {
		args = append(args, "--contain")
	}
	for _, bind := range edits.Binds {
		option := "--bind"
		switch {
		case bind.Tree:
			option = "--bind-tree"
		case bind.ReadOnly:
			option = "--bind-ro"
		}
		args = append(args, option, bind.Source, bind.Target)
	}
	args = append(append(args, "--"), command...)
	return Plan{Program: string(e), Args: args, Env: edits.Environment(env)}
}

// Exec executes the plan. It returns only if that fails.
func (p Plan) Exec() error {
	return notRun(p.Program, syscall.Exec(p.Program, p.Args, p.Env))
}

// notRun is why a program of Divvy's does not run. Another installation helps only where its file is the cause, and not where
// too many processes or files are.
func notRun(program string, err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.ENOEXEC) {
		return fmt.Errorf("run %s: %w: reinstall Divvy", program, err)
	}
	return fmt.Errorf("run %s: %w", program, err)
}

// Probe checks that a command can have a mount namespace. The error wraps
// ErrNamespaces and says why not. Probe takes about a millisecond.
func (e Enter) Probe(ctx context.Context) error {
	var said bytes.Buffer
	cmd := exec.CommandContext(ctx, string(e), "--probe")
	cmd.Stderr = &said
	err := cmd.Run()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &exit) && said.Len() > 0:
		return fmt.Errorf("%w: %s", ErrNamespaces, strings.TrimPrefix(strings.TrimSpace(said.String()), "divvy: "))
	default:
		return notRun(string(e), err)
	}
}
