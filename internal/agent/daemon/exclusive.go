package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/process"
	"github.com/divvy-gpu/divvy/internal/rundir"
)

// ErrServed is returned where another agent serves a GPU.
var ErrServed = errors.New("another agent serves this GPU")

// lock locks the run directory, so that one agent serves it.
func (s *service) lock(ctx context.Context) error {
	dir, mode := s.options.Endpoint.Dir(), os.FileMode(0o700)
	if s.options.shared() {
		mode = 0o755
	}
	if err := rundir.Make(dir, mode); err != nil {
		return err
	}
	file, err := os.OpenFile(filepath.Join(dir, "agent.lock"), os.O_CREATE|os.O_RDWR|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return fmt.Errorf("lock run directory: %w", err)
	}
	s.closers = append(s.closers, file.Close)
	err = outlast(ctx, unix.EWOULDBLOCK, func() error { return unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB) })
	if err != nil {
		return fmt.Errorf("an agent already runs in %s: `divvy ls` shows its shares", dir)
	}
	if s.options.Face != nil {
		return s.options.Endpoint.Keep()
	}
	return nil
}

// deathTime bounds how long what a killed agent held may stay held: by the kernel, which
// takes the process apart, and by a child that the agent was about to start.
const deathTime = time.Second

// outlast tries again while try returns held, the error that says that another agent
// has what is tried for: that agent may be one that has just been killed.
func outlast(ctx context.Context, held error, try func() error) error {
	ctx, cancel := context.WithTimeout(ctx, deathTime)
	defer cancel()
	for {
		err := try()
		if !errors.Is(err, held) {
			return err
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
			return err
		}
	}
}

// gpuLocks keep other agents of the host from serving the same GPUs: an abstract
// unix socket (unix(7)) for each. Every user can see it, no directory must be
// writable for it, and it is gone with the process, however that ends.
type gpuLocks []*net.UnixListener

// lockGPUs locks every GPU or none.
func lockGPUs(ctx context.Context, uuids []string) (gpuLocks, error) {
	var all gpuLocks
	for _, uuid := range uuids {
		listener, err := lockGPU(ctx, uuid)
		if err != nil {
			all.unlock()
			return nil, err
		}
		all = append(all, listener)
	}
	return all, nil
}

func lockGPU(ctx context.Context, uuid string) (*net.UnixListener, error) {
	address := &net.UnixAddr{Name: "@divvy/gpu/" + uuid, Net: "unix"}
	listener, err := net.ListenUnix("unix", address)
	if errors.Is(err, unix.EADDRINUSE) {
		return nil, fmt.Errorf("%w: %s %s", ErrServed, uuid, holderOf(ctx, address.Name))
	}
	if err != nil {
		return nil, fmt.Errorf("lock GPU %s: %w", uuid, err)
	}
	go answer(listener)
	return listener, nil
}

// answer closes each connection at once: the kernel has told the peer by then which
// process holds the lock.
func answer(listener *net.UnixListener) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		conn.Close()
	}
}

// holderOf describes who holds a lock and what can be done about it.
func holderOf(ctx context.Context, address string) string {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", address)
	if err != nil {
		return "is served by a process that does not answer; try again"
	}
	defer conn.Close()
	unixConn, ok := conn.(*net.UnixConn)
	if !ok {
		return "is served by another process"
	}
	cred, err := control.PeerCredentials(unixConn)
	switch {
	case err != nil:
		return "is served by a process that cannot be identified"
	case int(cred.Uid) == os.Getuid():
		return fmt.Sprintf("is served by an agent of yours with another run directory, process %d: use that one, or end it", cred.Pid)
	default:
		return fmt.Sprintf("is served by the agent of user %s, process %d: wait until their shares have ended, or have the administrator run one agent for all users (`divvy agent` as root)",
			process.UserName(int(cred.Uid)), cred.Pid)
	}
}

func (l gpuLocks) unlock() {
	for _, listener := range l {
		listener.Close()
	}
}
