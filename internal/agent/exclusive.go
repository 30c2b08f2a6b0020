package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/agent/control"
)

// ErrServed is returned where another agent serves a GPU.
var ErrServed = errors.New("another agent serves this GPU")

// claims keep other agents of the host from serving the same GPUs: an abstract
// unix socket (unix(7)) for each. Every user can see it, nobody has to be able
// to write anywhere, and it is gone with the process, however that ends.
type claims []*net.UnixListener

// claimAll claims every GPU or none.
func claimAll(ctx context.Context, uuids []string) (claims, error) {
	var all claims
	for _, uuid := range uuids {
		listener, err := claim(ctx, uuid)
		if err != nil {
			all.release()
			return nil, err
		}
		all = append(all, listener)
	}
	return all, nil
}

func claim(ctx context.Context, uuid string) (*net.UnixListener, error) {
	address := &net.UnixAddr{Name: "@divvy/gpu/" + uuid, Net: "unix"}
	listener, err := net.ListenUnix("unix", address)
	if errors.Is(err, unix.EADDRINUSE) {
		return nil, fmt.Errorf("%w: %s %s", ErrServed, uuid, holderOf(ctx, address.Name))
	}
	if err != nil {
		return nil, fmt.Errorf("claim GPU %s: %w", uuid, err)
	}
	go answer(listener)
	return listener, nil
}

// answer closes what is asked: who holds the claim, the kernel tells the asker.
func answer(listener *net.UnixListener) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		conn.Close()
	}
}

// holderOf describes who holds a claim and what can be done.
func holderOf(ctx context.Context, address string) string {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", address)
	if err != nil {
		return "is claimed by a process that does not answer; try again"
	}
	defer conn.Close()
	unixConn, ok := conn.(*net.UnixConn)
	if !ok {
		return "is claimed"
	}
	cred, err := control.PeerCredentials(unixConn)
	switch {
	case err != nil:
		return "is claimed by a process that cannot be named"
	case int(cred.Uid) == os.Getuid():
		return fmt.Sprintf("is served by an agent of yours with another run directory, process %d: use that one, or end it", cred.Pid)
	default:
		return fmt.Sprintf("is served by the agent of user %s, process %d: wait until their shares have ended, or have the administrator run one agent for all users (`divvy agent` as root)",
			userName(int(cred.Uid)), cred.Pid)
	}
}

func (c claims) release() {
	for _, listener := range c {
		listener.Close()
	}
}
