package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/alloc/forms"
	"github.com/divvy-gpu/divvy/internal/cli/columns"
	"github.com/divvy-gpu/divvy/internal/cli/program"
	"github.com/divvy-gpu/divvy/internal/driver"
)

func newExplain(a *app) *cobra.Command {
	o := &runOptions{}
	var output format
	command := &cobra.Command{
		Use:   "explain [flags]",
		Short: "Say which backend a share would have, and why",
		Long: `Say which backend a share would have and why, and why not each other one, as a
whole and on each GPU. Nothing is created. The flags are those of "divvy run",
without a command. What is not on the machine is listed too.
"divvy explain pod NAME" says why a pod of a Kubernetes cluster waits.

VERDICT is "chosen" for the backend that "divvy run" with the same flags takes, and
"chosen, waits" where it takes none now and with --wait would wait for that one. Else
it is "fits" where the share could be made now, "waits" where it could be made once
others have ended, "never" where it cannot, and "absent" where the machine has
nothing of that backend. The exit status is 1 where no backend can serve the request.`,
		Example: `  divvy explain --backend auto --memory 8Gi --cores 30
  divvy explain --isolate bandwidth
  divvy explain --memory 8Gi -o json | jq '.backends[] | select(.chosen)'`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			e, err := a.explain(cmd.Context(), o)
			if err != nil {
				return err
			}
			err = output.print(a.out, e, func(w *strings.Builder) { printExplanation(w, e) })
			if err == nil && e.Refused != "" {
				err = program.ErrReported
			}
			return err
		},
	}
	o.add(command.Flags())
	addFormat(command, &output)
	return command
}

// explain asks the agent that would be asked for the share.
func (a *app) explain(ctx context.Context, o *runOptions) (*control.Explanation, error) {
	request := o.request()
	if err := errors.Join(explainable(request), o.choice.wish().Validate()); err != nil {
		return nil, usage(err)
	}
	instance, err := a.ownMachine(ctx, o.simgpu)
	if err != nil {
		return nil, err
	}
	finder := driver.Finder{LibraryPath: filepath.SplitList(os.Getenv("LD_LIBRARY_PATH")), Instance: instance}
	if err := a.expectDriver(ctx, finder); err != nil {
		return nil, err
	}
	client, err := control.Ensure(ctx, a.endpoint(instance), control.Starter{Say: a.tell, Hidden: hidden})
	if err != nil {
		return nil, err
	}
	served, err := driverOf(client.Info(), finder)
	if err == nil {
		err = a.choose(ctx, &o.choice, &request, served, client)
	}
	var e *control.Explanation
	if err == nil {
		e, err = client.Explain(ctx, control.ExplainParams{Request: request})
	}
	return e, errors.Join(err, client.Close())
}

// explainable returns what is wrong with a request whatever its backend. What is wrong with it under the backend that it
// names is a verdict.
func explainable(r v1alpha1.ShareRequest) error {
	if r.Backend != "" && r.Backend != v1alpha1.BackendAuto && !slices.Contains(forms.All(), r.Backend) {
		return fmt.Errorf("--backend %s: choose auto or one of %v", r.Backend, forms.All())
	}
	r.Backend = v1alpha1.BackendAuto
	r.Default()
	return r.Validate()
}

// printExplanation has a row for each backend and, where GPUs differ from it, one for each of these.
func printExplanation(w *strings.Builder, e *control.Explanation) {
	var shown columns.Table
	shown.Row("BACKEND", "GPU", "VERDICT", "REASON")
	for _, v := range e.Backends {
		shown.Row(string(v.Backend), "", verdictOf(v), v.Reason)
		for _, alike := range groupGPUs(v.GPUs) {
			if alike.saidBy(v.Reason) {
				continue // the backend's own row says it of all of them
			}
			shown.Row("", alike.indexes(), alike.state, alike.reason())
		}
	}
	var aligned strings.Builder
	shown.Print(&aligned)
	for line := range strings.Lines(aligned.String()) {
		w.WriteString(strings.TrimRight(line, " \n") + "\n") // where there is no reason, no blanks
	}
	if e.Refused != "" {
		fmt.Fprintf(w, "\n%s\n", e.Refused)
	}
}

// verdictOf is a verdict in a word, or in two: a share that is chosen may have to wait.
func verdictOf(v forms.Verdict) string {
	switch {
	case v.Chosen && v.State == forms.Fits:
		return "chosen"
	case v.Chosen:
		return "chosen, " + string(v.State)
	}
	return string(v.State)
}

// alikeGPUs are GPUs of which the same is said but for who holds what.
type alikeGPUs struct {
	state string
	// whole is what is said of the first, and rest the same without its number and without who holds what.
	whole, rest string
	gpus        []int
}

// groupGPUs puts GPUs together of which the same is said, in the order of the first of each.
func groupGPUs(all []forms.GPU) (groups []*alikeGPUs) {
	for _, gpu := range all {
		fact, _, _ := strings.Cut(gpu.Reason, "; ")
		rest := strings.TrimPrefix(strings.TrimPrefix(fact, fmt.Sprintf("GPU %d ", gpu.Index)), "has ")
		at := slices.IndexFunc(groups, func(g *alikeGPUs) bool { return g.state == string(gpu.State) && g.rest == rest })
		if at < 0 {
			groups, at = append(groups, &alikeGPUs{state: string(gpu.State), whole: gpu.Reason, rest: rest}), len(groups)
		}
		groups[at].gpus = append(groups[at].gpus, gpu.Index)
	}
	return groups
}

// indexes are those of the GPUs, such as 0-3,6.
func (g *alikeGPUs) indexes() string {
	var parts []string
	for i := 0; i < len(g.gpus); {
		end := i
		for end+1 < len(g.gpus) && g.gpus[end+1] == g.gpus[end]+1 {
			end++
		}
		part := strconv.Itoa(g.gpus[i])
		if end > i {
			part += "-" + strconv.Itoa(g.gpus[end])
		}
		parts = append(parts, part)
		i = end + 1
	}
	return strings.Join(parts, ",")
}

// reason is what is said of one GPU, or of each of several.
func (g *alikeGPUs) reason() string {
	if len(g.gpus) == 1 {
		return g.whole
	}
	return g.rest
}

// saidBy reports whether a backend's reason says what is said of these GPUs.
func (g *alikeGPUs) saidBy(reason string) bool {
	if len(g.gpus) == 1 {
		return g.whole != "" && strings.Contains(reason, g.whole)
	}
	return strings.Contains(reason, g.rest)
}

// tellChoice tells which backend and which MIG profile an agent chose.
func (a *app) tellChoice(asked v1alpha1.ShareRequest, t *control.Tenant) {
	asked.Default()
	if len(t.Shares) == 0 {
		return
	}
	s := t.Shares[0]
	if asked.Backend == v1alpha1.BackendAuto {
		a.tell(fmt.Sprintf("the share has backend %s: %s", s.Backend, forms.Gives(s.Backend)))
	}
	if asked.Profile == "" && s.Instance != nil {
		a.tell(fmt.Sprintf("the share has MIG instance %s of GPU %d, with %s and %d SMs", s.Instance.Profile, s.Index, size(s.Instance.Bytes), s.Instance.Multiprocessors))
	}
}
