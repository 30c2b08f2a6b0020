package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/driver"
	"github.com/divvy-gpu/divvy/internal/edits"
	"github.com/divvy-gpu/divvy/internal/visible"
)

// choiceFlags are the flags that choose GPUs.
type choiceFlags struct {
	count gpuCount
	names gpuNames
}

func (f *choiceFlags) add(flags *pflag.FlagSet) {
	flags.Var(&f.count, "gpus", "number of different GPUs, or all (default: all that are named, else 1)")
	flags.Var(&f.names, "gpu", "the GPUs that may serve, such as 0,2 (default: those of CUDA_VISIBLE_DEVICES, else any)")
}

// wish is what the flags and the environment say.
func (f *choiceFlags) wish() visible.Wish {
	w := visible.Wish{Named: f.names.list, Count: f.count.n, All: f.count.all}
	if value, set := os.LookupEnv(visible.Variable); set {
		w.Variable = &value
	}
	return w
}

// gpuCount is a number of GPUs or "all".
type gpuCount struct {
	n   int
	all bool
}

// Set implements pflag.Value.
func (c *gpuCount) Set(text string) error {
	n, err := strconv.Atoi(strings.TrimSpace(text))
	switch {
	case text == "all":
		*c = gpuCount{all: true}
	case err == nil && (n < 1 || n > v1alpha1.MaxGPUs), errors.Is(err, strconv.ErrRange):
		return fmt.Errorf("give a number from 1 to %d, or all", v1alpha1.MaxGPUs)
	case strings.ContainsAny(text, ",=-") || strings.HasPrefix(strings.ToUpper(text), "GPU"):
		return fmt.Errorf("give a number, or all; --gpu names GPUs, such as --gpu 0,2")
	case err != nil:
		return fmt.Errorf("give a whole number, 1 or more, or all")
	default:
		*c = gpuCount{n: n}
	}
	return nil
}

// Type implements pflag.Value.
func (c *gpuCount) Type() string { return "N|all" }

func (c *gpuCount) String() string {
	if c.all {
		return "all"
	}
	return leftOut(c.n)
}

// gpuNames are names of GPUs. The flag may be repeated.
type gpuNames struct{ list []string }

// Set implements pflag.Value. It refuses an empty text, which usually comes from an
// unset shell variable and would mean any GPU.
func (g *gpuNames) Set(text string) error {
	if text == "" {
		return fmt.Errorf("give a value, or leave the flag out")
	}
	if text == "all" {
		return fmt.Errorf("--gpus all asks for all GPUs")
	}
	for name := range strings.SplitSeq(text, ",") {
		g.list = append(g.list, strings.TrimSpace(name))
	}
	return nil
}

// Type implements pflag.Value.
func (g *gpuNames) Type() string { return "GPU,..." }

func (g *gpuNames) String() string { return strings.Join(g.list, ",") }

// look finds out what a wish needs to be understood. It asks the agent and CUDA only then.
func (a *app) look(ctx context.Context, w visible.Wish, finder driver.Finder, client *control.Client) (visible.Sight, error) {
	var s visible.Sight
	hidden, err := finder.Hidden()
	if err != nil {
		return s, err
	}
	s.Hidden = hidden
	served, shown := w.Asks(hidden)
	if served || len(w.Named) > 0 {
		list, err := client.List(ctx)
		if err != nil {
			return s, err
		}
		s.LeftOut = list.LeftOut
		for _, gpu := range list.GPUs {
			s.Served = append(s.Served, visible.GPU{Index: gpu.Index, UUID: gpu.UUID})
		}
	}
	if shown {
		d, err := finder.Find()
		if err == nil {
			s.Shown, err = finder.Order(ctx, a.tree.Program("divvy-probe"), d)
		}
		s.Blind = err
	}
	return s, nil
}

// choose puts the GPUs that the caller means into the request.
func (a *app) choose(ctx context.Context, f *choiceFlags, r *v1alpha1.ShareRequest, finder driver.Finder, client *control.Client) error {
	w := f.wish()
	s, err := a.look(ctx, w, finder, client)
	if err != nil {
		return err
	}
	c, err := visible.Choose(w, s)
	if err != nil {
		return err
	}
	r.Among, r.GPUs = c.Among, c.Count
	return nil
}

// shareVariable names in a share's environment the share, for `divvy show`. Nothing else reads it.
const shareVariable = edits.ShareVariable

// shareEnvironment is the caller's environment for the command of a share. If the caller
// chose GPUs by CUDA_VISIBLE_DEVICES, the command gets their numbers in the share, because
// the machine's numbers and other GPUs mean nothing there.
func shareEnvironment(env []string, t *control.Tenant) []string {
	of := func(name string) func(string) bool {
		return func(entry string) bool { return strings.HasPrefix(entry, name+"=") }
	}
	changed := append(slices.DeleteFunc(slices.Clone(env), of(shareVariable)), shareVariable+"="+t.Name)
	at := slices.IndexFunc(changed, of(visible.Variable))
	if at < 0 {
		return changed
	}
	numbers := make([]string, len(t.Shares))
	for i := range numbers {
		numbers[i] = strconv.Itoa(i)
	}
	changed[at] = visible.Variable + "=" + strings.Join(numbers, ",")
	return changed
}
