package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/validation"

	"github.com/divvy-gpu/divvy/internal/cli/program"
	"github.com/divvy-gpu/divvy/internal/cli/text"
	"github.com/divvy-gpu/divvy/internal/explanation"
)

// newExplain has what is explained as commands of its own.
func newExplain(a *app) *cobra.Command {
	command := &cobra.Command{
		Use:   "explain",
		Short: "Say why a pod of a Kubernetes cluster waits, or where a queue stands",
		Args:  program.Args(1, -1, "pod or queue and its name"),
		RunE: func(_ *cobra.Command, args []string) error {
			return program.Usage(fmt.Errorf("%q cannot be explained in a cluster: only pods and queues can", args[0]))
		},
	}
	command.AddCommand(newExplainPod(a), newExplainQueue(a))
	return command
}

// explainOptions are the flags of divvy explain pod.
type explainOptions struct {
	access
	output string
}

func newExplainPod(a *app) *cobra.Command {
	var o explainOptions
	command := &cobra.Command{
		Use:   "pod NAME",
		Short: "Say why a pod waits, or where it is",
		Long: `Say in one line why a pod of a Kubernetes cluster waits and what it waits for, or
where it is and since when. Then its place in its queue, if it waits in one; its
gang: who is there and who is missing; and its claims, with what they have of which
GPU, or its shares where Kubernetes counts slots. Nothing is changed.

It needs the rights to read pods, claims and events of the pod's namespace, and
the objects that describe its gang, if there are any. The queue is shown to those
who may read queues, and the place in it to those who may read all of its pods.`,
		Example: `  divvy explain pod train-0
  divvy explain pod train-0 -n research -o json`,
		Args: program.Args(1, 1, "the pod's name"),
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd.Context(), a, args[0]) },
	}
	flags := command.Flags()
	o.flags(flags)
	flags.StringVarP(&o.namespace, "namespace", "n", "", "the pod's namespace; left out, that of the file's context")
	flags.StringVarP(&o.output, "output", "o", "table", "table or json")
	return command
}

func (o *explainOptions) run(ctx context.Context, a *app, name string) error {
	if err := checkOutput(o.output); err != nil {
		return err
	}
	if faults := validation.NameIsDNSSubdomain(name, false); len(faults) > 0 {
		return program.Usage(fmt.Errorf("%q is no name of a pod: %s", name, faults[0]))
	}
	if faults := validation.ValidateNamespaceName(o.namespace, false); o.namespace != "" && len(faults) > 0 {
		return program.Usage(fmt.Errorf("%q is no name of a namespace: %s", o.namespace, faults[0]))
	}
	reader, err := o.connect(a, "divvy-explain")
	if err != nil {
		return err
	}
	e, err := reader.Pod(ctx, o.namespace, name)
	if errors.Is(err, explanation.ErrNoPod) {
		return fmt.Errorf("%w: `kubectl get pods -n %s` lists what there is", err, o.namespace)
	}
	if err != nil {
		return err
	}
	return a.print(o.output, e, func(w *strings.Builder) { writeExplanation(w, e, time.Now()) })
}

// print writes an answer as JSON, or as people read it.
func (a *app) print(output string, answer any, write func(*strings.Builder)) error {
	var shown strings.Builder
	if output == "json" {
		var document bytes.Buffer
		encoder := json.NewEncoder(&document)
		encoder.SetIndent("", "  ")
		if err := encoder.Encode(answer); err != nil {
			return fmt.Errorf("encode the answer: %w", err)
		}
		shown.Write(text.Escape(document.Bytes()))
	} else {
		write(&shown)
	}
	if _, err := io.WriteString(a.out, shown.String()); err != nil {
		return fmt.Errorf("write the answer: %w", err)
	}
	return nil
}

// checkOutput refuses what no command writes.
func checkOutput(output string) error {
	if output != "table" && output != "json" {
		return program.Usage(fmt.Errorf("output %q: use table or json", output))
	}
	return nil
}
