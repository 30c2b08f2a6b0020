package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/divvy-gpu/divvy/internal/cli/program"
	"github.com/divvy-gpu/divvy/internal/explanation"
)

// newExplain has what is explained as commands of its own.
func newExplain(a *app) *cobra.Command {
	command := &cobra.Command{
		Use:   "explain",
		Short: "Say why a pod of a Kubernetes cluster waits, or where it is",
		Args:  program.Args(1, -1, "pod and its name"),
		RunE: func(_ *cobra.Command, args []string) error {
			return program.Usage(fmt.Errorf("%q cannot be explained in a cluster: only pods can", args[0]))
		},
	}
	command.AddCommand(newExplainPod(a))
	return command
}

// explainOptions are the flags of divvy explain pod.
type explainOptions struct {
	kubeconfig, namespace, output string
}

func newExplainPod(a *app) *cobra.Command {
	var o explainOptions
	command := &cobra.Command{
		Use:   "pod NAME",
		Short: "Say why a pod waits, or where it is",
		Long: `Say in one line why a pod of a Kubernetes cluster waits and what it waits for, or
where it is and since when. Then its gang: who is there and who is missing; and
its claims, with what they have of which GPU. Nothing is changed.

It needs the rights to read pods, claims and events of the pod's namespace, and
the objects that describe its gang, if there are any.`,
		Example: `  divvy explain pod train-0
  divvy explain pod train-0 -n research -o json`,
		Args: program.Args(1, 1, "the pod's name"),
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd.Context(), a, args[0]) },
	}
	flags := command.Flags()
	flags.StringVar(&o.kubeconfig, "kubeconfig", "", "file with the cluster's address and credentials; left out, $KUBECONFIG or ~/.kube/config, or those of the pod")
	flags.StringVarP(&o.namespace, "namespace", "n", "", "the pod's namespace; left out, that of the file's context")
	flags.StringVarP(&o.output, "output", "o", "table", "table or json")
	return command
}

func (o *explainOptions) run(ctx context.Context, a *app, name string) error {
	if o.output != "table" && o.output != "json" {
		return program.Usage(fmt.Errorf("output %q: use table or json", o.output))
	}
	if faults := validation.NameIsDNSSubdomain(name, false); len(faults) > 0 {
		return program.Usage(fmt.Errorf("%q is no name of a pod: %s", name, faults[0]))
	}
	if faults := validation.ValidateNamespaceName(o.namespace, false); o.namespace != "" && len(faults) > 0 {
		return program.Usage(fmt.Errorf("%q is no name of a namespace: %s", o.namespace, faults[0]))
	}
	reader, err := o.connect(a)
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
	if o.output == "json" {
		encoder := json.NewEncoder(a.out)
		encoder.SetIndent("", "  ")
		if err := encoder.Encode(e); err != nil {
			return fmt.Errorf("write the explanation: %w", err)
		}
		return nil
	}
	var text strings.Builder
	writeExplanation(&text, e, time.Now())
	if _, err := io.WriteString(a.out, text.String()); err != nil {
		return fmt.Errorf("write the explanation: %w", err)
	}
	return nil
}

// connect finds the cluster as kubectl does: people call this command, and not pods.
func (o *explainOptions) connect(a *app) (explanation.Reader, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = o.kubeconfig
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{})
	var r explanation.Reader
	config, err := loader.ClientConfig()
	if err != nil {
		return r, fmt.Errorf("find the cluster: %w; give --kubeconfig", err)
	}
	if o.namespace == "" {
		if o.namespace, _, err = loader.Namespace(); err != nil {
			return r, fmt.Errorf("find the namespace: %w; give --namespace", err)
		}
	}
	limits := connection{qps: 50, burst: 100}
	if r.Client, err = limits.client(config, slog.New(slog.NewTextHandler(a.err, nil)), "divvy-explain"); err != nil {
		return r, err
	}
	if r.Objects, err = dynamic.NewForConfig(config); err != nil {
		return r, fmt.Errorf("connect to the cluster: %w", err)
	}
	return r, nil
}
