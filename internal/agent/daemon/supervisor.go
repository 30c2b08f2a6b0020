package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
)

// supervisorVariable is how systemd names the socket at which a service of Type=notify says that it serves.
const supervisorVariable = "NOTIFY_SOCKET"

// Supervisor is who runs the agent as a service and waits until it serves. Nil is nobody.
type Supervisor struct{ socket string }

// TakeSupervisor finds the supervisor that the environment names, and takes it out of the environment: programs that the
// agent starts do not speak for it.
func TakeSupervisor() (*Supervisor, error) {
	socket := os.Getenv(supervisorVariable)
	if socket == "" {
		return nil, nil
	}
	if err := os.Unsetenv(supervisorVariable); err != nil {
		return nil, fmt.Errorf("take %s out of the environment: %w", supervisorVariable, err)
	}
	return &Supervisor{socket}, nil
}

// Tell sends what changed, such as READY=1: one entry each.
func (s *Supervisor) Tell(changes ...string) error {
	if s == nil {
		return nil
	}
	// An address that begins with @ is an abstract one, to systemd as to Go.
	conn, err := net.Dial("unixgram", s.socket)
	if err != nil {
		return fmt.Errorf("tell the supervisor: %w", err)
	}
	_, err = conn.Write([]byte(strings.Join(changes, "\n")))
	if err := errors.Join(err, conn.Close()); err != nil {
		return fmt.Errorf("tell the supervisor: %w", err)
	}
	return nil
}

// tell tells the supervisor. One that does not hear it takes the agent for one that hangs: the log says why.
func (o Options) tell(ctx context.Context, changes ...string) {
	if err := o.Supervisor.Tell(changes...); err != nil {
		o.Log.WarnContext(ctx, "cannot say how the service is", "error", err)
	}
}
