// Package plane starts the control plane of a Kubernetes cluster that has no nodes of its own: etcd, the API server and,
// where they are wanted, the controller manager and the scheduler. The programs are those of the tests on real clusters.
// They need no root, listen on the loopback interface alone, and keep their state in a folder that ends with them.
//
// Nothing watches over nodes here, so that nodes which are only objects stay ready. Whoever has the token may do
// everything.
package plane

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"sync"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/divvy-gpu/divvy/test/e2e/cluster"
)

// Programs of the control plane, by the names that Plane's methods take.
const (
	Etcd      = "etcd"
	APIServer = "kube-apiserver"
	Manager   = "kube-controller-manager"
	Scheduler = "kube-scheduler"
)

// User is whom the plane's own clients and programs are to the API server, one who may do everything.
const User = "plane"

// clientRate is what clients are allowed in requests per second: more than this machine can serve, so that it is the
// programs that are measured and not their bounds.
const clientRate = 5000

// Options say what is wanted.
type Options struct {
	// Components is the folder of the programs; [Components] finds it.
	Components string
	// Authorization is the API server's --authorization-mode; empty lets everybody do everything.
	Authorization string
	// APIServer are more arguments of the API server.
	APIServer []string
	// Log is told what happens; nil: nobody is.
	Log func(format string, args ...any)
}

// Plane is a running control plane.
type Plane struct {
	options    Options
	dir        string
	token      string
	kubeconfig string
	config     *rest.Config
	client     *kubernetes.Clientset
	parent     *parent

	mutex     sync.Mutex
	processes map[string]*Process
}

// Components is the folder of the Kubernetes programs that `make e2e-deps` built in a checkout. The error says what to
// do where they are not there.
func Components(root string) (string, error) {
	return built(root, cluster.DefaultVersion, "v1.36")
}

// ComponentsOf is [Components] of another minor version, such as v1.35.
func ComponentsOf(root, minor string) (string, error) {
	return built(root, minor+".*", minor)
}

// built finds the programs of a version that was built.
func built(root, version, minor string) (string, error) {
	found, err := filepath.Glob(filepath.Join(root, ".cache", "e2e", "kubernetes-"+version, APIServer))
	if err == nil && len(found) == 0 {
		err = fs.ErrNotExist
	}
	if err == nil {
		found[0], err = filepath.Abs(filepath.Dir(found[len(found)-1]))
	}
	if err != nil {
		return "", fmt.Errorf("find Kubernetes' programs (run `hack/e2e-deps.sh --kubernetes %s` first): %w", minor, err)
	}
	return found[0], nil
}

// Start starts etcd and the API server and waits until it is ready. On an error nothing is left. Stop ends what was
// started; the programs end also with this process, in whatever way it ends.
func Start(ctx context.Context, options Options) (*Plane, error) {
	if options.Log == nil {
		options.Log = func(string, ...any) {}
	}
	dir, err := os.MkdirTemp("", "divvy-plane-")
	if err != nil {
		return nil, fmt.Errorf("make a folder for the control plane: %w", err)
	}
	p := &Plane{options: options, dir: dir, parent: newParent(), processes: map[string]*Process{}}
	if err := p.begin(ctx); err != nil {
		return nil, errors.Join(err, p.Stop())
	}
	return p, nil
}

func (p *Plane) begin(ctx context.Context) error {
	if err := p.writeCredentials(); err != nil {
		return fmt.Errorf("write the control plane's credentials: %w", err)
	}
	etcd, err := p.Run(ctx, p.etcd())
	if err != nil {
		return err
	}
	server, err := p.Run(ctx, p.apiserver(etcd.URL()))
	if err != nil {
		return err
	}
	return p.connect("https://" + address(server.ports[0]))
}

// StartManager starts the controller manager with the controllers that are named.
func (p *Plane) StartManager(ctx context.Context, controllers string) error {
	_, err := p.Run(ctx, p.manager(controllers, "--kube-api-qps="+strconv.Itoa(clientRate), "--kube-api-burst="+strconv.Itoa(2*clientRate)))
	return err
}

// StartSlowManager is StartManager with the bounds of requests that a cluster's controller manager has by default.
func (p *Plane) StartSlowManager(ctx context.Context, controllers string) error {
	_, err := p.Run(ctx, p.manager(controllers))
	return err
}

// StartScheduler starts the scheduler that comes with Kubernetes, with its own defaults but for its client's rate, and
// waits until it knows the cluster.
func (p *Plane) StartScheduler(ctx context.Context) error {
	config := fmt.Sprintf(`apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {leaderElect: false}
clientConnection: {kubeconfig: %q, qps: %d, burst: %d, contentType: application/vnd.kubernetes.protobuf}
`, p.kubeconfig, clientRate, 2*clientRate)
	if err := os.WriteFile(p.file("scheduler.yaml"), []byte(config), 0o600); err != nil {
		return fmt.Errorf("write the scheduler's configuration: %w", err)
	}
	_, err := p.Run(ctx, p.scheduler())
	return err
}

// Stop ends everything and removes what it kept. It may be called again.
func (p *Plane) Stop() error {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if p.parent == nil {
		return nil
	}
	for _, process := range p.processes {
		process.Kill()
	}
	p.parent.end()
	p.parent = nil
	if err := os.RemoveAll(p.dir); err != nil {
		return fmt.Errorf("remove the control plane's folder: %w", err)
	}
	return nil
}

// Client may do everything, as often as it likes.
func (p *Plane) Client() kubernetes.Interface { return p.client }

// Config connects as Client does.
func (p *Plane) Config() *rest.Config { return rest.CopyConfig(p.config) }

// Kubeconfig is the file for programs that connect so too.
func (p *Plane) Kubeconfig() string { return p.kubeconfig }

// Dir is the folder of the plane's files, which ends with it.
func (p *Plane) Dir() string { return p.dir }

// Process is a program that was started, nil if it was not.
func (p *Plane) Process(name string) *Process {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	return p.processes[name]
}

// Alive is nil while all that was started runs.
func (p *Plane) Alive() error {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	for _, process := range p.processes {
		if err := process.Alive(); err != nil {
			return err
		}
	}
	return nil
}

func (p *Plane) file(name string) string { return filepath.Join(p.dir, name) }

func (p *Plane) component(name string) string { return filepath.Join(p.options.Components, name) }

// writeCredentials writes the token by which everybody connects, and the key that signs service accounts' tokens,
// without which the API server does not start.
func (p *Plane) writeCredentials() error {
	p.token = rand.Text()
	line := p.token + "," + User + ",plane,system:masters\n"
	if err := os.WriteFile(p.file("tokens.csv"), []byte(line), 0o600); err != nil {
		return err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	return os.WriteFile(p.file("accounts.key"), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), 0o600)
}

// connect makes the client and the file by which other programs connect.
func (p *Plane) connect(server string) error {
	p.config = &rest.Config{
		Host: server, BearerToken: p.token, TLSClientConfig: rest.TLSClientConfig{Insecure: true},
		QPS: -1,
		ContentConfig: rest.ContentConfig{
			ContentType: "application/vnd.kubernetes.protobuf", AcceptContentTypes: "application/vnd.kubernetes.protobuf,application/json",
		},
	}
	file := api.NewConfig()
	file.Clusters["plane"] = &api.Cluster{Server: server, InsecureSkipTLSVerify: true}
	file.AuthInfos["plane"] = &api.AuthInfo{Token: p.token}
	file.Contexts["plane"] = &api.Context{Cluster: "plane", AuthInfo: "plane"}
	file.CurrentContext = "plane"
	p.kubeconfig = p.file("kubeconfig")
	if err := clientcmd.WriteToFile(*file, p.kubeconfig); err != nil {
		return fmt.Errorf("write the control plane's credentials: %w", err)
	}
	var err error
	if p.client, err = kubernetes.NewForConfig(p.config); err != nil {
		return fmt.Errorf("make the control plane's client: %w", err)
	}
	return nil
}
