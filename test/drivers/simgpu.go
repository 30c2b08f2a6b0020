package drivers

import (
	"context"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/divvy-gpu/divvy/internal/simgpu"
	"github.com/divvy-gpu/divvy/internal/simgpu/simfiles"
)

// Simulated is a machine of simgpu that claims to have a driver, beside that driver.
type Simulated struct {
	*Pair
	// CUDA is the version that both claim, 12040 for 12.4.
	CUDA int
	// Instance has the simulated libraries.
	Instance string
}

// Simulate starts a simulated machine with the pair's driver below the pair's folder.
func (p *Pair) Simulate(ctx context.Context) (*Simulated, error) {
	cuda, err := p.CUDA(ctx)
	if err != nil {
		return nil, err
	}
	machine, err := simgpu.Load("t4", fmt.Sprintf("driver.cuda=%d.%d", cuda/1000, cuda%1000/10), "driver.version="+p.Version)
	if err != nil {
		return nil, fmt.Errorf("describe a machine with driver %s: %w", p.Version, err)
	}
	instance, err := simgpu.NewStore(p.dir, p.tree).Start(ctx, "driver", machine, "driver")
	if err != nil {
		return nil, err
	}
	return &Simulated{Pair: p, CUDA: cuda, Instance: instance.Dir}, nil
}

// Compare asks the driver and the simulated one.
func (s *Simulated) Compare(ctx context.Context, q Question) (Comparison, error) {
	native, simulated := filepath.Join(s.Native, string(q.Library)), filepath.Join(s.Instance, string(q.Library))
	names, err := union(simfiles.Library(string(s.tree), string(q.Library)), native)
	if err != nil {
		return Comparison{}, err
	}
	if q.Name != "names" {
		names = slices.DeleteFunc(names, undocumented.MatchString)
	}
	want, err := s.Ask(ctx, q.Name, names, native)
	if err != nil {
		return Comparison{}, err
	}
	got, err := s.Ask(ctx, q.Name, names, simulated)
	if err != nil {
		return Comparison{}, err
	}
	return compare(q, want, got)
}

// undocumented are names of the two interfaces that no documentation has; simgpu lacks them.
var undocumented = regexp.MustCompile(`^(cuEGLApiInit|cuMemGetAttribute(_v2)?|nvmlGetBlacklistDevice\w+|nvmlRetry_NvRmControl)\b`)

// kept is a difference from the driver that simgpu keeps.
type kept struct {
	// question is the name of one, answer what the driver says to it, and until the last version of CUDA whose driver
	// says so, 0 for all.
	question, answer string
	from, until      int
	reason           string
}

// differing are all. docs/simgpu.md tells users of them.
var differing = []kept{
	{"names", undocumented.String() + " yes", 0, 0, "not documented"},
	{"late", "^cuInit 100$", 0, 0, "there is a GPU"},
	{"status", "^cuInit 100$", 0, 0, "there is a GPU"},
	{"status", `^nvmlInit(_v2|WithFlags)? 9$`, 0, 0, "there is a driver"},
	{"errors", "^916 [01]: 0 ", 12040, 12040, "came with 12.8; 550.163.01, a late 12.4, has it already"},
	{"status", `^cuKernel(GetAttribute|SetAttribute|SetCacheConfig) 3$`, 12000, 12040, "12.5 looks at its handle first"},
	{"status", `^cuGraphMem(cpy|set)NodeSetParams 3$`, 0, 12020, "12.4 looks at its node first"},
	{"status", `^cuStreamEndCapture(_ptsz)? 1$`, 0, 12020, "12.4 looks first whether it is initialised"},
	{"status", `^cuFuncGetAttribute 3$`, 0, 12020, "12.4 looks at its function first"},
	{"status", `^cuCtxDestroy(_v2)? 3$`, 0, 11040, "12.2 looks at its context first"},
	{"status", `^cuGraphAddKernelNode 1$`, 0, 11040, "12.2 looks first whether it is initialised"},
	{"status", `^cuGraphAddDependencies 0$`, 0, 11040, "12.2 looks at its graph first"},
}

// Unexpected are the differences for which there is no reason, of one comparison.
func (s *Simulated) Unexpected(c Comparison) []Difference {
	return slices.DeleteFunc(slices.Clone(c.Differences), func(d Difference) bool {
		return slices.ContainsFunc(differing, func(k kept) bool { return s.keeps(k, c.Question, d) })
	})
}

func (s *Simulated) keeps(k kept, q Question, d Difference) bool {
	return k.question == q.Name && k.from <= s.CUDA && (k.until == 0 || s.CUDA <= k.until) &&
		regexp.MustCompile(k.answer).MatchString(strings.TrimSpace(d.Native))
}
