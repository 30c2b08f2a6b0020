package drivers

import (
	"context"
	"strings"

	"github.com/divvy-gpu/divvy/internal/driver"
)

// Subject is one thing in which a share is compared with the driver alone.
type Subject struct {
	// Group is the column of docs/drivers.md in which its answers are counted.
	Group, Name string
	Compare     func(context.Context) (Comparison, error)
}

// groups are the columns in which questions of each name are counted.
var groups = map[string]string{
	"names": "names", "lookups": "look-ups", "late": "look-ups", "errors": "texts", "status": "statuses", "outputs": "outputs",
}

// Subjects are all in which a pair is compared.
func (p *Pair) Subjects(runtimes []Runtime) []Subject {
	var subjects []Subject
	for _, q := range Questions {
		subjects = append(subjects, Subject{groups[q.Name], q.String(), func(ctx context.Context) (Comparison, error) { return p.Compare(ctx, q) }})
	}
	for _, w := range Ways {
		for _, library := range driver.Libraries {
			subjects = append(subjects, Subject{"ways", strings.TrimSuffix(library.Bare(), ".so") + "/" + w.Name,
				func(ctx context.Context) (Comparison, error) { return p.CompareWay(ctx, w, library) }})
		}
	}
	for _, r := range runtimes {
		subjects = append(subjects, Subject{"runtime " + r.Version, "runtime " + r.Version,
			func(ctx context.Context) (Comparison, error) { return p.compareRuntime(ctx, r) }})
	}
	return append(subjects, Subject{"nvidia-smi", "nvidia-smi", p.compareMonitor})
}
