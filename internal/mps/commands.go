package mps

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
)

const mebibyte = 1 << 20

// SetPercentage sets the percentage of the GPU's SMs that a client has at most if its environment says nothing less,
// greater than 0 to 100. It holds for servers that start later.
func (d Daemon) SetPercentage(ctx context.Context, percentage float64) error {
	if !(percentage > 0 && percentage <= 100) {
		return fmt.Errorf("limit the SMs of MPS clients: %v is no percentage above 0 up to 100", percentage)
	}
	if _, err := d.ask(ctx, "set_default_active_thread_percentage %g", percentage); err != nil {
		return fmt.Errorf("limit the SMs of MPS clients: %w", err)
	}
	set, err := d.Percentage(ctx)
	if err != nil {
		return fmt.Errorf("limit the SMs of MPS clients: %w", err)
	}
	// The daemon tells one digit after the point.
	if math.Abs(set-percentage) > 0.05 {
		return fmt.Errorf("limit the SMs of MPS clients: %w: it has %g percent instead of %g", ErrAnswer, set, percentage)
	}
	return nil
}

// Percentage is what [Daemon.SetPercentage] set last, 100 before.
func (d Daemon) Percentage(ctx context.Context) (float64, error) {
	answer, err := d.ask(ctx, "get_default_active_thread_percentage")
	if err != nil {
		return 0, err
	}
	return parsePercentage(answer)
}

// SetMemory sets how many bytes of the GPU's memory a client has at most if its environment says nothing less. It is
// rounded down to whole MiB, of which there must be one: the daemon takes a number without a unit for MiB. It holds for
// servers that start later. The daemon knows the GPU as number 0, the only one that it sees.
func (d Daemon) SetMemory(ctx context.Context, bytes uint64) error {
	amount := bytes / mebibyte
	if amount == 0 {
		return fmt.Errorf("limit the memory of MPS clients: %d bytes are less than 1 MiB", bytes)
	}
	if _, err := d.ask(ctx, "set_default_device_pinned_mem_limit 0 %dM", amount); err != nil {
		return fmt.Errorf("limit the memory of MPS clients: %w", err)
	}
	answer, err := d.ask(ctx, "get_default_device_pinned_mem_limit 0")
	if err != nil {
		return fmt.Errorf("limit the memory of MPS clients: %w", err)
	}
	if wanted := printed(amount); !slices.Equal(answer, []string{wanted}) {
		return fmt.Errorf("limit the memory of MPS clients: %w: it has %q instead of %s", ErrAnswer, answer, wanted)
	}
	return nil
}

// StartServer starts the server of a user before there is a client. In compute mode EXCLUSIVE_PROCESS the GPU is then
// taken, and whoever passes MPS by cannot use it.
func (d Daemon) StartServer(ctx context.Context, uid int) error {
	if _, err := d.ask(ctx, "start_server -uid %d", uid); err != nil {
		return fmt.Errorf("start an MPS server: %w", err)
	}
	return nil
}

// Servers are the processes of the servers that run.
func (d Daemon) Servers(ctx context.Context) ([]int, error) {
	answer, err := d.ask(ctx, "get_server_list")
	if err != nil {
		return nil, err
	}
	return parsePIDs(answer)
}

// Clients are the processes that a server serves.
func (d Daemon) Clients(ctx context.Context, server int) ([]int, error) {
	answer, err := d.ask(ctx, "get_client_list %d", server)
	if err != nil {
		return nil, err
	}
	return parsePIDs(answer)
}

// Status is what a server does. Daemons before driver 550 cannot tell, which is [ErrUnknownCommand].
func (d Daemon) Status(ctx context.Context, server int) (Status, error) {
	answer, err := d.ask(ctx, "get_server_status %d", server)
	if err != nil {
		return "", err
	}
	return parseStatus(answer)
}

// Shutdown ends a server. With force it ends those that have clients too.
func (d Daemon) Shutdown(ctx context.Context, server int, force bool) error {
	flag := ""
	if force {
		flag = " -f"
	}
	if _, err := d.ask(ctx, "shutdown_server %d%s", server, flag); err != nil && !errors.Is(err, ErrNoServer) {
		return fmt.Errorf("end MPS server %d: %w", server, err)
	}
	return nil
}
