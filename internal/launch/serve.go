package launch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/edits"
	"github.com/divvy-gpu/divvy/internal/process"
)

// Service is a worker for processes of another user than its own, which root starts.
type Service struct {
	Worker *edits.Worker
	// UID is the worker's own, also as a group. Groups are those that it has besides.
	UID    int
	Groups []int
	// Client is the user whose processes it serves.
	Client int
	// Cgroups are those in which it is, as far as they take it.
	Cgroups []process.Group
	// Environment is all that it has beside the edits.
	Environment []string
	// Said is where it writes its errors.
	Said *os.File
}

// serviceTime bounds what a worker may take until it listens: it executes two small programs.
const serviceTime = time.Minute

// Serve starts a worker and returns its life when programs can connect to it. It has nothing of this process's: no
// descriptor, no variable, no right.
func (e Enter) Serve(ctx context.Context, s Service) (*os.File, error) {
	latest := time.Now().Add(serviceTime)
	ctx, cancel := context.WithDeadline(ctx, latest)
	defer cancel()
	socket, err := bound(s.Worker.Socket, s.Client)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrWorker, err)
	}
	defer socket.Close()
	plan := e.servicePlan(s)
	cmd := exec.CommandContext(ctx, plan.Program)
	cmd.Args, cmd.Env, cmd.Dir, cmd.Stderr, cmd.ExtraFiles = plan.Args, plan.Env, "/", s.Said, []*os.File{socket}
	life, err := begin(latest, cmd)
	return life.end, err
}

// servicePlan computes how a worker of another user is executed. It is pure.
func (e Enter) servicePlan(s Service) Plan {
	ids := []string{strconv.Itoa(s.UID)}
	for _, gid := range s.Groups {
		ids = append(ids, strconv.Itoa(gid))
	}
	p := e.Plan(s.Worker.Edits, s.Environment, []string{
		s.Worker.Program, "--listen", s.Worker.Socket, "--life", lifeInherited, "--ready", readyInherited, "--bound", boundInherited, "--uid", strconv.Itoa(s.Client),
	})
	args := []string{string(e), "--detach", "--", string(e)}
	for _, group := range s.Cgroups {
		args = append(args, "--cgroup", group.Folder, group.Name)
	}
	at := len(s.Worker.Edits.Binds)*3 + 1 // after the binds, for which it needs root's rights
	args = append(args, p.Args[1:at]...)
	args = append(args, "--user", strconv.Itoa(s.UID), strings.Join(ids, ","))
	p.Args = append(args, p.Args[at:]...)
	return p
}

// bound makes a socket to which the processes of a user may connect, once somebody listens there. What has the path already
// is replaced: the folder is this process's.
func bound(path string, user int) (*os.File, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("make the worker's socket: %w", err)
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("make the worker's socket: %w", err)
	}
	socket := os.NewFile(uintptr(fd), path)
	err = unix.Bind(fd, &unix.SockaddrUnix{Name: path})
	if err == nil {
		err = errors.Join(os.Chmod(path, 0o600), os.Lchown(path, user, -1))
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make the worker's socket: %w", err), socket.Close())
	}
	return socket, nil
}
