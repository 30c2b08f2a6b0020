package cluster

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/divvy-gpu/divvy/internal/cli/program"
	"github.com/divvy-gpu/divvy/internal/explanation"
	"github.com/divvy-gpu/divvy/internal/overview"
)

// listOptions are the flags of divvy ls --cluster.
type listOptions struct {
	access
	output, web string
}

func newList(a *app) *cobra.Command {
	var o listOptions
	command := &cobra.Command{
		Use:     "ls --cluster",
		Aliases: []string{"list"},
		Short:   "List the GPUs of a Kubernetes cluster, their shares and the pods that wait",
		Long: `List the nodes of a Kubernetes cluster that have GPUs, what each GPU has, what of it
claims and pods are granted, and the pods that wait for GPUs with the reason. Nothing
is changed. What the GPUs of a node do, divvy node NODE shows.

It shows what your own rights let you list: resource slices, nodes, claims, pods and
events. The ClusterRole divvy-viewer gives all of them. What you may not list is named.

With --web the controller of a namespace is asked instead, through the API server, where
it serves the cluster's web page. It is given the token of your kubeconfig. It shows
nodes if you may list nodes, and the shares and waiting pods of the namespaces whose
pods you may list; who may list the pods of one namespace alone sees that.`,
		Example: `  divvy ls --cluster
  divvy ls --cluster --web divvy-system
  divvy ls --cluster -o json | jq '.waiting[] | .name, .reason'`,
		Args: program.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context(), a) },
	}
	flags := command.Flags()
	flags.Bool("cluster", true, "list a Kubernetes cluster")
	o.flags(flags)
	flags.StringVar(&o.web, "web", "", "ask the web page of the controller in this `NAMESPACE`, which is given your token")
	flags.StringVarP(&o.output, "output", "o", "table", "table or json")
	return command
}

// overview is what the caller's own rights show, or what the controller tells, if it is to be asked.
func (o *listOptions) overview(ctx context.Context, reader explanation.Reader) (*overview.Overview, error) {
	if o.web != "" {
		return askPage(ctx, reader.Client, o.config, o.web)
	}
	return reader.Overview(ctx, "", o.namespace, time.Now())
}

func (o *listOptions) run(ctx context.Context, a *app) error {
	if err := checkOutput(o.output); err != nil {
		return err
	}
	reader, err := o.connect(a, "divvy-ls")
	if err != nil {
		return err
	}
	found, err := o.overview(ctx, reader)
	if err != nil {
		return err
	}
	return a.print(o.output, found, func(w *strings.Builder) { writeOverview(w, found, a.style()) })
}
