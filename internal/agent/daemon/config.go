package daemon

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"strconv"

	"github.com/divvy-gpu/divvy/internal/agentconfig"
	"github.com/divvy-gpu/divvy/internal/backend"
)

// DefaultConfig is the configuration of an agent that serves every user, if it exists.
const DefaultConfig = "/etc/divvy/agent.yaml"

// readRules reads the agent's configuration. An own agent has none but the one that it
// is given: its user alone has shares.
func (o Options) readRules() (*agentconfig.Config, error) {
	path := o.Config
	if path == "" {
		if !o.shared() {
			return nil, nil
		}
		path = DefaultConfig
	}
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) && o.Config == "" {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the agent's configuration: %w", err)
	}
	rules, err := agentconfig.Parse(path, text, accounts{})
	if err != nil {
		return nil, fmt.Errorf("read the agent's configuration: %w", err)
	}
	return rules, nil
}

// CheckConfig returns why a system agent would refuse a configuration, as far as that can
// be told without the machine's GPUs.
func CheckConfig(path string) error {
	_, err := Options{Config: path}.readRules()
	return err
}

// checkRules compares the configuration with the machine's GPUs. Those of which nothing is
// known yet count as large as the largest.
func checkRules(rules *agentconfig.Config, gpus []backend.GPU, unknown int) error {
	machine := agentconfig.Machine{GPUs: len(gpus) + unknown}
	for _, gpu := range gpus {
		machine.Memory += gpu.Total
		machine.Largest = max(machine.Largest, gpu.Capacity())
	}
	machine.Memory += uint64(unknown) * machine.Largest
	if err := rules.Check(machine); err != nil {
		return fmt.Errorf("read the agent's configuration: %w", err)
	}
	return nil
}

// accounts are the users and groups of this machine, also those of its directory
// services.
type accounts struct{}

// User implements [agentconfig.Accounts].
func (accounts) User(name string) (int, error) {
	found, err := user.Lookup(name)
	var unknown user.UnknownUserError
	if errors.As(err, &unknown) {
		if found, err = user.LookupId(name); err != nil {
			return 0, fmt.Errorf("there is no user %q", name)
		}
	}
	if err != nil {
		return 0, fmt.Errorf("look up user %q: %w", name, err)
	}
	return strconv.Atoi(found.Uid)
}

// Group implements [agentconfig.Accounts].
func (accounts) Group(name string) (int, error) {
	found, err := user.LookupGroup(name)
	var unknown user.UnknownGroupError
	if errors.As(err, &unknown) {
		if found, err = user.LookupGroupId(name); err != nil {
			return 0, fmt.Errorf("there is no group %q", name)
		}
	}
	if err != nil {
		return 0, fmt.Errorf("look up group %q: %w", name, err)
	}
	return strconv.Atoi(found.Gid)
}

// Groups implements [agentconfig.Accounts].
func (accounts) Groups(uid int) ([]int, error) {
	found, err := user.LookupId(strconv.Itoa(uid))
	var unknown user.UnknownUserIdError
	if errors.As(err, &unknown) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look up user %d: %w", uid, err)
	}
	names, err := found.GroupIds()
	if err != nil {
		return nil, fmt.Errorf("look up the groups of %s: %w", found.Username, err)
	}
	gids := make([]int, 0, len(names))
	for _, name := range names {
		gid, err := strconv.Atoi(name)
		if err != nil {
			return nil, fmt.Errorf("look up the groups of %s: %w", found.Username, err)
		}
		gids = append(gids, gid)
	}
	return gids, nil
}
