package cluster

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"text/template"
)

// Node says what node is wanted.
type Node struct {
	Name string
	// Machine of simulated GPUs: one of `divvy simgpu machines`, or a file's path.
	// Empty: the node has none.
	Machine string
	// MachineFlags are given to `divvy simgpu start`, such as "--memory", "16Gi".
	MachineFlags []string
	// Devices are device nodes that it has beside the host's, below /dev. They are like /dev/null.
	Devices []string
	// NRI turns containerd's plugin interface on.
	NRI bool
	// Labels of the node from its registration on.
	Labels map[string]string
}

// Machine is a running node. Its processes see a network, a pid namespace, a
// root and cgroups of their own, and the standard paths.
type Machine struct {
	Node

	cluster *Cluster
	address string
	pods    string // its pods' network
	space   *space
	parent  *exec.Cmd     // of its first process
	ended   chan struct{} // closed once that one is reaped

	containerd, kubelet *process
}

//go:embed config
var configs embed.FS

// pauseImage is what a pod's sandbox runs.
const pauseImage = "divvy.test/pause:1"

// startNodes starts all nodes at once, and waits until they and the API can
// take pods.
func (c *Cluster) startNodes(ctx context.Context) error {
	for i, wanted := range c.options.Nodes {
		n := &Machine{
			Node: wanted, cluster: c,
			address: fmt.Sprintf("10.99.0.%d", 11+i),
			pods:    fmt.Sprintf("10.244.%d.0/24", 1+i),
		}
		if err := n.boot(ctx); err != nil {
			return fmt.Errorf("start node %s: %w", wanted.Name, err)
		}
		c.Nodes = append(c.Nodes, n)
	}
	for _, n := range c.Nodes {
		for _, other := range c.Nodes {
			if other == n {
				continue
			}
			if err := n.space.batch(ctx, "route add "+other.pods+" via "+other.address+"\n", "ip", "-batch", "-"); err != nil {
				return err
			}
		}
	}
	steps := []func(context.Context, *Machine) error{
		func(ctx context.Context, n *Machine) error { return n.startMachine(ctx) },
		func(ctx context.Context, n *Machine) error { return n.StartContainerd(ctx) },
		func(ctx context.Context, n *Machine) error { return n.loadImages(ctx) },
		func(ctx context.Context, n *Machine) error { return n.StartKubelet(ctx) },
	}
	for _, step := range steps {
		if err := c.each(ctx, step); err != nil {
			return err
		}
	}
	if err := c.usable(ctx); err != nil {
		return err
	}
	c.log("pods can be made")
	return c.each(ctx, func(ctx context.Context, n *Machine) error { return n.WaitReady(ctx) })
}

// each does something on all nodes at once.
func (c *Cluster) each(ctx context.Context, do func(context.Context, *Machine) error) error {
	results := make(chan error, len(c.Nodes))
	for _, n := range c.Nodes {
		go func() {
			err := do(ctx, n)
			if err != nil {
				err = fmt.Errorf("node %s: %w", n.Name, err)
			}
			results <- err
		}()
	}
	var faults []error
	for range c.Nodes {
		faults = append(faults, <-results)
	}
	return errors.Join(faults...)
}

// boot makes the node's namespaces, root, network and files.
func (n *Machine) boot(ctx context.Context) error {
	c := n.cluster
	if err := os.MkdirAll(n.file(""), 0o755); err != nil {
		return err
	}
	var err error
	if n.parent, err = stageCommand("parent"); err != nil {
		return err
	}
	o := order{Dir: c.dir, Group: filepath.Join(c.group, n.Name), Groups: c.groups, Root: &rootSpec{
		Dir: n.file("root"), ReadOnly: []string{c.places.root}, Shared: []string{c.dir}, Prefix: c.places.prefix, Hostname: n.Name, Devices: n.Devices,
	}}
	// The pipe to the node's first process is never closed: the cluster's ends it.
	if _, _, err = startStage(n.parent, o, func(cmd *exec.Cmd) error {
		return c.space.start(cmd, []string{"pid"})
	}); err != nil {
		return err
	}
	n.ended = make(chan struct{})
	go func() {
		// The kernel does not end a pid namespace before the last process in it is reaped.
		_ = n.parent.Wait()
		close(n.ended)
	}()
	first, err := childOf(n.parent.Process.Pid)
	if err != nil {
		return err
	}
	if n.space, err = openSpace(first, nodeKinds); err != nil {
		return err
	}
	n.space.group, n.space.groups = o.Group, o.Groups
	if err := n.connect(ctx); err != nil {
		return err
	}
	return n.configure()
}

// connect joins the node to the cluster's network. Its bridge of pods comes with
// the first pod. Pods reach the API by the address of the Service "kubernetes".
func (n *Machine) connect(ctx context.Context) error {
	port := "ve" + n.address[strings.LastIndexByte(n.address, '.')+1:]
	if err := n.cluster.ip(ctx, fmt.Sprintf(`link add %[1]s type veth peer name eth0 netns %[2]d
link set %[1]s master br0
link set %[1]s up
route add %[3]s via %[4]s
`, port, n.space.pid, n.pods, n.address)); err != nil {
		return err
	}
	if err := n.space.batch(ctx, fmt.Sprintf(`link set lo up
addr add %s/16 dev eth0
link set eth0 up
route add default via %s
`, n.address, controlAddress), "ip", "-batch", "-"); err != nil {
		return err
	}
	if _, err := n.Exec(ctx, "sysctl", "-qw", "net.ipv4.ip_forward=1"); err != nil {
		return err
	}
	for _, chain := range []string{"PREROUTING", "OUTPUT"} {
		if _, err := n.Exec(ctx, "iptables", "-w", "-t", "nat", "-A", chain, "-d", serviceAddress, "-p", "tcp", "--dport", "443",
			"-j", "DNAT", "--to-destination", controlAddress+":6443"); err != nil {
			return err
		}
	}
	return nil
}

// configure writes the node's certificates and its programs' files.
func (n *Machine) configure() error {
	p := n.cluster.pki
	if _, err := p.kubeconfig("kubelet-"+n.Name, server, "system:node:"+n.Name, "system:nodes"); err != nil {
		return err
	}
	if err := p.issue("serving-"+n.Name, n.Name, nil, []string{n.Name}, []net.IP{net.ParseIP(n.address)}); err != nil {
		return err
	}
	runc, err := exec.LookPath("runc")
	if err != nil {
		return err
	}
	values := struct {
		*Machine
		Address, Pods, CA, Cert, Key, Pause, Runc string
		FeatureGates                              map[string]bool
	}{
		n, n.address, n.pods, p.file("ca.crt"), p.file("serving-" + n.Name + ".crt"), p.file("serving-" + n.Name + ".key"),
		pauseImage, runc, n.cluster.options.FeatureGates,
	}
	for name, from := range map[string]string{
		// Lines of containerd differ in their configuration, the kubelets of all versions take the same.
		"containerd.toml": filepath.Base(n.cluster.places.containerd) + ".toml", "kubelet.yaml": "kubelet.yaml", "pods.conflist": "pods.conflist",
	} {
		parsed, err := template.ParseFS(configs, "config/"+from)
		if err != nil {
			return err
		}
		file, err := os.Create(n.file(name))
		if err != nil {
			return err
		}
		if err := errors.Join(parsed.Execute(file, values), file.Close()); err != nil {
			return err
		}
	}
	// The upper layer of the node's /etc.
	conf := n.file("root.etc/cni/net.d")
	if err := os.MkdirAll(conf, 0o755); err != nil {
		return err
	}
	return os.Rename(n.file("pods.conflist"), filepath.Join(conf, "pods.conflist"))
}

// file is a file of the node in the cluster's directory.
func (n *Machine) file(name string) string {
	return filepath.Join(n.cluster.dir, n.Name, name)
}

// path is where programs of the node are looked for.
func (n *Machine) path() string {
	p := n.cluster.places
	return strings.Join([]string{"/usr/local/bin", p.containerd, p.components, "/usr/sbin", "/usr/bin"}, ":")
}

// Command prepares a program on the node. Start it with Output.
func (n *Machine) Command(ctx context.Context, program string, args ...string) *exec.Cmd {
	// env finds the program in the node's root; this process would look in the host's.
	cmd := exec.CommandContext(ctx, "/usr/bin/env", append([]string{"PATH=" + n.path(), program}, args...)...)
	cmd.Env, cmd.Dir = environment(), "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return cmd
}

// Output runs a prepared command on the node and returns what it prints.
func (n *Machine) Output(cmd *exec.Cmd) (string, error) {
	return n.space.output(cmd, nodeKinds)
}

// Exec runs a program on the node, outside of any container, as root.
func (n *Machine) Exec(ctx context.Context, program string, args ...string) (string, error) {
	return n.Output(n.Command(ctx, program, args...))
}

// Address is the node's in the cluster's network.
func (n *Machine) Address() string { return n.address }

// Dial connects from the node.
func (n *Machine) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	return n.space.dial(ctx, network, address)
}

// Path is where the host sees a file of the node that lies on its disk: below
// /var or /root, for example. /run and /dev/shm are in memory and are not seen.
func (n *Machine) Path(file string) string { return n.file(filepath.Join("root", file)) }

// reaped waits until the node's first process is, after the cluster's end.
func (n *Machine) reaped() {
	if n.ended != nil {
		<-n.ended
	}
	if n.space != nil {
		n.space.close()
	}
}
