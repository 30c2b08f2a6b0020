package daemon

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/install"
	"github.com/divvy-gpu/divvy/internal/process"
	"github.com/divvy-gpu/divvy/internal/tenantdir"
)

// reapTime bounds one run of divvy-reap, which itself waits for nobody.
const reapTime = 5 * time.Second

// unfinished is divvy-reap's exit status when somebody is dead whom the kernel
// has not quite buried: the next look finds them.
const unfinished = 3

// NewReaper runs divvy-reap: it maps the tenant's page, which the agent must
// not, since a tenant that cuts its page short ends whoever has it mapped. It
// runs as the tenant's user, so that what it can be led to do, the tenant can,
// and is handed the directory, to which that user need not have a path.
func NewReaper(tree install.Tree) tenantdir.Reaper {
	program := tree.Program("divvy-reap")
	return func(ctx context.Context, dir tenantdir.Dir, uid int) error {
		ctx, cancel := context.WithTimeout(ctx, reapTime)
		defer cancel()
		place, err := os.OpenFile(string(dir), os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
		if err != nil {
			return fmt.Errorf("reap: %w", err)
		}
		defer place.Close()
		var said bytes.Buffer
		cmd := exec.CommandContext(ctx, program, "/proc/self/fd/3")
		cmd.Env = []string{}
		cmd.Stderr = &said
		cmd.ExtraFiles = []*os.File{place} // descriptor 3
		if os.Getuid() == 0 && uid != 0 {
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: process.Nobody}}
		}
		err = cmd.Run()
		var exit *exec.ExitError
		if err == nil || errors.As(err, &exit) && exit.ExitCode() == unfinished {
			return nil
		}
		return fmt.Errorf("reap %s: %w: %s", dir, err, bytes.TrimSpace(said.Bytes()))
	}
}
