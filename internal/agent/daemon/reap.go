package daemon

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/install"
	"github.com/divvy-gpu/divvy/internal/tenantdir"
)

// reapTime bounds one run of divvy-reap, which normally takes milliseconds.
const reapTime = 5 * time.Second

// unfinished is divvy-reap's exit status when a dead process has not closed all its
// files yet: the agent runs divvy-reap again with its next look.
const unfinished = 3

// NewReaper returns a [tenantdir.Reaper] that runs divvy-reap. The agent itself must not map a
// tenant's page: a tenant that truncates its page kills every process that has it
// mapped. divvy-reap has the rights of the tenant's user to files and no others, so that a
// tenant that misleads it gains nothing, and inherits the directory open, because that user
// may lack a path to it. It is not that user's process, who could stop or trace it.
func NewReaper(tree install.Tree) tenantdir.Reaper {
	program := tree.Program("divvy-reap")
	return func(ctx context.Context, dir tenantdir.Dir, uid int) error {
		ctx, cancel := context.WithTimeout(ctx, reapTime)
		defer cancel()
		opened, err := os.OpenFile(string(dir), os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
		if err != nil {
			return fmt.Errorf("reap: %w", err)
		}
		defer opened.Close()
		said := &beginning{room: mostSaid}
		args := []string{"/proc/self/fd/3"}
		if os.Getuid() == 0 && uid != 0 {
			args = append([]string{"--user", strconv.Itoa(uid)}, args...)
		}
		cmd := exec.CommandContext(ctx, program, args...)
		cmd.Env = []string{}
		cmd.Stderr = said
		cmd.WaitDelay = reapTime            // whoever else has its standard error keeps nobody waiting
		cmd.ExtraFiles = []*os.File{opened} // descriptor 3
		err = cmd.Run()
		var exit *exec.ExitError
		if err == nil || errors.As(err, &exit) && exit.ExitCode() == unfinished {
			return nil
		}
		return fmt.Errorf("reap %s: %w: %s", dir, err, bytes.TrimSpace(said.text))
	}
}

// mostSaid is more than divvy-reap has to say.
const mostSaid = 4096

// beginning keeps the first bytes of what is written to it.
type beginning struct {
	text []byte
	room int
}

// Write implements io.Writer.
func (b *beginning) Write(text []byte) (int, error) {
	kept := min(len(text), b.room)
	b.text, b.room = append(b.text, text[:kept]...), b.room-kept
	return len(text), nil
}
