// Package launch starts a tenant's command with its edits around it: in a mount
// namespace where that is allowed, by environment variables alone elsewhere.
//
// Nothing supervises the command. The calling process becomes it, by way of the
// small program divvy-enter that makes the namespaces, so that exit status,
// signals, job control and open files are the command's own by construction.
package launch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"syscall"

	"github.com/divvy-gpu/divvy/internal/edits"
)

// ErrNamespaces is returned where a command cannot have a mount namespace.
var ErrNamespaces = errors.New("namespaces are not allowed here")

// Enter is the program divvy-enter, by its path.
type Enter string

// Plan is what the calling process becomes.
type Plan struct {
	Program string
	Args    []string
	Env     []string
}

// Plan works out how to become command with the edits around it. It is pure.
func (e Enter) Plan(edits edits.Edits, env, command []string) Plan {
	args := []string{string(e)}
	for _, bind := range edits.Binds {
		option := "--bind"
		if bind.ReadOnly {
			option = "--bind-ro"
		}
		args = append(args, option, bind.Source, bind.Target)
	}
	args = append(append(args, "--"), command...)
	return Plan{Program: string(e), Args: args, Env: edits.Environment(env)}
}

// Exec carries the plan out. It returns only if that fails.
func (p Plan) Exec() error {
	return fmt.Errorf("run %s: %w: reinstall Divvy", p.Program, syscall.Exec(p.Program, p.Args, p.Env))
}

// Probe returns nil where a command can have a mount namespace, else an error
// that wraps ErrNamespaces and says why. It takes about a millisecond.
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
		return fmt.Errorf("run %s: %w: reinstall Divvy", e, err)
	}
}
