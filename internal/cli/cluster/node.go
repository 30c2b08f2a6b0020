package cluster

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/validation"

	"github.com/divvy-gpu/divvy/internal/cli/program"
	"github.com/divvy-gpu/divvy/internal/explanation"
)

// nodeOptions are the flags of divvy node.
type nodeOptions struct {
	access
	divvys string
	output string
}

// divvysFlag adds the flag for the namespace of Divvy's own pods.
func divvysFlag(command *cobra.Command, divvys *string) {
	command.Flags().StringVarP(divvys, "namespace", "n", "divvy-system", "where Divvy is installed")
}

func newNode(a *app) *cobra.Command {
	var o nodeOptions
	command := &cobra.Command{
		Use:   "node NODE",
		Short: "Show what each GPU of a node of a Kubernetes cluster has, gives and does",
		Long: `Show the GPUs of a node of a Kubernetes cluster: what each has, what of it claims
and pods are granted, and what of that is in use. kubectl describe node shows none
of this where pods get GPUs by claims. Nothing is changed.

GRANTED is the sum of what shares may have, USED what all processes have, UTIL the
part of the driver's last window in which anything executed. A GPU of which more was
granted than it has is marked with "!". Use is told by the node's agent, which the
API server is asked to ask; where that is not allowed or not possible, a line says
what is missing, and the rest is shown.

It needs the rights to list resource slices, nodes, claims and pods, which the
ClusterRole divvy-viewer gives, and for use to get pods/proxy in Divvy's namespace.`,
		Example: `  divvy node gpu-1
  divvy node gpu-1 -o json | jq '.nodes[].gpus[].shares'`,
		Args: program.Args(1, 1, "the node's name"),
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd.Context(), a, args[0]) },
	}
	o.flags(command.Flags())
	divvysFlag(command, &o.divvys)
	command.Flags().StringVarP(&o.output, "output", "o", "table", "table or json")
	return command
}

func (o *nodeOptions) run(ctx context.Context, a *app, name string) error {
	if err := checkOutput(o.output); err != nil {
		return err
	}
	if faults := validation.NameIsDNSSubdomain(name, false); len(faults) > 0 {
		return program.Usage(fmt.Errorf("%.100q is no name of a node: %s", name, faults[0]))
	}
	if err := checkDivvys(o.divvys); err != nil {
		return err
	}
	reader, err := o.connect(a, "divvy-node")
	if err != nil {
		return err
	}
	found, err := reader.Overview(ctx, name, o.namespace, time.Now())
	if errors.Is(err, explanation.ErrNoNode) {
		return fmt.Errorf("%w: `kubectl get nodes` lists what there is", err)
	}
	if err != nil {
		return err
	}
	if err := reader.Use(ctx, &found.Nodes[0], o.divvys); err != nil {
		found.Hidden = joined(found.Hidden, "use: "+err.Error())
	}
	return a.print(o.output, found, func(w *strings.Builder) { writeOverview(w, found, a.style()) })
}

// joined adds to what is not shown.
func joined(hidden, more string) string {
	if hidden == "" {
		return more
	}
	return hidden + "; " + more
}

// checkDivvys refuses what cannot be a namespace.
func checkDivvys(namespace string) error {
	if faults := validation.ValidateNamespaceName(namespace, false); len(faults) > 0 {
		return program.Usage(fmt.Errorf("%.100q is no name of a namespace: %s", namespace, faults[0]))
	}
	return nil
}
