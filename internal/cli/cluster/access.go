package cluster

import (
	"fmt"
	"log/slog"

	"github.com/spf13/pflag"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/divvy-gpu/divvy/internal/explanation"
)

// access is how people reach their cluster, as kubectl does: they call these commands, and not pods.
type access struct {
	kubeconfig, namespace string
	// config is how the cluster is reached, once it was found.
	config *rest.Config
}

func (o *access) flags(flags *pflag.FlagSet) {
	flags.StringVar(&o.kubeconfig, "kubeconfig", "", "file with the cluster's address and credentials; left out, $KUBECONFIG or ~/.kube/config, or those of the pod")
}

// connect finds the cluster, and the namespace of its context where none is given.
func (o *access) connect(a *app, userAgent string) (explanation.Reader, error) {
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
	o.config = config
	limits := connection{qps: 50, burst: 100}
	if r.Client, err = limits.client(config, slog.New(slog.NewTextHandler(a.err, nil)), userAgent); err != nil {
		return r, err
	}
	if r.Objects, err = dynamic.NewForConfig(config); err != nil {
		return r, fmt.Errorf("connect to the cluster: %w", err)
	}
	return r, nil
}
