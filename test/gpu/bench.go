package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	mib = 1 << 20
	gib = 1 << 30
)

// bench runs programs natively and in shares of one GPU.
type bench struct {
	options
	scratch string // a folder for files of programs
	env     []string
	machine machine
	gpu     gpu
	// unable says why no program can use the GPU, if that is so, and noShare why none can in a share.
	unable, noShare string
	made            int // shares so far
	keeper          *program
	// off is by how many MiB the account of a share without late growth was wrong.
	off float64
	// stuck is set once a program could not be ended: nothing more is tried then.
	stuck bool
}

func (b *bench) divvy() string    { return filepath.Join(b.tree, "bin", "divvy") }
func (b *bench) gpubench() string { return filepath.Join(b.tree, "bin", "gpubench") }
func (b *bench) gpuprobe() string { return filepath.Join(b.tree, "libexec", "divvy", "gpuprobe") }

// newBench looks at the machine and chooses a GPU. A machine without one is no error: the report says so.
func newBench(ctx context.Context, o options) (*bench, error) {
	b := &bench{options: o}
	for _, file := range []string{b.divvy(), b.gpubench(), b.gpuprobe()} {
		if _, err := os.Stat(file); err != nil {
			return nil, fmt.Errorf("find the archive's files: %w", err)
		}
	}
	var err error
	if b.scratch, err = scratch(); err != nil {
		return nil, err
	}
	adopt()
	b.env = environment(os.Environ())
	if o.simgpu != "" {
		b.env = append(b.env, "DIVVY_RUNDIR="+filepath.Join(b.scratch, "r"))
		if err := b.simulate(ctx); err != nil {
			b.close(ctx)
			return nil, err
		}
	}
	b.look(ctx)
	return b, nil
}

// simulated is the name of the simulated machine.
const simulated = "gpu-test"

// simulate starts the simulated machine. It answers calls with ended handles, which a case asks for, and takes 1 ms for a
// kernel of a fixed amount of work, as much as the cases give a real GPU to do. Each of its GPUs in MIG mode has an instance.
func (b *bench) simulate(ctx context.Context) error {
	o, err := finish(ctx, []string{b.divvy(), "simgpu", "start", b.simgpu, "--name", simulated, "--set", "deadHandles=count", "--set", "costs.kernel=1ms"}, b.env, nil)
	if err == nil && o.status == 0 {
		o, err = finish(ctx, append(b.natively(), b.gpuprobe(), "divide"), b.env, nil)
	}
	if err == nil && o.status != 0 {
		err = errors.New(o.say())
	}
	if err != nil {
		return fmt.Errorf("start the simulated machine: %w", err)
	}
	return nil
}

// scratch makes a folder in the first place that has room for one, if possible where programs may be executed: then a
// share's libraries can be loaded from there too.
func scratch() (string, error) {
	var faults []error
	places := []string{os.TempDir(), "/var/tmp", "/dev/shm", "."}
	slices.SortStableFunc(places, func(a, b string) int { return cmp.Compare(noexec(a), noexec(b)) })
	for _, place := range places {
		dir, err := os.MkdirTemp(place, "gpu-test-")
		if err == nil {
			return filepath.Abs(dir)
		}
		faults = append(faults, err)
	}
	return "", fmt.Errorf("make a folder for temporary files: %w", errors.Join(faults...))
}

// noexec is 1 where nothing may be executed, else 0.
func noexec(dir string) int {
	var stat unix.Statfs_t
	if unix.Statfs(dir, &stat) == nil && stat.Flags&unix.ST_NOEXEC != 0 {
		return 1
	}
	return 0
}

// environment is the caller's without what would change the libraries' behaviour, and without a cache of compiled code:
// each run compiles anew, and nothing of it stays in the user's home.
func environment(env []string) []string {
	gone := []string{"DIVVY_LOG", "DIVVY_PREFIX", "DIVVY_RUNDIR", "DIVVY_REQUIRE", "CUDA_MODULE_LOADING", "CUDA_CACHE_DISABLE", "LC_ALL"}
	kept := slices.DeleteFunc(slices.Clone(env), func(entry string) bool {
		name, _, _ := strings.Cut(entry, "=")
		return slices.Contains(gone, name)
	})
	return append(kept, "CUDA_CACHE_DISABLE=1", "LC_ALL=C")
}

// keep has a program hold the driver until the end: without persistence mode the driver would forget the GPU after each
// program, and need seconds to set it up for the next one.
func (b *bench) keep(ctx context.Context) {
	t := &trial{bench: b, ctx: ctx}
	f, err := t.follow(b.natively(), b.gpuprobe(), "keep")
	if err == nil {
		b.keeper = f.program
		_, err = t.await(f, "keep")
	}
	if err != nil {
		b.unable = "the driver does not stay loaded: " + err.Error()
	}
}

// close ends what still runs and removes the temporary files, also after an interruption.
func (b *bench) close(ctx context.Context) {
	if b.keeper != nil {
		_ = b.keeper.kill()
	}
	if b.simgpu != "" {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), killTime)
		defer cancel()
		_, _ = finish(ctx, []string{b.divvy(), "simgpu", "stop", "--force", simulated}, b.env, nil)
	}
	reap()
	if err := os.RemoveAll(b.scratch); err != nil {
		fmt.Fprintln(os.Stderr, "gpu-test: remove temporary files:", err)
	}
}

// flags are those of a share. A zero field is left out.
type flags struct {
	memory        uint64
	cores         int
	policy, class string
	backend       string
	name          string
	gpu, profile  string // of a share on a MIG instance
	kept          uint64 // of a swap share
}

func (f flags) words() []string {
	var words []string
	if f.memory > 0 {
		words = append(words, "--memory", fmt.Sprintf("%dMi", f.memory/mib))
	}
	add := func(name, value string) {
		if value != "" {
			words = append(words, name, value)
		}
	}
	if f.cores > 0 {
		add("--cores", fmt.Sprint(f.cores))
	}
	add("--policy", f.policy)
	add("--class", f.class)
	add("--backend", f.backend)
	add("--name", f.name)
	add("--gpu", f.gpu)
	add("--profile", f.profile)
	if f.kept > 0 {
		words = append(words, "--swap", "--kept", fmt.Sprintf("%dMi", f.kept/mib))
	}
	return words
}

// shareNames begins the names of all shares that this test makes.
const shareNames = "gpu-test-"

// place is where a command runs: the words before it.
type place []string

// natively is outside any share.
func (b *bench) natively() place {
	if b.simgpu != "" {
		return place{b.divvy(), "simgpu", "exec", simulated, "--"}
	}
	return nil
}

// share is a new share with these flags.
func (b *bench) share(f flags) place {
	where := place{b.divvy(), "run"}
	if b.made++; f.name == "" {
		f.name = fmt.Sprint(shareNames, b.made)
	}
	if b.simgpu != "" {
		where = append(where, "--simgpu", simulated)
	}
	return append(append(where, f.words()...), "--")
}

// trial is one case on its way. What it finds out goes to the report, whatever its outcome.
type trial struct {
	*bench
	ctx   context.Context
	facts []fact
	rows  []row
	vars  []string // of the environment, beside the bench's
}

// fact is something that was seen natively, in a share, or about both.
type fact struct {
	What   string `json:"what"`
	Native string `json:"native,omitempty"`
	Share  string `json:"share,omitempty"`
	Seen   string `json:"seen,omitempty"`
}

func (t *trial) note(format string, args ...any) {
	t.facts = append(t.facts, fact{What: "note", Seen: fmt.Sprintf(format, args...)})
}

func (t *trial) compare(what, native, share string) {
	t.facts = append(t.facts, fact{What: what, Native: native, Share: share})
}

func (t *trial) environment() []string { return append(slices.Clone(t.env), t.vars...) }

// call runs a command at a place to its end.
func (t *trial) call(at place, command ...string) (output, error) {
	return finish(t.ctx, slices.Concat(at, command), t.environment(), nil)
}

// ask runs a command at a place and decodes its last answer. Another exit status than 0 is an error.
func (t *trial) ask(into any, at place, command ...string) error {
	o, err := t.call(at, command...)
	if err != nil {
		return err
	}
	if o.status != 0 {
		return fmt.Errorf("run %s: %s", strings.Join(append([]string{filepath.Base(command[0])}, command[1:]...), " "), o.say())
	}
	return o.last(into)
}

// isolated is for a process in user and pid namespaces of its own, in which it is the user itself and process 1.
func isolated() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWPID,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: os.Getuid(), HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: os.Getgid(), HostID: os.Getgid(), Size: 1}},
	}
}

// until asks again until it is true or the time is over.
func (t *trial) until(limit time.Duration, done func() (bool, error)) (bool, error) {
	for end := time.Now().Add(limit); ; {
		ok, err := done()
		if ok || err != nil || time.Now().After(end) {
			return ok, err
		}
		select {
		case <-t.ctx.Done():
			return false, context.Cause(t.ctx)
		case <-time.After(50 * time.Millisecond):
		}
	}
}
