package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Addresses, the same in every cluster: each has a network of its own.
const (
	controlAddress = "10.99.0.1"
	serviceAddress = "10.96.0.1" // of the Service "kubernetes"
	server         = "https://" + controlAddress + ":6443"
)

// startControlPlane starts it and waits until it serves.
func (c *Cluster) startControlPlane(ctx context.Context) error {
	if err := c.ip(ctx, fmt.Sprintf(`link set lo up
link add br0 type bridge
addr add %s/16 dev br0
link set br0 up
route add default dev br0
`, controlAddress)); err != nil {
		return err
	}
	if err := c.issueCertificates(); err != nil {
		return err
	}
	etcd, err := c.serve("etcd", "--data-dir="+filepath.Join(c.dir, "etcd"), "--log-level=warn", "--unsafe-no-fsync",
		"--listen-client-urls=http://127.0.0.1:2379", "--advertise-client-urls=http://127.0.0.1:2379",
		"--listen-peer-urls=http://127.0.0.1:2380", "--initial-advertise-peer-urls=http://127.0.0.1:2380",
		"--initial-cluster=default=http://127.0.0.1:2380")
	if err != nil {
		return err
	}
	c.services = append(c.services, etcd)
	if err := c.StartAPIServer(ctx); err != nil {
		return err
	}
	for name, args := range c.followers() {
		service, err := c.serve(name, args...)
		if err != nil {
			return err
		}
		c.services = append(c.services, service)
	}
	return nil
}

// followers are the parts of the control plane that need the API server, with their arguments.
func (c *Cluster) followers() map[string][]string {
	return map[string][]string{"kube-controller-manager": c.managerArgs(), "kube-scheduler": c.schedulerArgs()}
}

func (c *Cluster) issueCertificates() error {
	var err error
	if c.pki, err = newPKI(filepath.Join(c.dir, "pki")); err != nil {
		return err
	}
	names := []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"}
	addresses := []net.IP{net.ParseIP(controlAddress), net.ParseIP(serviceAddress), net.ParseIP("127.0.0.1")}
	if err := c.pki.issue("apiserver", "kube-apiserver", nil, names, addresses); err != nil {
		return err
	}
	if err := c.pki.issue("kubelet-client", ClientName, []string{"system:masters"}, nil, nil); err != nil {
		return err
	}
	for file, user := range map[string]string{"manager": "system:kube-controller-manager", "scheduler": "system:kube-scheduler"} {
		if _, err := c.pki.kubeconfig(file, server, user); err != nil {
			return err
		}
	}
	if err := c.pki.admission("kubelet-client", Webhook+"."+Namespace+".svc"); err != nil {
		return err
	}
	if c.admin, err = c.pki.kubeconfig("admin", server, "admin", "system:masters"); err != nil {
		return err
	}
	return c.connect()
}

func (c *Cluster) apiserverArgs() []string {
	return append([]string{
		"--etcd-servers=http://127.0.0.1:2379", "--bind-address=" + controlAddress, "--advertise-address=" + controlAddress,
		"--secure-port=6443", "--service-cluster-ip-range=10.96.0.0/16", "--allow-privileged=true",
		"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction",
		"--client-ca-file=" + c.pki.file("ca.crt"),
		"--tls-cert-file=" + c.pki.file("apiserver.crt"), "--tls-private-key-file=" + c.pki.file("apiserver.key"),
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + c.pki.file("sa.pub"), "--service-account-signing-key-file=" + c.pki.file("sa.key"),
		"--kubelet-client-certificate=" + c.pki.file("kubelet-client.crt"),
		"--kubelet-client-key=" + c.pki.file("kubelet-client.key"), "--kubelet-preferred-address-types=InternalIP",
		"--admission-control-config-file=" + c.pki.file(admissionFile),
		"--requestheader-client-ca-file=" + c.pki.file("front-proxy-ca.crt"),
		// Services are reached by their pods' addresses: nothing here translates cluster addresses.
		"--enable-aggregator-routing=true",
		"--runtime-config=" + c.options.RuntimeConfig,
	}, c.gates()...)
}

func (c *Cluster) managerArgs() []string {
	config := c.pki.file("manager.conf")
	return append([]string{
		"--kubeconfig=" + config, "--authentication-kubeconfig=" + config, "--authorization-kubeconfig=" + config,
		"--bind-address=127.0.0.1", "--leader-elect=false", "--use-service-account-credentials=true",
		"--service-account-private-key-file=" + c.pki.file("sa.key"), "--root-ca-file=" + c.pki.file("ca.crt"),
		"--cluster-signing-cert-file=" + c.pki.file("ca.crt"), "--cluster-signing-key-file=" + c.pki.file("ca.key"),
		// A node that is gone is noticed within seconds.
		"--node-monitor-period=1s", "--node-monitor-grace-period=20s",
	}, c.gates()...)
}

func (c *Cluster) schedulerArgs() []string {
	config := c.pki.file("scheduler.conf")
	return append([]string{
		"--kubeconfig=" + config, "--authentication-kubeconfig=" + config, "--authorization-kubeconfig=" + config,
		"--bind-address=127.0.0.1", "--leader-elect=false",
	}, c.gates()...)
}

func (c *Cluster) gates() []string {
	if len(c.options.FeatureGates) == 0 {
		return nil
	}
	var gates []string
	for _, name := range slices.Sorted(maps.Keys(c.options.FeatureGates)) {
		gates = append(gates, fmt.Sprintf("%s=%t", name, c.options.FeatureGates[name]))
	}
	return []string{"--feature-gates=" + strings.Join(gates, ",")}
}

// serve starts a part of the control plane.
func (c *Cluster) serve(name string, args ...string) (*process, error) {
	return c.space.run(name, c.logFile(name), controlKinds, nil, c.places.component(name), args...)
}

func (c *Cluster) logFile(name string) string {
	return filepath.Join(c.dir, "log", name+".log")
}

// StartAPIServer starts kube-apiserver and waits until it is ready.
func (c *Cluster) StartAPIServer(ctx context.Context) error {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if c.apiserver != nil && c.apiserver.alive() == nil {
		return errors.New("kube-apiserver runs already")
	}
	var err error
	if c.apiserver, err = c.serve("kube-apiserver", c.apiserverArgs()...); err != nil {
		return err
	}
	err = until(ctx, "kube-apiserver is ready", func(ctx context.Context) error {
		if err := c.apiserver.alive(); err != nil {
			return err
		}
		return c.client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
	})
	c.log("kube-apiserver is ready")
	return err
}

// StopAPIServer ends kube-apiserver at once. Everything else goes on.
func (c *Cluster) StopAPIServer(ctx context.Context) error {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return c.apiserver.signal(ctx, syscall.SIGKILL)
}

// healthy is nil while all of the control plane runs.
func (c *Cluster) healthy() error {
	for _, service := range append([]*process{c.apiserver}, c.services...) {
		if err := service.alive(); err != nil {
			return err
		}
	}
	return nil
}

// usable waits until pods can be made: until their service account is there.
func (c *Cluster) usable(ctx context.Context) error {
	return until(ctx, "the default service account exists", func(ctx context.Context) error {
		if err := c.healthy(); err != nil {
			return err
		}
		_, err := c.client.CoreV1().ServiceAccounts(corev1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
}

// ip runs lines of ip(8) in the control plane's network.
func (c *Cluster) ip(ctx context.Context, lines string) error {
	return c.space.batch(ctx, lines, "ip", "-batch", "-")
}

// batch runs a program in the space's network with lines as its input.
func (s *space) batch(ctx context.Context, lines, program string, args ...string) error {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Stdin = strings.NewReader(lines)
	_, err := s.output(cmd, []string{"net"})
	return err
}

// SchedulerKubeconfig is the file by which the cluster's scheduler reaches the API server.
func (c *Cluster) SchedulerKubeconfig() string { return c.pki.file("scheduler.conf") }

// Authority is the file with the certificate of the cluster's authority.
func (c *Cluster) Authority() string { return c.pki.file("ca.crt") }

// ConfigureScheduler starts the cluster's scheduler anew, as an administrator does who adds --config to its manifest.
func (c *Cluster) ConfigureScheduler(ctx context.Context, file string) error {
	return c.replace(ctx, "kube-scheduler", append(c.schedulerArgs(), "--config="+file))
}
