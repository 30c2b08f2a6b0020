package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/edits"
	"github.com/divvy-gpu/divvy/internal/launch"
	"github.com/divvy-gpu/divvy/internal/remote/host"
	"github.com/divvy-gpu/divvy/internal/remote/wire"
)

// holdCommand is the argument with which divvy becomes the process that holds a share for a client of `divvy serve`.
const holdCommand = "hold"

// newHold is the process that holds a share which is used from another host. People do not run it.
func newHold(a *app) *cobra.Command {
	return &cobra.Command{
		Use:    holdCommand,
		Short:  "Hold a share for a client of divvy serve",
		Args:   noArgs,
		Hidden: true,
		RunE:   func(cmd *cobra.Command, _ []string) error { return a.hold(cmd.Context(), os.Stdin) },
	}
}

// hold takes a share as `divvy run` does, and has it until the server at the socket is gone, a signal comes, or the worker ends.
func (a *app) hold(ctx context.Context, socket *os.File) error {
	h, spec, err := host.Hold(socket)
	if err != nil {
		return fmt.Errorf("hold a share: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	alone := make(chan struct{})
	worker := &workerSocket{made: make(chan struct{})}
	go func() {
		defer cancel()
		defer close(alone)
		h.Serve(ctx, worker.dial)
	}()
	client, created, life, err := a.holdShare(ctx, h, spec)
	if err != nil {
		return errors.Join(h.Refuse(wire.Refused{Code: string(control.CodeOf(err)), Text: err.Error()}), reported(ctx, err))
	}
	defer func() { _ = client.Close() }() // which may have ended
	worker.listens(created.Worker.Socket)
	if err := h.Grant(grantedOf(&created.Tenant)); err != nil {
		return err
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = life.Await() // an error is an end, too
	}()
	select {
	case <-ended:
	case <-ctx.Done(): // a signal, or the server is gone
	}
	select {
	case <-alone:
		return life.End()
	default:
	}
	why := a.whyEnded(context.WithoutCancel(ctx), spec, created.Tenant.ID)
	return errors.Join(h.End(why), life.End())
}

// reported is nil for an error that a server was told or that follows from its end.
func reported(ctx context.Context, err error) error {
	if control.CodeOf(err) == control.CodeInternal && ctx.Err() == nil {
		return err
	}
	return nil
}

// holdShare takes the share and starts its worker.
func (a *app) holdShare(ctx context.Context, h *host.Holder, spec host.Spec) (*control.Client, *control.Created, launch.Life, error) {
	enter := launch.Enter(a.tree.Program("divvy-enter"))
	layer, err := a.chooseLayer(ctx, "", enter)
	if err != nil {
		return nil, nil, launch.Life{}, err
	}
	params := control.CreateParams{
		Request: spec.Take.Request, Layer: layer, Command: spec.Take.Command, Wait: spec.Take.Wait, Environment: edits.DriverVariables(os.Environ()),
		Remote: &control.Remote{Client: spec.Client, Address: spec.Address, Host: host.Word(spec.Take.Host), User: host.Word(spec.Take.User)},
	}
	told := func(q control.Queued) { h.Queued(wire.Queued{Place: q.Place, Of: q.Of, Reason: q.Reason}) }
	client, created, err := a.obtainTold(ctx, a.endpoint(spec.Simgpu), params, func(*control.Client, *v1alpha1.ShareRequest) error { return nil }, told)
	if err != nil {
		return nil, nil, launch.Life{}, err
	}
	life, err := workerOf(enter, created, os.Environ())
	if err == nil {
		err = leaveSigns(client.Info(), &created.Tenant)
	}
	if err != nil {
		return nil, nil, launch.Life{}, errors.Join(err, client.Close())
	}
	return client, created, life, nil
}

// grantedOf is a share as its client knows it.
func grantedOf(t *control.Tenant) wire.Granted {
	g := wire.Granted{ID: t.ID, Name: t.Name}
	for _, s := range t.Shares {
		g.UUIDs = append(g.UUIDs, s.UUID)
		g.Memory, g.Cores = s.Limit, s.Cores
	}
	return g
}

// askTime is how long the agent may take to say why a share ends.
const askTime = 2 * time.Second

// whyEnded is why a share ends whose worker or holder was told to end.
func (a *app) whyEnded(ctx context.Context, spec host.Spec, id string) string {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	why := "its worker was ended"
	err := ask(ctx, a.endpoint(spec.Simgpu), func(client *control.Client) error {
		list, err := client.List(ctx)
		if err != nil {
			return err
		}
		for _, t := range list.Tenants {
			if t.ID == id && t.Ending != "" {
				why = t.Ending
			}
		}
		return nil
	})
	if err != nil {
		return why + ", and the agent does not say why"
	}
	return why
}

// workerSocket is where a worker listens, once it does.
type workerSocket struct {
	made chan struct{}
	path string
}

func (w *workerSocket) listens(path string) {
	w.path = path
	close(w.made)
}

func (w *workerSocket) dial(ctx context.Context) (*net.UnixConn, error) {
	select {
	case <-w.made:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	// A path may be too long for an address; that of its folder's descriptor is not.
	folder, err := os.Open(filepath.Dir(w.path))
	if err != nil {
		return nil, fmt.Errorf("connect to the worker: %w", err)
	}
	defer folder.Close()
	short := fmt.Sprintf("/proc/self/fd/%d/%s", folder.Fd(), filepath.Base(w.path))
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: short, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("connect to the worker: %w", err)
	}
	return conn, nil
}
