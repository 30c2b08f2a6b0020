package cluster

import (
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
)

// connection is how a command reaches its Kubernetes cluster.
type connection struct {
	kubeconfig string
	// qps bounds requests per second, burst those at once.
	qps   float32
	burst int
}

func (c *connection) flags(flags *pflag.FlagSet) {
	flags.StringVar(&c.kubeconfig, "kubeconfig", "", "file with the cluster's address and credentials; left out, those of the pod")
}

// connect returns a client. The Kubernetes libraries then log to the command's log.
func (c *connection) connect(log *slog.Logger, userAgent string) (kubernetes.Interface, error) {
	config, err := c.find()
	if err != nil {
		return nil, err
	}
	return c.client(config, log, userAgent)
}

// objects returns a client for kinds that Kubernetes does not have itself.
func (c *connection) objects(log *slog.Logger, userAgent string) (dynamic.Interface, error) {
	config, err := c.find()
	if err != nil {
		return nil, err
	}
	c.tune(config, log, userAgent)
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("connect to the cluster: %w", err)
	}
	return client, nil
}

func (c *connection) find() (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", c.kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("find the cluster: %w; outside of a pod, give --kubeconfig", err)
	}
	return config, nil
}

// tune says how much a client may ask, and in whose name.
func (c *connection) tune(config *rest.Config, log *slog.Logger, userAgent string) {
	config.QPS, config.Burst, config.UserAgent = c.qps, c.burst, userAgent
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &busy{next: next, log: log, now: time.Now} })
}

func (c *connection) client(config *rest.Config, log *slog.Logger, userAgent string) (kubernetes.Interface, error) {
	klog.SetSlogLogger(log)
	c.tune(config, log, userAgent)
	// In the binary form a large cluster's objects are smaller, and reading them leaves less to collect.
	config.ContentType, config.AcceptContentTypes = runtime.ContentTypeProtobuf, runtime.ContentTypeProtobuf+","+runtime.ContentTypeJSON
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("connect to the cluster: %w", err)
	}
	return client, nil
}
