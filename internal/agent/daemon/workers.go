package daemon

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/agent"
	"github.com/divvy-gpu/divvy/internal/driver"
	"github.com/divvy-gpu/divvy/internal/launch"
	"github.com/divvy-gpu/divvy/internal/process"
	"github.com/divvy-gpu/divvy/internal/simgpu/simfiles"
	"github.com/divvy-gpu/divvy/internal/workeruser"
)

// workers are the agent's, for tenants of other users than its own. An agent in a container starts none: they would end with
// it, and see the container's files.
func (s *service) workers() agent.Workers {
	o := s.options
	if !o.shared() || o.Face != nil || o.DriverRoot != "" {
		return nil
	}
	of := s.rules.Workers()
	return &workers{
		Pool: workeruser.New(of.FirstUID, of.Count), enter: launch.Enter(o.Tree.Program("divvy-enter")), nodes: s.finder.Nodes, log: o.Log,
	}
}

// workers starts workers as users of a pool.
type workers struct {
	*workeruser.Pool
	enter launch.Enter
	nodes func() []driver.Node
	log   *slog.Logger
}

// Start implements [agent.Workers].
func (w *workers) Start(ctx context.Context, of agent.Worker) (*os.File, error) {
	heard, said, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("start a worker: %w", err)
	}
	service := launch.Service{
		Worker: of.Plan, UID: of.Tenant.Worker, Client: of.Tenant.UID, Environment: append(of.Environment, agents()...), Said: said,
	}
	if of.Asker != (process.ID{}) {
		groups, err := of.Asker.Groups()
		if err == nil {
			service.Groups = demanded(w.nodes(), groups)
		}
		cgroups, cgroupsErr := of.Asker.GroupsBeside()
		service.Cgroups = cgroups
		if err := errors.Join(err, cgroupsErr); err != nil {
			w.log.WarnContext(ctx, "cannot ask for all that a worker has of its share's user", "tenant", of.Tenant.Name, "error", err)
		}
	}
	life, err := w.enter.Serve(ctx, service)
	err = errors.Join(err, said.Close())
	if err != nil {
		err = errors.Join(err, w.End(ctx, of.Tenant.Worker), heard.SetReadDeadline(time.Now().Add(lastWords)))
		err = errors.Join(err, beginningOf(heard), heard.Close())
		return nil, err
	}
	go w.hear(context.WithoutCancel(ctx), of.Tenant.Name, heard)
	return life, nil
}

// agents are the variables that the agent gives a worker: which simulated machine the driver is, if the agent has that from
// who started it, and that the driver keeps no compiled code, because a worker's user has no folder for it and leaves nothing
// behind.
func agents() []string {
	env := []string{"CUDA_CACHE_DISABLE=1"}
	if machine := os.Getenv(simfiles.Variable); machine != "" {
		env = append(env, simfiles.Variable+"="+machine)
	}
	return env
}

// lastWords is how long one that could not be started is listened to: it may not have become its user yet, and go on.
const lastWords = time.Second

// beginningOf is an error with what a worker said that could not be started, nil where it said nothing.
func beginningOf(heard io.Reader) error {
	if text, _ := io.ReadAll(io.LimitReader(heard, mostSaid)); len(text) > 0 { // what cannot be read was not said
		return fmt.Errorf("it said: %q", text)
	}
	return nil
}

// mostLines bounds what a worker says that is logged: some of it is the word of programs.
const mostLines = 16

// hear logs what a worker says. It is told to nobody else: what concerns a program, its own library says.
func (w *workers) hear(ctx context.Context, tenant string, heard *os.File) {
	defer heard.Close()
	lines := bufio.NewScanner(io.LimitReader(heard, mostLines*mostSaid))
	for range mostLines {
		if !lines.Scan() {
			return
		}
		w.log.InfoContext(ctx, "a worker says", "tenant", tenant, "text", lines.Text())
	}
}

// demanded are the groups that device nodes demand of whoever opens them, as far as the tenant's user is in them: a worker
// opens nothing that its user could not.
func demanded(nodes []driver.Node, has []int) (groups []int) {
	for _, node := range nodes {
		paths := []string{node.Path}
		if node.Folder {
			paths, _ = filepath.Glob(filepath.Join(node.Path, "*")) // the error is of an invalid pattern
		}
		for _, path := range paths {
			var stat unix.Stat_t
			if unix.Lstat(path, &stat) != nil || stat.Mode&unix.S_IFMT != unix.S_IFCHR || stat.Mode&0o006 == 0o006 || stat.Mode&0o060 == 0 {
				continue
			}
			if gid := int(stat.Gid); gid != 0 && slices.Contains(has, gid) && !slices.Contains(groups, gid) {
				groups = append(groups, gid)
			}
		}
	}
	return groups
}
