package cluster

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// DefaultVersion is the Kubernetes version that clusters have unless asked for
// another.
const DefaultVersion = "v1.36.3"

// Options say what cluster is wanted.
type Options struct {
	// Version of Kubernetes: one that `make e2e-deps` built. Default: DefaultVersion.
	Version string
	// Containerd is the line of containerd that nodes have: "1.7", or empty for the newest.
	Containerd string
	// Nodes, at least one unless only the API is of interest.
	Nodes []Node
	// FeatureGates of all components, such as "DRAConsumableCapacity": true.
	FeatureGates map[string]bool
	// RuntimeConfig turns API versions on, such as "resource.k8s.io/v1beta2=true".
	RuntimeConfig string
	// Images are image archives that every node has from the start.
	Images []string
	// Log is told what happens; nil: nobody is.
	Log func(format string, args ...any)
}

// Cluster is a running cluster.
type Cluster struct {
	Nodes []*Machine

	options Options
	dir     string
	group   string
	groups  []hierarchy
	places  places
	pki     *pki
	admin   string // kubeconfig
	config  *rest.Config
	client  *kubernetes.Clientset
	space   *space
	begun   time.Time

	supervisor *exec.Cmd
	held       io.Closer // the supervisor ends the cluster when it closes

	mutex     sync.Mutex
	apiserver *process
	services  []*process // the rest of the control plane
}

// Start starts a cluster and waits until its nodes are ready and pods can be
// made. On an error nothing is left of it. Stop ends it; so does the end of this
// process, in whatever way.
func Start(ctx context.Context, options Options) (*Cluster, error) {
	if options.Version == "" {
		options.Version = DefaultVersion
	}
	if options.Log == nil {
		options.Log = func(string, ...any) {}
	}
	if err := privileged(); err != nil {
		return nil, err
	}
	where, err := find(options.Version, options.Containerd)
	if err != nil {
		return nil, err
	}
	c := &Cluster{options: options, places: where, begun: time.Now()}
	if err := c.begin(ctx); err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	return c, nil
}

func (c *Cluster) begin(ctx context.Context) error {
	if err := c.supervise(); err != nil {
		return fmt.Errorf("start supervisor: %w", err)
	}
	if err := c.startControlPlane(ctx); err != nil {
		return err
	}
	return c.startNodes(ctx)
}

// supervise makes the directory and starts who will remove it.
func (c *Cluster) supervise() error {
	var err error
	if c.groups, err = hierarchies(); err != nil {
		return err
	}
	if err := os.MkdirAll(c.places.run, 0o755); err != nil {
		return err
	}
	if err := sweep(c.places.run, c.groups); err != nil {
		return err
	}
	if c.dir, err = os.MkdirTemp(c.places.run, "c"); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(c.dir, "log"), 0o755); err != nil {
		return err
	}
	c.group = groupName(c.dir)
	if c.supervisor, err = stageCommand("supervisor"); err != nil {
		return err
	}
	c.supervisor.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	o := order{Dir: c.dir, Group: c.group, Groups: c.groups}
	held, said, err := startStage(c.supervisor, o, (*exec.Cmd).Start)
	if err != nil {
		c.supervisor = nil
		return errors.Join(err, os.RemoveAll(c.dir))
	}
	c.held = held
	c.space, err = openSpace(said.PID, controlKinds)
	return err
}

func groupName(dir string) string { return "divvy-e2e-" + filepath.Base(dir) }

// sweep removes what clusters left whose supervisor was killed too: nobody
// locks their directories any more.
func sweep(run string, groups []hierarchy) error {
	locks, err := filepath.Glob(filepath.Join(run, "*", lockName))
	if err != nil {
		return err
	}
	for _, lock := range locks {
		dir := filepath.Dir(lock)
		held, err := abandoned(dir)
		if err != nil {
			continue
		}
		err = clean(order{Dir: dir, Group: groupName(dir), Groups: groups})
		held.Close()
		if err != nil {
			return fmt.Errorf("remove what an earlier cluster left: %w", err)
		}
	}
	return nil
}

// Stop ends the cluster and returns once nothing is left of it.
func (c *Cluster) Stop() error {
	if c.supervisor == nil {
		return nil
	}
	c.log("stopping")
	err := c.held.Close()
	if waited := c.supervisor.Wait(); waited != nil {
		err = errors.Join(err, fmt.Errorf("remove cluster: %w", waited))
	}
	c.supervisor = nil
	if c.space != nil {
		c.space.close()
	}
	for _, n := range c.Nodes {
		n.reaped()
	}
	c.log("stopped")
	return err
}

func (c *Cluster) log(format string, args ...any) {
	c.options.Log("cluster %5.1fs "+format, append([]any{time.Since(c.begun).Seconds()}, args...)...)
}

// Dir is the cluster's directory: log/ has what its programs print. It ends
// with the cluster.
func (c *Cluster) Dir() string { return c.dir }

// Client is an administrator's.
func (c *Cluster) Client() kubernetes.Interface { return c.client }

// Config connects as an administrator, from outside of the cluster's network.
func (c *Cluster) Config() *rest.Config { return rest.CopyConfig(c.config) }

// ClientName is whom the API server's client certificates name, as with kubeadm.
const ClientName = "kube-apiserver-kubelet-client"

// ClientCertificate is what the API server shows to webhooks that ask for a certificate. The authority that Config
// trusts has signed it.
func (c *Cluster) ClientCertificate() (tls.Certificate, error) {
	return tls.LoadX509KeyPair(c.pki.file("kubelet-client.crt"), c.pki.file("kubelet-client.key"))
}

// Kubeconfig is the administrator's file, for programs that Command starts.
func (c *Cluster) Kubeconfig() string { return c.admin }

// Dial connects to an address in the cluster's network: of the apiserver, a node
// or a pod. The host must be numeric.
func (c *Cluster) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	return c.space.dial(ctx, network, address)
}

// connect makes the administrator's client.
func (c *Cluster) connect() error {
	config, err := clientcmd.BuildConfigFromFlags("", c.admin)
	if err != nil {
		return err
	}
	// From files they would be read again for ever, also when the cluster is gone.
	if err := rest.LoadTLSFiles(config); err != nil {
		return err
	}
	config.CAFile, config.CertFile, config.KeyFile = "", "", ""
	config.Dial = c.Dial
	config.QPS, config.Burst = 500, 1000
	c.config = config
	c.client, err = kubernetes.NewForConfig(config)
	return err
}

// Command prepares a program of the host that runs in the cluster's network,
// with the administrator's kubeconfig and a place for Helm's files. Run and Start of the command itself would
// run it outside: use Run or Output of the cluster.
func (c *Cluster) Command(ctx context.Context, program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+c.admin)
	for _, kind := range []string{"CACHE", "CONFIG", "DATA"} {
		cmd.Env = append(cmd.Env, "HELM_"+kind+"_HOME="+filepath.Join(c.dir, "helm", strings.ToLower(kind)))
	}
	return cmd
}

// Output runs a prepared command and returns what it prints. An error has what
// it said besides.
func (c *Cluster) Output(cmd *exec.Cmd) (string, error) {
	return c.space.output(cmd, []string{"net"})
}

// Kubectl runs kubectl as the administrator.
func (c *Cluster) Kubectl(ctx context.Context, args ...string) (string, error) {
	return c.Output(c.Command(ctx, c.places.component("kubectl"), args...))
}

// Helm runs helm as the administrator.
func (c *Cluster) Helm(ctx context.Context, args ...string) (string, error) {
	return c.Output(c.Command(ctx, c.places.helm, args...))
}

// Programs are the folders of kubectl, helm and divvy, for commands that name them.
func (c *Cluster) Programs() []string {
	return []string{c.places.components, filepath.Dir(c.places.helm), filepath.Join(c.places.prefix, "bin")}
}

// Apply applies manifests: files, or folders with all that is in them.
func (c *Cluster) Apply(ctx context.Context, paths ...string) error {
	for _, path := range paths {
		if _, err := c.Kubectl(ctx, "apply", "-f", path); err != nil {
			return err
		}
	}
	return nil
}

// ApplyText applies a manifest that is not in a file.
func (c *Cluster) ApplyText(ctx context.Context, manifest string) error {
	cmd := c.Command(ctx, c.places.component("kubectl"), "apply", "-f", "-")
	cmd.Stdin = strings.NewReader(manifest)
	_, err := c.Output(cmd)
	return err
}

// LoadImage gives an image archive to every node.
func (c *Cluster) LoadImage(ctx context.Context, archive string) error {
	for _, n := range c.Nodes {
		if err := n.LoadImage(ctx, archive); err != nil {
			return err
		}
	}
	return nil
}

// Available says what is missing for clusters here, nil if nothing is.
func Available(version string) error {
	if version == "" {
		version = DefaultVersion
	}
	if err := privileged(); err != nil {
		return err
	}
	_, err := find(version, "")
	return err
}

func privileged() error {
	if unix.Geteuid() != 0 {
		return errors.New("clusters need root: run this with sudo")
	}
	_, err := hierarchies()
	return err
}
