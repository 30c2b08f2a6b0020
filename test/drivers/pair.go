package drivers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/backend/slice"
	"github.com/divvy-gpu/divvy/internal/driver"
	"github.com/divvy-gpu/divvy/internal/edits"
	"github.com/divvy-gpu/divvy/internal/install"
	"github.com/divvy-gpu/divvy/internal/launch"
)

// Pair is a driver as it is, and shares of a GPU that does not exist over it.
type Pair struct {
	Driver
	// Native is a folder in which the driver's libraries have their usual names, and Share the directory of Env.
	Native, Share string
	// Alone runs programs with the driver alone, Env in a share that LD_LIBRARY_PATH leads to, and Covered in one whose
	// libraries are mounted over the driver's files.
	Alone, Env, Covered Place

	tree install.Tree
	dir  string
}

// Place is where a program runs. LD_LIBRARY_PATH names the pair's folder Native in all of them, as a user of the driver
// would set it.
type Place struct {
	Name string
	// Dir is the tenant's directory, empty for the driver alone.
	Dir string

	native string
	enter  launch.Enter
	edits  edits.Edits
}

// Command is a program that runs in the place, with additions to the environment.
func (p Place) Command(ctx context.Context, env []string, argv ...string) *exec.Cmd {
	outer := slices.DeleteFunc(os.Environ(), func(entry string) bool { return strings.HasPrefix(entry, "LD_LIBRARY_PATH=") })
	env = slices.Concat(outer, []string{"LD_LIBRARY_PATH=" + p.native}, env)
	if len(p.edits.Binds) == 0 {
		cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
		cmd.Env = p.edits.Environment(env)
		return cmd
	}
	plan := p.enter.Plan(p.edits, env, argv)
	cmd := exec.CommandContext(ctx, plan.Program, plan.Args[1:]...)
	cmd.Env = plan.Env
	return cmd
}

// Open makes a pair below dir, with our libraries from a built tree.
func Open(ctx context.Context, d Driver, tree install.Tree, dir string) (*Pair, error) {
	p := &Pair{Driver: d, Native: filepath.Join(dir, "native"), tree: tree, dir: dir}
	for _, folder := range []string{p.Native, filepath.Join(dir, "tenants")} {
		if err := os.MkdirAll(folder, 0o700); err != nil {
			return nil, fmt.Errorf("make a folder for libraries: %w", err)
		}
	}
	for _, library := range driver.Libraries {
		file, err := p.file(library)
		if err != nil {
			return nil, err
		}
		if err := errors.Join(
			os.Symlink(file, filepath.Join(p.Native, string(library))),
			os.Symlink(file, filepath.Join(p.Native, library.Bare())),
		); err != nil {
			return nil, fmt.Errorf("name the driver's libraries: %w", err)
		}
	}
	p.Alone = Place{Name: "alone", native: p.Native}
	var err error
	if p.Env, err = p.share(ctx, backend.LayerEnv); err != nil {
		return nil, err
	}
	p.Share = p.Env.Dir
	p.Covered, err = p.share(ctx, backend.LayerNamespace)
	return p, err
}

// share makes a share over the driver as the agent does.
func (p *Pair) share(ctx context.Context, layer backend.Layer) (Place, error) {
	maker := slice.New(slice.Options{
		Tenants: filepath.Join(p.dir, "tenants"), State: p.dir, Tree: p.tree,
		Finder: driver.Finder{LibraryPath: []string{p.Native}},
	})
	plan, err := maker.Plan(backend.Tenant{ID: string(layer), Name: string(layer), Layer: layer, Shares: []backend.Share{{
		GPU:   backend.GPU{UUID: "GPU-6e5f0d1c-3b5e-4a8e-9f7a-2d1c0b9a8f7e", PCI: "00000000:01:00.0", Total: 80 << 30, ContextBytes: 400 << 20},
		Limit: 2 << 30, Weight: 1, Policy: v1alpha1.PolicyWeighted, Class: v1alpha1.ClassOffline,
	}}})
	if err == nil {
		err = maker.Apply(ctx, plan)
	}
	if err != nil {
		return Place{}, fmt.Errorf("make a share over driver %s: %w", p.Version, err)
	}
	return Place{
		Name: string(layer), Dir: plan.Dir, native: p.Native,
		enter: launch.Enter(p.tree.Program("divvy-enter")), edits: plan.Edits,
	}, nil
}
