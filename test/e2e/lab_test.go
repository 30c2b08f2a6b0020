package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/test/e2e/cluster"
)

const (
	// longest bounds every wait for something that takes seconds, on a busy machine.
	longest = 3 * time.Minute
	// begins bounds the start of a cluster, and what is installed first.
	begins = 2 * longest
	// ends bounds what removes all of a scenario.
	ends = 2 * longest
	// scenarios bounds a scenario. The longest take three to five minutes on a machine that does nothing else.
	scenarios = 8 * longest
	// system is where Divvy is installed.
	system = "divvy-system"
	gib    = 1 << 30
	mib    = 1 << 20
)

// lab is a cluster with Divvy: n1 has one GPU of 16 GiB, n2 two. A test may have more nodes.
type lab struct {
	*cluster.Cluster

	t         *testing.T
	ctx       context.Context
	root      string // of the repository
	namespace string // of the scenario that runs
}

// gate skips a test that only `make e2e` runs, and fails it where the components of a cluster are missing.
func gate(t *testing.T) {
	t.Helper()
	if os.Getenv("DIVVY_E2E") == "" {
		t.Skip("starts a Kubernetes cluster: run `make e2e` as root")
	}
	if err := cluster.Available(""); err != nil {
		t.Fatal(err)
	}
}

// newLab starts a cluster that ends with the test and installs Divvy in it.
func newLab(t *testing.T, more ...cluster.Node) *lab {
	t.Helper()
	gate(t)
	l := startLab(t, more...)
	l.install()
	return l
}

// startLab starts a cluster without Divvy. It may have more nodes; one of a name that is there gives that node's machine flags and devices.
func startLab(t *testing.T, more ...cluster.Node) *lab {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	wanted := map[string]string{v1alpha1.NodeLabel: ""}
	ctx, cancel := context.WithTimeout(t.Context(), begins)
	defer cancel()
	nodes := []cluster.Node{
		{Name: "n1", Machine: "a100-80g", MachineFlags: []string{"--memory", "16Gi"}},
		{Name: "n2", Machine: filepath.Join(root, "test/e2e/testdata/two.yaml")},
	}
	for _, one := range more {
		if at := slices.IndexFunc(nodes, func(n cluster.Node) bool { return n.Name == one.Name }); at >= 0 {
			nodes[at].MachineFlags, nodes[at].Devices = one.MachineFlags, one.Devices
		} else {
			nodes = append(nodes, one)
		}
	}
	for i := range nodes {
		nodes[i].Labels = wanted
	}
	c, err := cluster.Start(ctx, cluster.Options{Nodes: nodes, Images: images(t), Log: t.Logf})
	if err != nil {
		t.Fatal(err)
	}
	return over(t, c, root)
}

// over makes a lab of a cluster: it explains a failure and stops the cluster when the test ends.
func over(t *testing.T, c *cluster.Cluster, root string) *lab {
	t.Helper()
	l := &lab{Cluster: c, t: t, ctx: t.Context(), root: root}
	t.Cleanup(func() {
		if t.Failed() {
			l.explain(l.ctx)
		}
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	return l
}

// images returns the archives of the images under test.
func images(t *testing.T) []string {
	t.Helper()
	var archives []string
	for _, name := range []string{"divvy", "gpubench"} {
		archive, err := cluster.Image(name)
		if err != nil {
			t.Fatal(err)
		}
		archives = append(archives, archive)
	}
	return archives
}

// annotations are those of nodes, for kubectl.
const annotations = `jsonpath={range .items[*]}{.metadata.name}{" "}{.metadata.annotations}{"\n"}{end}`

// explain logs the cluster's state, events and logs for a test that failed.
func (l *lab) explain(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), longest/6)
	defer cancel()
	for _, args := range [][]string{
		{"get", "pods", "-A", "-o", "wide"}, {"get", "nodes", "-o", annotations}, {"get", "resourceclaims", "-A"}, {"get", "events", "-A", "--sort-by=.lastTimestamp"},
		{"logs", "-n", system, "-l", "app.kubernetes.io/component=agent", "--tail=60", "--prefix"},
		{"logs", "-n", system, "-l", "app.kubernetes.io/component=webhook", "--tail=20", "--prefix"},
		{"logs", "-n", system, "-l", "app.kubernetes.io/component=controller", "--tail=20", "--prefix"},
		{"logs", "-n", system, "-l", "app.kubernetes.io/component=scheduler", "--all-containers", "--tail=40", "--prefix"},
	} {
		text, err := l.Kubectl(ctx, args...)
		l.t.Logf("kubectl %s: %v\n%s", strings.Join(args, " "), err, text)
	}
	if dir := os.Getenv("DIVVY_E2E_LOGS"); dir != "" {
		if err := os.CopyFS(filepath.Join(dir, l.t.Name()), os.DirFS(filepath.Join(l.Dir(), "log"))); err != nil {
			l.t.Log(err)
		}
	}
}

// scenario runs a part of a test in its own namespace and checks that nothing of it
// is left afterwards, neither in the cluster nor on the nodes.
func (l *lab) scenario(name string, run func(*lab)) {
	l.t.Helper()
	l.t.Run(name, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), scenarios)
		defer cancel()
		s := *l
		s.t, s.ctx = t, ctx
		s.namespace = strings.ToLower(name)
		s.makeNamespace(s.namespace)
		begun := time.Now()
		defer func() {
			if t.Failed() {
				s.explain(ctx)
			}
			after := s
			var cancel context.CancelFunc
			after.ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), ends)
			defer cancel()
			after.clear()
			t.Logf("took %.1f s", time.Since(begun).Seconds())
		}()
		run(&s)
	})
}

// minutes is a scenario that takes a minute or more, which a short run leaves out.
func (l *lab) minutes(name string, run func(*lab)) {
	l.t.Helper()
	if testing.Short() {
		l.t.Logf("left out, because it takes minutes: %s (`make e2e` runs it)", name)
		return
	}
	l.scenario(name, run)
}

func (l *lab) must(err error) {
	l.t.Helper()
	if err != nil {
		l.t.Fatal(err)
	}
}

// long names something that is waited for if that is long, while it lasts: whoever ends the run then knows for what it waited. The
// function that it returns is called at the end of the wait.
func (l *lab) long(what string) (end func() bool) {
	return time.AfterFunc(longest/6, func() { l.t.Logf("%s: not within %s, and still waited for", what, longest/6) }).Stop
}

// eventually waits for a condition; the function returns why it does not hold, or an
// empty string.
func (l *lab) eventually(what string, holds func() string) {
	l.t.Helper()
	l.within(longest, what, holds)
}

// within is eventually with another limit.
func (l *lab) within(limit time.Duration, what string, holds func() string) {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(l.ctx, limit)
	defer cancel()
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	defer l.long(what)()
	for {
		why := holds()
		if why == "" {
			return
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			l.t.Fatalf("%s: not within %s: %s", what, limit, why)
		}
	}
}

// kubectl runs kubectl and fails the test unless it succeeds.
func (l *lab) kubectl(args ...string) string {
	l.t.Helper()
	defer l.long("kubectl " + strings.Join(args, " "))()
	text, err := l.Kubectl(l.ctx, args...)
	l.must(err)
	return text
}

// makeNamespace makes a namespace in which pods can be made.
func (l *lab) makeNamespace(name string) {
	l.t.Helper()
	wanted := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	_, err := l.Client().CoreV1().Namespaces().Create(l.ctx, wanted, metav1.CreateOptions{})
	if !apierrors.IsAlreadyExists(err) {
		l.must(err)
	}
	l.eventually("namespace "+name+" has its service account", func() string {
		_, err := l.Client().CoreV1().ServiceAccounts(name).Get(l.ctx, "default", metav1.GetOptions{})
		return reason(err)
	})
}

// clear removes everything of a scenario and checks that nothing of it is left.
func (l *lab) clear() {
	l.t.Helper()
	now := int64(1)
	options := metav1.DeleteOptions{GracePeriodSeconds: &now}
	l.kubectl("delete", "deployments,jobs,daemonsets", "--all", "-n", l.namespace, "--wait=false")
	l.must(l.Client().CoreV1().Pods(l.namespace).DeleteCollection(l.ctx, options, metav1.ListOptions{}))
	err := l.Client().ResourceV1().ResourceClaims(l.namespace).DeleteCollection(l.ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
	if !apierrors.IsNotFound(err) { // before Kubernetes 1.34 there is no such collection
		l.must(err)
	}
	l.eventually("pods are gone", func() string {
		pods, err := l.Client().CoreV1().Pods(l.namespace).List(l.ctx, metav1.ListOptions{})
		if err == nil && len(pods.Items) > 0 {
			return fmt.Sprintf("there are %d, the first is %s", len(pods.Items), pods.Items[0].Name)
		}
		return reason(err)
	})
	l.free()
	l.must(l.Client().CoreV1().Namespaces().Delete(l.ctx, l.namespace, metav1.DeleteOptions{}))
}

func reason(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// listing returns what `divvy ls` says on a node.
func (l *lab) listing(n *cluster.Machine) (*control.Listing, error) {
	text, err := n.Exec(l.ctx, "divvy", "ls", "-o", "json")
	if err != nil {
		return nil, err
	}
	var document struct {
		Agents []control.Listing `json:"agents"`
	}
	if err := json.Unmarshal([]byte(text), &document); err != nil {
		return nil, fmt.Errorf("read what divvy ls prints: %w", err)
	}
	if len(document.Agents) != 1 {
		return nil, fmt.Errorf("%d agents serve node %s", len(document.Agents), n.Name)
	}
	return &document.Agents[0], nil
}

// agentPID returns the pid of the agent on a node, 0 while there is none.
func (l *lab) agentPID(n *cluster.Machine) int {
	listing, err := l.listing(n)
	if err != nil {
		return 0
	}
	return listing.Info.PID
}

// signalAgent signals a node's agent and returns its pid. It fails without an agent:
// pid 0 would signal the test itself.
func (l *lab) signalAgent(n *cluster.Machine, signal string) int {
	l.t.Helper()
	var pid int
	l.eventually("an agent serves "+n.Name, func() string {
		if pid = l.agentPID(n); pid == 0 {
			return "none does"
		}
		return ""
	})
	_, err := n.Exec(l.ctx, "kill", "-"+signal, strconv.Itoa(pid))
	l.must(err)
	return pid
}

// killAgent kills a node's agent, and returns once another one serves.
func (l *lab) killAgent(n *cluster.Machine) {
	l.t.Helper()
	before := l.signalAgent(n, "KILL")
	l.eventually("another agent serves "+n.Name, func() string {
		if now := l.agentPID(n); now == 0 || now == before {
			return fmt.Sprintf("process %d", now)
		}
		return ""
	})
}

// decode reads one JSON object, the last line of what a program printed.
func decode(text string, into any) error {
	lines := bytes.Split(bytes.TrimSpace([]byte(text)), []byte("\n"))
	last := lines[len(lines)-1]
	if len(last) == 0 {
		return errors.New("it printed nothing")
	}
	return json.Unmarshal(last, into)
}

// as is a client of the API server with somebody's rights.
func (l *lab) as(user string) *kubernetes.Clientset {
	l.t.Helper()
	config := rest.CopyConfig(l.Config())
	config.Impersonate.UserName = user
	client, err := kubernetes.NewForConfig(config)
	l.must(err)
	return client
}
