package cluster

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/cli/program"
	"github.com/divvy-gpu/divvy/internal/explanation"
)

// explainQueueOptions are the flags of divvy explain queue.
type explainQueueOptions struct {
	access
	pods, output string
}

func newExplainQueue(a *app) *cobra.Command {
	var o explainQueueOptions
	command := &cobra.Command{
		Use:   "queue NAME",
		Short: "Say where a queue stands, who waits in it and who ends for others",
		Long: `Say where each amount of a queue comes from: what is guaranteed to it, what it is
entitled to and why, who lends to it and who borrows from it. Then who waits in it,
in the order in which they are tried, each with the scheduler's reason, which also
says who ends for it and until when; which of its own pods are suspended for others,
for how long and what they wait for; and which end for others.

It needs the rights to read queues and pods of all namespaces, or with -n those of
one, and of suspended pods those to read claims.`,
		Example: `  divvy explain queue vision
  divvy explain queue vision -n vision -o json`,
		Args: program.Args(1, 1, "the queue's name"),
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd.Context(), a, args[0]) },
	}
	flags := command.Flags()
	o.flags(flags)
	flags.StringVarP(&o.pods, "namespace", "n", "", "read only the pods of this namespace; left out, of all")
	flags.StringVarP(&o.output, "output", "o", "table", "table or json")
	return command
}

func (o *explainQueueOptions) run(ctx context.Context, a *app, name string) error {
	if err := checkOutput(o.output); err != nil {
		return err
	}
	if !v1alpha1.ValidQueueName(name) {
		return program.Usage(fmt.Errorf("%q is no name of a queue: it has at most 63 lower-case letters, digits, '-' and '.'", name))
	}
	if faults := validation.ValidateNamespaceName(o.pods, false); o.pods != "" && len(faults) > 0 {
		return program.Usage(fmt.Errorf("%q is no name of a namespace: %s", o.pods, faults[0]))
	}
	reader, err := o.connect(a, "divvy-explain")
	if err != nil {
		return err
	}
	e, err := reader.Queue(ctx, name, o.pods)
	if errors.Is(err, explanation.ErrNoQueue) {
		return fmt.Errorf("%w: `divvy queues` lists what there is", err)
	}
	if err != nil {
		return err
	}
	return a.print(o.output, e, func(w *strings.Builder) { writeQueue(w, e, time.Now()) })
}

// mostWaiters bounds how many that wait people are shown; JSON has all.
const mostWaiters = 20

// writeQueue writes what people read.
func writeQueue(w *strings.Builder, e *explanation.QueueExplanation, now time.Time) {
	head := "queue " + e.Name
	if len(e.Path) > 0 {
		head += " of " + strings.Join(e.Path, " → ")
	}
	fmt.Fprintf(w, "%s: %d running, %d waiting\n", head, e.Running, e.Waiting)
	lines := [][2]string{
		{"namespaces", strings.Join(e.Namespaces, ", ")}, {"grace", inherited(e, e.Grace)}, {"minimum run time", inherited(e, e.MinimumRunTime)},
	}
	var parts []string
	for i := range e.Parts {
		parts = append(parts, fmt.Sprintf("%s (%d running, %d waiting)", e.Parts[i].Name, e.Parts[i].Running, e.Parts[i].Waiting))
	}
	lines = append(lines, [2]string{"parts", strings.Join(parts, ", ")})
	for _, c := range e.Conditions {
		lines = append(lines, [2]string{"condition", c.Type + ": " + c.Message}, [2]string{"  to do", c.Next})
	}
	if !e.Seen {
		lines = append(lines, [2]string{"not seen", "the scheduler has not looked at this queue since it was changed: what follows may be old"})
	}
	for _, line := range lines {
		if line[1] != "" {
			fmt.Fprintf(w, "  %-17s %s\n", line[0]+":", line[1])
		}
	}
	for _, amounts := range e.Amounts {
		writeAmounts(w, amounts)
	}
	writeLine(w, e.Line, now)
	writeSleepers(w, e.Sleeping, now)
	if len(e.Ending) > 0 {
		rows := [][]string{{"ENDS FOR OTHERS", "NAMESPACE", "UNTIL", "REASON"}}
		for _, p := range e.Ending {
			rows = append(rows, []string{p.Pod, p.Namespace, p.Until.UTC().Format(time.RFC3339), p.Reason})
		}
		w.WriteString("\n")
		writeAligned(w, rows)
	}
}

// inherited is a time, and who says so if it is not the queue itself.
func inherited(e *explanation.QueueExplanation, t explanation.Inherited) string {
	text := time.Duration(t.Time).String()
	switch t.From {
	case e.Name:
		return text
	case "":
		return text + ", as no queue says"
	}
	return text + ", as queue " + t.From + " says"
}

func writeAmounts(w *strings.Builder, a explanation.AmountsOf) {
	of := a.Model
	if of == "" {
		of = "all models"
	}
	fmt.Fprintf(w, "\n%s of %s\n", a.Unit, of)
	var rows [][]string
	for _, line := range a.Lines {
		rows = append(rows, []string{"  " + line.What, line.Amount, line.From})
	}
	writeAligned(w, rows)
}

func writeSleepers(w *strings.Builder, all []explanation.Sleeper, now time.Time) {
	if len(all) == 0 {
		return
	}
	rows := [][]string{{"SUSPENDED", "NAMESPACE", "FOR", "WAITS FOR"}}
	for _, p := range all[:min(len(all), mostWaiters)] {
		rows = append(rows, []string{p.Pod, p.Namespace, duration.HumanDuration(now.Sub(p.Since)), p.Reason})
	}
	w.WriteString("\n")
	writeAligned(w, rows)
	if more := len(all) - mostWaiters; more > 0 {
		fmt.Fprintf(w, "and %d more\n", more)
	}
}

func writeLine(w *strings.Builder, line []explanation.Waiter, now time.Time) {
	if len(line) == 0 {
		return
	}
	rows := [][]string{{"WAITS", "NAMESPACE", "QUOTA", "PRIORITY", "FOR", "REASON"}}
	for _, p := range line[:min(len(line), mostWaiters)] {
		name := p.Name
		if p.Pods > 0 {
			name = fmt.Sprintf("gang %s (%d)", p.Name, p.Pods)
		}
		rows = append(rows, []string{name, p.Namespace, string(p.Quota), strconv.Itoa(int(p.Priority)), duration.HumanDuration(now.Sub(p.Since)), p.Reason})
	}
	w.WriteString("\n")
	writeAligned(w, rows)
	if more := len(line) - mostWaiters; more > 0 {
		fmt.Fprintf(w, "and %d more\n", more)
	}
}
