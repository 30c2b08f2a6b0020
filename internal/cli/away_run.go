package cli

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"time"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/backend/remote"
	"github.com/divvy-gpu/divvy/internal/driver"
	"github.com/divvy-gpu/divvy/internal/launch"
	"github.com/divvy-gpu/divvy/internal/process"
	"github.com/divvy-gpu/divvy/internal/remote/relay"
	"github.com/divvy-gpu/divvy/internal/remote/wire"
)

// unfit says which flag makes no sense for a share on another host, nil if none.
func (o *runOptions) unfit() error {
	for _, one := range []struct {
		given bool
		flag  string
		why   string
	}{
		{o.backend != "" && o.backend != string(v1alpha1.BackendRemote), "--backend " + o.backend, "shares on other hosts have backend remote"},
		{o.profile != "", "--profile", "such a share is a part of a GPU and no MIG instance"},
		{o.isolate != "", "--isolate", "such a share has backend remote, whatever neighbours could reach with it"},
		{o.swap != swapFlags{}, "--swap or --suspend-after", "the memory of a share on another host does not leave its GPU: divvy run --on runs the command there"},
		{o.simgpu != "", "--simgpu", "a simulated machine is served by `divvy serve --simgpu` on its host"},
		{len(o.choice.names.list) > 0, "--gpu", "the host chooses among its GPUs"},
		{o.choice.count.all, "--gpus all", "say how many, because hosts differ"},
		{o.sum, "--summary", "what the share used is known on its host: `divvy history` tells it there"},
		{o.whenUsed && o.wait, "--wait with --when-used", "a program that calls cuInit is not kept waiting"},
	} {
		if one.given {
			return usage(fmt.Errorf("%s cannot be given with --remote: %s", one.flag, one.why))
		}
	}
	return nil
}

// runAway runs a command whose share is on another host. It returns only if the command could not be started.
func (a *app) runAway(ctx context.Context, o *runOptions, command []string) error {
	if err := o.unfit(); err != nil {
		return err
	}
	request := o.request()
	request.Backend = v1alpha1.BackendRemote
	if err := valid(request); err != nil {
		return err
	}
	hosts, err := o.remote.hosts()
	if err != nil {
		return err
	}
	enter := launch.Enter(a.tree.Program("divvy-enter"))
	layer, err := a.chooseLayer(ctx, o.layer.layer, enter)
	if err != nil {
		return err
	}
	if layer == control.LayerEnv {
		a.tellUnhidden()
	}
	away, lock, err := a.makeAway(layer)
	if err != nil {
		return err
	}
	life, ready, err := a.startRelay(ctx, enter, o, hosts, away, lock, request, command)
	if err != nil {
		return errors.Join(err, os.RemoveAll(away.Dir))
	}
	away.Lacks = ready.Lacks
	plan, err := away.Plan()
	if err == nil {
		err = plan.Apply(ctx)
	}
	if err = errors.Join(err, lock.Close()); err != nil {
		return errors.Join(err, life.End())
	}
	if ready.Host != "" && (len(hosts) > 1 || o.remote.all || o.wait) {
		a.tell("the share is on " + ready.Host)
	}
	if err := life.Bequeath(); err != nil {
		return err
	}
	signal.Reset() // as in run
	return enter.Plan(plan.Edits, awayEnvironment(os.Environ(), ready), command).Exec()
}

// valid returns the faults of a request.
func valid(r v1alpha1.ShareRequest) error {
	r.Default()
	if err := r.Validate(); err != nil {
		return usage(err)
	}
	return nil
}

// tellUnhidden says what a command reaches without namespaces, where there is something to reach.
func (a *app) tellUnhidden() {
	if found, err := (driver.Finder{}).Present(); err == nil && len(found.Files[driver.CUDA]) > 0 {
		a.tell("without namespaces nothing hides this machine's driver from the command, which reaches it by leaving LD_LIBRARY_PATH")
	}
}

// makeAway makes the folder of a share on another host, and locks it.
func (a *app) makeAway(layer control.Layer) (remote.Away, *os.File, error) {
	away := remote.Away{
		Tree: a.tree, Layer: layer, Finder: driver.Finder{LibraryPath: filepath.SplitList(os.Getenv("LD_LIBRARY_PATH"))}, Shown: []string{relay.RecordName},
	}
	if err := away.Check(); err != nil {
		return away, nil, err
	}
	place, err := relay.Place()
	if err != nil {
		return away, nil, err
	}
	if err := relay.Sweep(place, time.Now()); err != nil {
		a.tell(err.Error())
	}
	id := make([]byte, 6)
	_, _ = rand.Read(id) // it never fails
	away.Dir = filepath.Join(place, hex.EncodeToString(id))
	if err := away.Check(); err != nil {
		return away, nil, err
	}
	for _, folder := range []string{away.Dir, filepath.Dir(away.Socket()), relay.RecordFolder(away.Dir)} {
		if err := os.Mkdir(folder, 0o700); err != nil {
			return away, nil, fmt.Errorf("make the folder of the share: %w", err)
		}
	}
	lock, err := relay.Lock(away.Dir)
	return away, lock, err
}

// startRelay starts the relay of a share and waits until it has it.
func (a *app) startRelay(ctx context.Context, enter launch.Enter, o *runOptions, hosts []string, away remote.Away, lock *os.File, request v1alpha1.ShareRequest, command []string) (launch.Life, *relay.Ready, error) {
	self, err := process.Find(os.Getpid())
	if err != nil {
		return launch.Life{}, nil, err
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	divvy, err := a.tree.Divvy()
	if err != nil {
		return launch.Life{}, nil, err
	}
	spec := relay.Spec{
		Hosts: hosts, WhenUsed: o.whenUsed, Dir: away.Dir, Socket: away.Socket(), Process: self,
		Take: wire.Take{Request: request, Wait: o.wait, Host: host, User: process.UserName(os.Getuid()), Command: control.ShortCommand(command)},
	}
	life, answers, err := enter.Relay(divvy, os.Environ(), spec, lock)
	if err != nil {
		return launch.Life{}, nil, err
	}
	defer answers.Close()
	stop := context.AfterFunc(ctx, func() { _ = answers.SetReadDeadline(time.Now()) }) // whoever interrupts waits no longer
	defer stop()
	ready, err := relay.Listen(answers, a.tell)
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	if err != nil {
		return launch.Life{}, nil, errors.Join(err, life.End())
	}
	return life, ready, nil
}

// awayEnvironment is shareEnvironment for a share on another host.
func awayEnvironment(env []string, ready *relay.Ready) []string {
	t := &control.Tenant{Name: ready.Name, Shares: make([]control.Share, ready.GPUs)}
	return shareEnvironment(env, t)
}
