package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/agent/gpulock"
	"github.com/divvy-gpu/divvy/internal/remote/relay"
	"github.com/divvy-gpu/divvy/internal/rundir"
	"github.com/divvy-gpu/divvy/internal/simgpu"
)

// endpoint is the agent of the real machine, or of the simulated one whose
// directory is given.
func (a *app) endpoint(instance string) control.Endpoint {
	dir := a.rundir
	if instance == "" && dir == rundir.System {
		dir = rundir.Own()
	}
	return control.Endpoint{Rundir: dir, Simgpu: instance}
}

func (a *app) simgpus() simgpu.Store {
	return simgpu.NewStore(a.rundir, a.tree)
}

// simulated opens the instance of that name. If there is none, it starts the
// machine of that name as an instance with the same name.
func (a *app) simulated(ctx context.Context, machine string) (*simgpu.Instance, error) {
	store := a.simgpus()
	instance, err := store.Open(machine)
	if err == nil || !errors.Is(err, simgpu.ErrNoInstance) {
		return instance, err
	}
	description, err := simgpu.Load(machine)
	if err != nil {
		return nil, err
	}
	return store.Start(ctx, description.Name, description, "")
}

// ownMachine is the directory of the simulated machine of that name, which is started if there is none. It is "" without
// a name, and where the system agent serves that machine to all users in place of the real one.
func (a *app) ownMachine(ctx context.Context, machine string) (dir string, err error) {
	if machine == "" || a.servedToAll(ctx, machine) {
		return "", nil
	}
	instance, err := a.simulated(ctx, machine)
	if err != nil {
		return "", err
	}
	return instance.Dir, nil
}

// listing is what one agent reports.
type listing struct {
	// Machine is the simulated machine's name, empty for the real one.
	Machine string `json:"machine,omitempty"`
	control.Listing

	endpoint control.Endpoint
}

// endpoints are those where an agent of this user may serve: the simulated machine
// if one is named, else all.
func (a *app) endpoints(ctx context.Context, machine string) (map[string]control.Endpoint, error) {
	if machine != "" {
		if a.servedToAll(ctx, machine) {
			return map[string]control.Endpoint{"": a.endpoint("")}, nil
		}
		instance, err := a.simgpus().Open(machine)
		if err != nil {
			return nil, err
		}
		return map[string]control.Endpoint{instance.Name: a.endpoint(instance.Dir)}, nil
	}
	instances, err := a.simgpus().List()
	if err != nil && !errors.Is(err, rundir.ErrOwner) { // else none is this user's, and the system agent may serve them
		return nil, err
	}
	endpoints := map[string]control.Endpoint{"": a.endpoint("")}
	for _, instance := range instances {
		endpoints[instance.Name] = a.endpoint(instance.Dir)
	}
	return endpoints, nil
}

// servedToAll reports whether the system agent serves the simulated machine of that name
// to all users, or did when it was last there.
func (a *app) servedToAll(ctx context.Context, machine string) bool {
	client, err := control.Find(ctx, a.endpoint(""))
	var away *control.AwayError
	switch {
	case err == nil:
		served := client.Info().Simgpu
		_ = client.Close() // it has told enough
		return filepath.Base(served) == machine
	case errors.As(err, &away):
		return away.System.Mark != nil && filepath.Base(away.System.Mark.Simgpu) == machine
	}
	return false
}

// ask calls f with a connection to an agent. It starts an agent only where a
// killed one left shares.
func ask(ctx context.Context, endpoint control.Endpoint, f func(*control.Client) error) error {
	client, err := control.Reach(ctx, endpoint, control.Starter{Hidden: hidden})
	if err != nil {
		return err
	}
	err = f(client)
	return errors.Join(err, client.Close())
}

// mostAtOnce is how many agents are asked at once. One that does not answer is waited for
// for some seconds.
const mostAtOnce = 16

// atOnce asks about all names at once and returns the answers in their order.
func atOnce[T any](names []string, ask func(name string) T) []T {
	answers, turns := make([]T, len(names)), make(chan struct{}, mostAtOnce)
	var asked sync.WaitGroup
	for i, name := range names {
		turns <- struct{}{}
		asked.Go(func() {
			defer func() { <-turns }()
			answers[i] = ask(name)
		})
	}
	asked.Wait()
	return answers
}

// survey is what the agents report, and what can be seen of those that do not run.
type survey struct {
	agents []listing
	// away are the system agents that should run and do not.
	away []absence
	// held are GPUs of this machine that other users' own agents hold.
	held []gpulock.Holder
	// silent are the machines of which no agent told anything, by name.
	silent map[string]control.Endpoint
	// unserved is what their drivers tell, for lists.
	unserved []unserved
	// remote are shares on other hosts, for lists of no machine in particular.
	remote []relay.Listed
	// apart is the share that keeps this process away from agents, where nothing else is found.
	apart string
}

// list asks the agent for what it lists, again where that ended or started again just then.
func (l *listing) list(ctx context.Context) (err error) {
	for asked := 0; asked == 0 || lost(err) && asked < mostLost; asked++ {
		err = ask(ctx, l.endpoint, func(c *control.Client) error {
			found, err := c.List(ctx)
			if err == nil {
				l.Listing = *found
			}
			return err
		})
	}
	return err
}

// survey asks every agent that runs, the real machine's first.
func (a *app) survey(ctx context.Context, machine string) (survey, error) {
	found := survey{agents: []listing{}, silent: map[string]control.Endpoint{}} // a list in JSON even when empty
	endpoints, err := a.endpoints(ctx, machine)
	if err != nil {
		return found, err
	}
	type answer struct {
		listing
		err error
	}
	for _, told := range atOnce(sortedKeys(endpoints), func(name string) answer {
		one := listing{Machine: name, endpoint: endpoints[name]}
		err := one.list(ctx)
		return answer{one, err}
	}) {
		one, name, err := told.listing, told.Machine, told.err
		if err != nil {
			found.silent[name] = one.endpoint
		}
		var away *control.AwayError
		switch {
		case err == nil:
			found.agents = append(found.agents, one)
			found.noteOwn(name, one)
		case errors.As(err, &away):
			found.away = append(found.away, absent(name, away))
		case lost(err):
			return found, fmt.Errorf("which shares there are is not known: %w: %w", errUnknown, err)
		case !errors.Is(err, control.ErrNoAgent) && !errors.Is(err, errHidden):
			return found, err
		}
	}
	found.serve()
	if machine == "" {
		found.held, err = heldByOthers(ctx, found.agents)
		if hidden, ok := unreached(found.held); ok {
			found.held = nil // by that agent
			// An own agent that has no share here knows nothing of those that it does not see.
			found.agents = slices.DeleteFunc(found.agents, func(l listing) bool { return l.Machine == "" && l.Info.Ephemeral && len(l.Tenants) == 0 })
			if len(found.away) == 0 {
				found.away = append(found.away, hidden)
			}
		}
	}
	return found, err
}

// serve takes from the silent machines those that an agent serves in place of the real one.
func (s *survey) serve() {
	for _, one := range s.agents {
		maps.DeleteFunc(s.silent, func(_ string, at control.Endpoint) bool { return at.Simgpu != "" && at.Simgpu == one.Info.Simgpu })
	}
}

// having are the listings that have a tenant of which is holds.
func having(all []listing, is func(control.Tenant) bool) (found []listing) {
	for _, l := range all {
		if slices.ContainsFunc(l.Tenants, is) {
			found = append(found, l)
		}
	}
	return found
}

// errNoShare is returned where no share has the name.
var errNoShare = errors.New("no such share")

// holder finds the share of that name or id, and the agent that holds it.
func (a *app) holder(ctx context.Context, machine, share string) (target, error) {
	all, err := a.survey(ctx, machine)
	if err != nil {
		return target{}, err
	}
	meant := func(t control.Tenant) bool { return t.Called(share) }
	found := having(all.agents, meant)
	isOwn := func(t control.Tenant) bool { return t.Called(share) && t.UID == os.Getuid() }
	if own := having(found, isOwn); len(own) > 0 {
		found, meant = own, isOwn
	}
	switch {
	case len(found) == 1:
		one := target{found[0].endpoint, share}
		named := slices.DeleteFunc(slices.Clone(found[0].Tenants), func(t control.Tenant) bool { return !meant(t) })
		if len(named) == 1 { // else the agent says which there are
			one.share = named[0].ID
		}
		return one, nil
	case len(found) > 1:
		return target{}, fmt.Errorf("%d machines have a share %q: give the id that `divvy ls -o json` shows, or name the machine with --simgpu",
			len(found), printable(share))
	case len(all.away) > 0:
		return target{}, fmt.Errorf("whether there is a share %q cannot be told: %s", printable(share), all.away[0].Reason)
	}
	if err := isAway(share, all.agents); err != nil {
		return target{}, err
	}
	return target{}, noShare(share)
}

// isAway says where a share of that name is that this user or a container has on another host, nil if none.
func isAway(name string, agents []listing) error {
	all, err := sharesAway(agents)
	if err != nil {
		return err
	}
	for _, r := range all {
		if r.Name == name {
			return fmt.Errorf("share %q is on another host, %s: name it there. It ends with its command", printable(name), printable(hostsAway(r)))
		}
	}
	return nil
}

func noShare(name string) error {
	return fmt.Errorf("%w: %q: `divvy ls` lists them", errNoShare, printable(name))
}
