package daemon

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/agentconfig"
	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/backend/slice"
	"github.com/divvy-gpu/divvy/internal/driver"
	"github.com/divvy-gpu/divvy/internal/install"
	"github.com/divvy-gpu/divvy/internal/nvml/helper"
	"github.com/divvy-gpu/divvy/internal/process"
)

// DefaultConfig is the configuration of an agent that serves every user, if it exists.
const DefaultConfig = "/etc/divvy/agent.yaml"

// readRules reads the agent's configuration. An own agent has none but the one that it
// is given: its user alone has shares. An agent that starts again has the one with which it
// started first.
func (o Options) readRules(last *again) (*agentconfig.Config, error) {
	if last != nil {
		return last.rules, nil
	}
	path := o.Config
	if path == "" {
		if !o.shared() {
			return nil, nil
		}
		path = DefaultConfig
	}
	text, err := readConfig(path)
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

// readConfig reads a file that only root, or the user who runs this, can change: it says
// who may have what, and whose processes are ended. A link is followed, because a
// cluster's configuration is one, and so are those of some distributions; one that leads
// nowhere is not the same as no file.
func readConfig(path string) ([]byte, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0) // a pipe holds nobody up
	if errors.Is(err, fs.ErrNotExist) {
		if target, linkErr := os.Readlink(path); linkErr == nil {
			return nil, &agentconfig.Fault{Kind: agentconfig.ErrConfig, File: path, Problem: fmt.Sprintf("is a link to %s, which does not exist", target)}
		}
	}
	if err != nil {
		return nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if problem := unsafeFile(info); problem != "" {
		return nil, &agentconfig.Fault{Kind: agentconfig.ErrConfig, File: path, Problem: problem}
	}
	return io.ReadAll(io.LimitReader(file, agentconfig.MaxBytes+1))
}

// unsafeFile says why a file cannot be a configuration, "" if it can.
func unsafeFile(info os.FileInfo) string {
	stat, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case info.IsDir():
		return "is a directory: a configuration is a file"
	case !info.Mode().IsRegular():
		return "is not a regular file"
	case !ok:
		return "the system does not tell whose it is"
	case stat.Uid != 0 && int(stat.Uid) != os.Geteuid():
		return fmt.Sprintf("belongs to user %s, who could change it: run chown root", process.UserName(int(stat.Uid)))
	case info.Mode().Perm()&0o022 != 0:
		return "others can write to it: run chmod go-w"
	}
	return ""
}

// Machine are the GPUs that a system agent serves or would serve, for [ReviewConfig].
type Machine struct {
	GPUs []backend.GPU
	// Unknown counts the GPUs of which nothing is known yet.
	Unknown int
}

// ReviewConfig reads a configuration as a system agent on the machine does. The error has
// all reasons for which the agent would refuse it; a machine without GPUs is not known.
func ReviewConfig(path string, m Machine) (*agentconfig.Config, error) {
	text, err := readConfig(path)
	if err != nil {
		return nil, fmt.Errorf("read the agent's configuration: %w", err)
	}
	var limits agentconfig.Machine
	if len(m.GPUs) > 0 {
		limits = machineOf(m.GPUs, m.Unknown)
	}
	rules, err := agentconfig.Review(path, text, accounts{}, limits)
	if err != nil {
		return nil, fmt.Errorf("read the agent's configuration: %w", err)
	}
	return rules, nil
}

// AskMachine asks the driver, that of a simulated machine if one is named, about the GPUs
// that the agent of an endpoint would serve. It changes nothing: what a context takes is
// known only where an earlier agent measured it.
func AskMachine(endpoint control.Endpoint, tree install.Tree, instance string) (m Machine, err error) {
	finder := driver.Finder{Root: "/", Instance: instance, LibraryPath: filepath.SplitList(os.Getenv("LD_LIBRARY_PATH"))}
	found, err := finder.Find()
	if err != nil {
		return m, err
	}
	program, err := tree.Divvy()
	if err != nil {
		return m, err
	}
	library, err := helper.Open(helper.Config{
		Start: helper.Start(program, HelperCommand), Library: nvmlOf(found, instance),
		Limits: helper.Usual, Log: slog.New(slog.DiscardHandler), Now: time.Now,
	})
	if err != nil {
		return m, err
	}
	silent, _ := library.LeftOut()
	m.Unknown = len(silent)
	m.GPUs, err = slice.Known(endpoint.Dir(), library)
	return m, errors.Join(err, library.Close())
}

// nvmlOf is the driver's library by which GPUs are asked. That of a simulated machine is
// opened in the machine's directory, where it finds the machine's state beside itself.
func nvmlOf(found *driver.Driver, instance string) string {
	if instance != "" {
		return filepath.Join(instance, string(driver.NVML))
	}
	return found.Chosen[driver.NVML]
}

// checkRules compares the configuration with the machine's GPUs.
func checkRules(rules *agentconfig.Config, gpus []backend.GPU, unknown int) error {
	if err := rules.Check(machineOf(gpus, unknown)); err != nil {
		return fmt.Errorf("read the agent's configuration: %w", err)
	}
	return nil
}

// machineOf is what limits are compared with. GPUs of which nothing is known yet count as
// large as the largest.
func machineOf(gpus []backend.GPU, unknown int) agentconfig.Machine {
	machine := agentconfig.Machine{GPUs: len(gpus) + unknown}
	for _, gpu := range gpus {
		machine.Named = append(machine.Named, agentconfig.GPU{Index: gpu.Index, UUID: gpu.UUID})
		machine.Memory += gpu.Total
		machine.Largest = max(machine.Largest, gpu.Capacity())
		if machine.Context == 0 || gpu.ContextBytes < machine.Context {
			machine.Context = gpu.ContextBytes
		}
	}
	machine.Memory += uint64(unknown) * machine.Largest
	return machine
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
