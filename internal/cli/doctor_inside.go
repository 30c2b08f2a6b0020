package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/doctor"
	"github.com/divvy-gpu/divvy/internal/driver"
	"github.com/divvy-gpu/divvy/internal/edits"
	"github.com/divvy-gpu/divvy/internal/page"
	"github.com/divvy-gpu/divvy/internal/tenantdir"
	"github.com/divvy-gpu/divvy/internal/visible"
)

// inside is what can be seen of the share in which this process runs.
type inside struct {
	// name is the share's as DIVVY_SHARE has it.
	name string
	// library is what a program gets that asks for the driver's; err says why it gets none.
	library doctor.Library
	err     error
	// dir is where the share's pages are, "" where that is not known.
	dir string
}

// lookInside is nil where this process is in no share.
func (a *app) lookInside(ctx context.Context) *inside {
	in := inside{name: os.Getenv(shareVariable)}
	finder := driver.Finder{LibraryPath: filepath.SplitList(os.Getenv("LD_LIBRARY_PATH"))}
	_, err := finder.Find()
	_, container := os.Lstat(filepath.Join(edits.ShareDir, "config"))
	if in.name == "" && container != nil && !errors.Is(err, driver.ErrNested) {
		return nil
	}
	in.library, in.err = a.libraryOf(ctx, string(driver.CUDA))
	switch {
	case in.err == nil && in.library.Ours:
		in.dir = in.library.Runpath
	case container == nil:
		in.dir = edits.ShareDir
	}
	return &in
}

// libraryOf has a program of Divvy's load a library, as any program that is started here would.
func (a *app) libraryOf(ctx context.Context, name string) (doctor.Library, error) {
	ctx, cancel := context.WithTimeout(ctx, cudaTime)
	defer cancel()
	var said bytes.Buffer
	cmd := exec.CommandContext(ctx, a.tree.Program("divvy-probe"), "--library", name)
	cmd.Stderr, cmd.WaitDelay = &said, time.Second
	out, err := cmd.Output()
	if err != nil {
		return doctor.Library{}, fmt.Errorf("%w: %s", err, bytes.TrimSpace(said.Bytes()))
	}
	var found struct {
		Path string `json:"path"`
	}
	if err := json.Unmarshal(out, &found); err != nil {
		return doctor.Library{}, fmt.Errorf("read divvy-probe's answer: %w", err)
	}
	return doctor.LibraryAt(found.Path), nil
}

// insideChecks speak of the share.
func (a *app) insideChecks(ctx context.Context, in *inside) []doctor.Check {
	t, check := in.share()
	checks := []doctor.Check{check, in.libraryCheck(ctx)}
	switch {
	case in.isRemote():
		checks = append(checks, a.remoteGPUs(ctx, in.library.Path))
	case t != nil && in.err == nil && in.library.Ours:
		checks = append(checks, a.insideGPUs(ctx, t, in.library.Path))
	}
	if t != nil && (t.Swap || t.Suspends) {
		checks = append(checks, doctor.Charge("/", evictable(t)))
	}
	return append(checks, a.insideAgent(ctx, in, t))
}

// evictable is how much of a tenant's shares can be in host memory.
func evictable(t *backend.Tenant) (sum uint64) {
	for _, s := range t.Shares {
		sum += s.Limit - s.Kept
	}
	return sum
}

// isRemote reports whether programs here are kept away from the driver, and so from the share's pages.
func (in *inside) isRemote() bool { return in.err == nil && in.library.Client }

// remoteGPUs asks CUDA for the GPUs, and so whether a worker answers.
func (a *app) remoteGPUs(ctx context.Context, library string) doctor.Check {
	c := doctor.Check{ID: "inside.gpus", Name: "GPUs", Status: doctor.OK}
	ctx, cancel := context.WithTimeout(ctx, cudaTime)
	defer cancel()
	shown, err := driver.Order(ctx, a.tree.Program("divvy-probe"), library)
	if err != nil {
		c.Status, c.Found, c.Next = doctor.Fail, err.Error(), "start the command again with `divvy run`: the worker that has the share does not answer"
		return c
	}
	c.Found = fmt.Sprintf("the worker shows %d", len(shown))
	return c
}

// share reads the share's page.
func (in *inside) share() (*backend.Tenant, doctor.Check) {
	c := doctor.Check{ID: "inside.share", Name: "share", Status: doctor.Fail, Next: "start the command again with `divvy run`"}
	if in.isRemote() {
		c.Status, c.Next = doctor.OK, ""
		c.Found = cmp.Or(in.name, "this") + ": backend remote, whose worker has the pages; `divvy show` outside tells its amounts"
		return nil, c
	}
	if in.dir == "" {
		c.Found = fmt.Sprintf("%s=%s says that this is a share, and nothing else does", shareVariable, in.name)
		c.Next = "where this is a share, see the next line; else unset " + shareVariable
		return nil, c
	}
	config, err := page.ReadConfig(tenantdir.Dir(in.dir).Config())
	if err != nil {
		c.Found = err.Error()
		return nil, c
	}
	t, err := tenantdir.Decode(&config)
	if err != nil {
		c.Found = err.Error()
		return nil, c
	}
	var parts []string
	for _, s := range t.Shares {
		text := fmt.Sprintf("%s of GPU %s", size(s.Limit), s.GPU.UUID)
		if t.Swap {
			text += fmt.Sprintf(" with swap, %s of it kept there", size(s.Kept))
		}
		if s.Cores > 0 {
			text += fmt.Sprintf(" and %d%% of its time", s.Cores)
		}
		parts = append(parts, text+fmt.Sprintf(" (%s, %s)", s.Policy, s.Class))
	}
	layer := string(t.Layer)
	if in.dir == edits.ShareDir {
		layer = string(control.LayerContainer)
	}
	c.Status, c.Next = doctor.OK, ""
	c.Found = fmt.Sprintf("%s: %s, backend %s, layer %s", t.Name, strings.Join(parts, ", "), t.Backend, layer)
	return &t, c
}

// libraryCheck says which library programs get, and this process itself.
func (in *inside) libraryCheck(ctx context.Context) doctor.Check {
	c := doctor.Check{ID: "inside.library", Name: "library", Status: doctor.Fail}
	switch {
	case in.err != nil:
		c.Found = "a program that is started here finds no " + string(driver.CUDA) + ": " + in.err.Error()
		c.Next = "unset what changes where libraries are looked for, LD_LIBRARY_PATH first; with layer env it must keep what `divvy run` put there"
	case in.library.Client:
		c.Status, c.Found = doctor.OK, "a program that is started here gets Divvy's, "+in.library.Path+", which sends each call to a worker"
	case !in.library.Ours:
		c.Found = fmt.Sprintf("a program that is started here gets %s, which is not Divvy's: it is not limited, and reported", in.library.Path)
		c.Next = "take its folder out of LD_LIBRARY_PATH; with layer env keep what `divvy run` put there"
	default:
		c.Status, c.Found = doctor.OK, "a program that is started here gets Divvy's, "+in.library.Path
	}
	if mapped, err := doctor.Mapped(ctx, os.Getpid()); err == nil {
		for _, l := range mapped {
			c.Found += "; this process has mapped " + l.Path
		}
	}
	return c
}

// insideGPUs asks CUDA which GPUs it shows, without and with the variable.
func (a *app) insideGPUs(ctx context.Context, t *backend.Tenant, library string) doctor.Check {
	c := doctor.Check{ID: "inside.gpus", Name: "GPUs", Status: doctor.Fail}
	ctx, cancel := context.WithTimeout(ctx, cudaTime)
	defer cancel()
	shown, err := driver.Order(ctx, a.tree.Program("divvy-probe"), library)
	if err != nil {
		c.Found, c.Next = err.Error(), "run a program with DIVVY_LOG=stderr, which has the library say why; then look at the agent outside: `divvy ls`"
		return c
	}
	value, set := os.LookupEnv(visible.Variable)
	seen := len(shown)
	if set {
		seen = countVisible(value, shown)
	}
	c.Found = fmt.Sprintf("CUDA shows %d of the share's %d", seen, len(t.Shares))
	if set {
		c.Found += fmt.Sprintf(" with %s=%s", visible.Variable, value)
	}
	switch {
	case len(shown) < len(t.Shares):
		c.Next = "run a program with DIVVY_LOG=stderr, which has the library say why"
	case seen == 0:
		c.Next = fmt.Sprintf("unset %s, or count the share's GPUs from 0: %s", visible.Variable, counted(len(t.Shares)))
	case seen < len(t.Shares):
		c.Status, c.Next = doctor.Warn, fmt.Sprintf("to use all: export %s=%s", visible.Variable, counted(len(t.Shares)))
	default:
		c.Status = doctor.OK
	}
	return c
}

// countVisible is how many GPUs CUDA shows with a value of the variable: those before the first entry that names none.
func countVisible(value string, shown []string) (n int) {
	for entry := range strings.SplitSeq(value, ",") {
		entry = strings.TrimSpace(entry)
		known := slices.ContainsFunc(shown, func(uuid string) bool {
			return entry != "" && len(entry) <= len(uuid) && strings.EqualFold(uuid[:len(entry)], entry) && strings.HasPrefix(strings.ToUpper(entry), "GPU-")
		})
		var index int
		if _, err := fmt.Sscanf(entry, "%d", &index); !known && (err != nil || index < 0 || index >= len(shown)) {
			return n
		}
		n++
	}
	return n
}

// insideAgent asks the agents for the share, where they can be reached.
func (a *app) insideAgent(ctx context.Context, in *inside, t *backend.Tenant) doctor.Check {
	c := doctor.Check{ID: "inside.agent", Name: "agent", Status: doctor.OK}
	if in.dir == edits.ShareDir {
		c.Found = "not to be asked from a container; `divvy ls` outside shows the share"
		return c
	}
	endpoints, err := a.endpoints(ctx, "")
	if err != nil {
		c.Status, c.Found = doctor.Warn, err.Error()
		return c
	}
	sights := a.lookAtAgents(ctx, endpoints)
	for _, s := range sights {
		if s.list == nil {
			continue
		}
		for i := range s.list.Tenants {
			one := &s.list.Tenants[i]
			if t != nil && one.ID == t.ID || t == nil && one.Called(in.name) {
				c.Found = served(s.list.Info)
				if faults := faultsOf(*one, s.list.Time); len(faults) > 0 {
					c.Status, c.Found, c.Next = doctor.Warn, c.Found+"; "+strings.Join(faults, "; "), "`divvy show` says more"
				}
				return c
			}
		}
		c.Found = "an agent answers (" + served(s.list.Info) + ") and does not know this share"
	}
	if in.isRemote() { // a simulated machine's is hidden with the machine
		c.Found = "none to be asked from here; `divvy ls` outside shows the share"
		return c
	}
	if c.Found == "" {
		c.Found = "none answers: the share goes on with its limits"
	}
	c.Status, c.Next = doctor.Warn, "outside the share: `divvy ls` and `divvy doctor`"
	return c
}
