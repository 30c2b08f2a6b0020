package simgpu

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/divvy-gpu/divvy/internal/install"
	"github.com/divvy-gpu/divvy/internal/process"
	"github.com/divvy-gpu/divvy/internal/rundir"
	"github.com/divvy-gpu/divvy/internal/simgpu/simfiles"
)

// The errors of a [Store] that callers tell apart.
var (
	ErrNoInstance = errors.New("no such simulated machine")
	ErrDifferent  = errors.New("a different machine runs under this name")
	ErrBusy       = errors.New("the simulated machine is in use")
	ErrForeign    = errors.New("the simulated machine is another user's")
)

// infoFile is the part of an instance that only this package reads.
const infoFile = "instance.json"

// libraries are those by which an instance directory serves as a directory of
// the driver's libraries. They are copies, so that the directory is all that a
// container needs of the machine, whatever else is on the host.
var libraries = []string{"libcuda.so.1", "libnvidia-ml.so.1"}

// programs are those of the driver, in the same folder.
var programs = []string{"nvidia-cuda-mps-control", "nvidia-cuda-mps-server", "nvidia-smi"}

// TreeLink is in an instance's directory a link to the folder from which the
// libraries were copied: whoever covers the driver covers those too.
const TreeLink = "tree"

// Instance is one simulated machine that runs.
type Instance struct {
	Name string `json:"name"`
	// Dir is the instance's directory: put first on LD_LIBRARY_PATH it makes
	// a program use the simulated driver.
	Dir string `json:"dir"`
	Info
}

// Info is what an instance remembers of its making.
type Info struct {
	Machine string    `json:"machine"`
	Seed    string    `json:"seed"`
	Started time.Time `json:"started"`
	// Digest tells machines apart; GPUs' identities are not in it.
	Digest string `json:"digest"`
}

// Store holds the instances of one run directory, each a directory below
// <rundir>/simgpu.
type Store struct {
	// Root is <rundir>/simgpu.
	Root    string
	Control Control
}

// NewStore returns the instances below a run directory, served by the
// simulated driver of an installation.
func NewStore(runDir string, tree install.Tree) Store {
	return Store{Root: simfiles.Instances(runDir), Control: Control{Prefix: string(tree)}}
}

// Start makes an instance of the machine. The same machine under the same name
// is left as it is, so that Start may be repeated; its GPUs keep their
// identities. An empty seed gives GPUs that were never seen before.
func (s Store) Start(ctx context.Context, name string, machine *Machine, seed string) (*Instance, error) {
	if !nameForm.MatchString(name) {
		return nil, fmt.Errorf("start %q: a name has lower case letters, digits and dashes, at most 42", name)
	}
	wanted := Info{Machine: machine.Name, Seed: seed, Digest: machine.digest(), Started: time.Now().UTC().Truncate(time.Second)}
	existing, err := s.find(name, wanted)
	if !errors.Is(err, ErrNoInstance) {
		return existing, err
	}
	made := wanted
	if made.Seed == "" {
		made.Seed = randomSeed()
	}
	err = s.create(ctx, name, machine, made)
	// Somebody else may have started it meanwhile.
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("start simulated machine %s: %w", name, err)
	}
	return s.find(name, wanted)
}

// find opens an instance and checks that it is the one that is wanted; an empty
// seed wants any.
func (s Store) find(name string, wanted Info) (*Instance, error) {
	i, err := s.Open(name)
	if err != nil {
		return nil, err
	}
	if i.Digest != wanted.Digest || wanted.Seed != "" && i.Seed != wanted.Seed {
		return nil, fmt.Errorf("%w: %q is a %s started %s: stop it with `divvy simgpu stop %s` or choose another --name",
			ErrDifferent, name, i.Machine, i.Started.Format(time.RFC3339), name)
	}
	return i, nil
}

func (m *Machine) digest() string {
	sum := sha256.Sum256(m.image(""))
	return hex.EncodeToString(sum[:])
}

// create builds the instance beside its place and renames it there, so that
// nobody ever sees half of one.
func (s Store) create(ctx context.Context, name string, machine *Machine, info Info) error {
	// Above it lies the run directory, which others may have to enter.
	if err := rundir.MakeBelow(s.Root, 0o700); err != nil {
		return err
	}
	draft, err := os.MkdirTemp(s.Root, ".new-")
	if err != nil {
		return fmt.Errorf("make instance directory: %w", err)
	}
	defer os.RemoveAll(draft) //nolint:errcheck // gone once renamed; otherwise the next start is not hindered by it
	if err := s.Control.create(ctx, draft, machine.image(info.Seed)); err != nil {
		return err
	}
	if err := s.Control.copyLibraries(draft, machine.cudaVersion()); err != nil {
		return err
	}
	if err := s.Control.copyPrograms(draft); err != nil {
		return err
	}
	if err := machine.sysfs().write(simfiles.Sysfs(draft)); err != nil {
		return err
	}
	if err := machine.makeDevices(simfiles.Devices(draft)); err != nil {
		return err
	}
	if err := machine.makeCapabilities(draft); err != nil {
		return err
	}
	text, err := json.MarshalIndent(info, "", "  ")
	if err != nil {
		return fmt.Errorf("encode %s: %w", infoFile, err)
	}
	if err := os.WriteFile(filepath.Join(draft, infoFile), text, 0o600); err != nil {
		return fmt.Errorf("write %s: %w", infoFile, err)
	}
	return os.Rename(draft, filepath.Join(s.Root, name))
}

// Publish lets every user of this machine reach an instance. Its files are open to
// all already where root made it, as device nodes are.
func (s Store) Publish(instance *Instance) error {
	for _, dir := range []string{filepath.Dir(s.Root), s.Root, instance.Dir} {
		if err := os.Chmod(dir, 0o755); err != nil {
			return fmt.Errorf("open %s to users: %w", instance.Name, err)
		}
	}
	if err := os.Chmod(filepath.Join(instance.Dir, infoFile), 0o644); err != nil {
		return fmt.Errorf("open %s to users: %w", instance.Name, err)
	}
	return nil
}

// absent reports whether a file is not there, also because the run directory is a file:
// who makes an instance there is told.
func absent(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}

// Open finds an instance.
func (s Store) Open(name string) (*Instance, error) {
	if !nameForm.MatchString(name) {
		return nil, fmt.Errorf("%w: %q", ErrNoInstance, name)
	}
	dir := filepath.Join(s.Root, name)
	text, err := os.ReadFile(filepath.Join(dir, infoFile))
	if absent(err) {
		return nil, fmt.Errorf("%w: %q: `divvy simgpu ls` lists them, `divvy simgpu start MACHINE --name %s` makes it",
			ErrNoInstance, name, name)
	}
	if err != nil {
		return nil, fmt.Errorf("open simulated machine %s: %w", name, rundir.Explain(err, filepath.Dir(s.Root)))
	}
	instance := &Instance{Name: name, Dir: dir}
	if err := json.Unmarshal(text, &instance.Info); err != nil {
		return nil, fmt.Errorf("read %s: %w: remove %s and start it anew", infoFile, err, dir)
	}
	return instance, nil
}

// List returns all instances by name.
func (s Store) List() ([]*Instance, error) {
	entries, err := os.ReadDir(s.Root)
	if absent(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list simulated machines: %w", rundir.Explain(err, filepath.Dir(s.Root)))
	}
	var instances []*Instance
	for _, entry := range entries {
		instance, err := s.Open(entry.Name())
		if errors.Is(err, ErrNoInstance) {
			continue
		}
		if err != nil {
			return nil, err
		}
		instances = append(instances, instance)
	}
	return instances, nil
}

// Report asks the simulated driver what happened on the instance.
func (s Store) Report(ctx context.Context, instance *Instance) (*Report, error) {
	report, err := s.Control.report(ctx, instance.Dir)
	if err != nil {
		return nil, fmt.Errorf("report on %s: %w", instance.Name, err)
	}
	return report, nil
}

// owned returns an error unless the instance is this user's, or the user is root: what is
// done to a machine concerns all who use it.
func (i *Instance) owned() error {
	info, err := os.Stat(i.Dir)
	if err != nil {
		return fmt.Errorf("open simulated machine %s: %w", i.Name, err)
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if uid := os.Geteuid(); uid == 0 || ok && int(stat.Uid) == uid {
		return nil
	} else if !ok {
		return fmt.Errorf("%w: %s: the system does not tell whose", ErrForeign, i.Name)
	}
	return fmt.Errorf("%w: %s belongs to %s: only they and root can do this, or start a machine of your own (`divvy simgpu start %s --name mine`)",
		ErrForeign, i.Name, process.UserName(int(stat.Uid)), i.Machine)
}

// Inject makes calls on a GPU fail or slow; Clear ends it.
func (s Store) Inject(ctx context.Context, instance *Instance, gpu int, in Injection) error {
	if err := instance.owned(); err != nil {
		return err
	}
	if err := s.Control.inject(ctx, instance.Dir, gpu, in); err != nil {
		return fmt.Errorf("inject into %s: %w", instance.Name, err)
	}
	return nil
}

// Clear ends all injections on the given GPUs, on all without any.
func (s Store) Clear(ctx context.Context, instance *Instance, gpus ...int) error {
	if err := instance.owned(); err != nil {
		return err
	}
	if len(gpus) == 0 {
		report, err := s.Report(ctx, instance)
		if err != nil {
			return err
		}
		for _, gpu := range report.GPUs {
			gpus = append(gpus, gpu.Index)
		}
	}
	for _, gpu := range gpus {
		if err := s.Control.clear(ctx, instance.Dir, gpu); err != nil {
			return fmt.Errorf("clear injections of %s: %w", instance.Name, err)
		}
	}
	return nil
}

// Stop ends an instance. One in use is left alone with ErrBusy unless force is
// set; its processes then keep a machine that nobody can find any more.
func (s Store) Stop(ctx context.Context, instance *Instance, force bool) error {
	if err := instance.owned(); err != nil {
		return err
	}
	if !force {
		report, err := s.Report(ctx, instance)
		if err != nil {
			return fmt.Errorf("%w: --force stops it all the same", err)
		}
		if report.Busy() {
			return fmt.Errorf("%w: %s: end them first, or use --force", ErrBusy, report.users())
		}
	}
	// The rename makes it unfindable at once; removal takes longer.
	gone, err := os.MkdirTemp(s.Root, ".old-")
	if err != nil {
		return fmt.Errorf("stop simulated machine: %w", err)
	}
	if err := os.Rename(instance.Dir, filepath.Join(gone, instance.Name)); err != nil {
		return fmt.Errorf("stop simulated machine: %w", err)
	}
	if err := os.RemoveAll(gone); err != nil {
		return fmt.Errorf("remove simulated machine: %w", err)
	}
	return nil
}

// users names who keeps a machine busy.
func (r *Report) users() string {
	var pids []int
	for _, process := range r.Processes {
		pids = append(pids, process.PID)
	}
	slices.Sort(pids)
	return fmt.Sprintf("processes with a GPU %v and %d that only look at it", pids, r.Visitors)
}
