package install

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/divvy-gpu/divvy/internal/version"
)

// earlierVersion stands for the release before this one.
const earlierVersion = "0.0.9"

const image = "ghcr.io/divvy-gpu/divvy:"

// earlier makes a chart of an earlier release: this one's objects under another number, with an image of that number on
// all nodes. An upgrade then replaces every pod by one of another image, and a rollback puts them back.
func (l *lab) earlier() string {
	l.t.Helper()
	chart := filepath.Join(l.t.TempDir(), "chart")
	l.must(os.CopyFS(chart, os.DirFS(filepath.Join(root, "deploy/chart"))))
	file := filepath.Join(chart, "Chart.yaml")
	text, err := os.ReadFile(file)
	l.must(err)
	changed := strings.ReplaceAll(string(text), "ersion: "+version.Number()+"\n", "ersion: "+earlierVersion+"\n")
	l.must(os.WriteFile(file, []byte(changed), 0o600))
	for _, n := range l.Nodes {
		_, err := n.Exec(l.ctx, "ctr", "--address=/run/containerd/containerd.sock", "--namespace=k8s.io", "images", "tag", image+version.Number(), image+earlierVersion)
		l.must(err)
	}
	return chart
}

// isVersion checks that an agent is of a version.
func (l *lab) isVersion(agent *corev1.Pod, want string) {
	l.t.Helper()
	if got := agent.Spec.Containers[0].Image; got != image+want {
		l.t.Errorf("the agent %s is of %s, want %s", agent.Name, got, want)
	}
}

// holders are the processes that have memory of the GPUs of a tenant's node, and how much, by the oracle.
func (l *lab) holders(tenant *corev1.Pod) []string {
	l.t.Helper()
	var all []string
	for _, n := range l.Nodes {
		if n.Name != tenant.Spec.NodeName {
			continue
		}
		report, err := n.Oracle(l.ctx)
		l.must(err)
		for _, p := range report.Processes {
			for _, g := range p.GPUs {
				// An agent measures what a context takes.
				if g.Used > 0 && filepath.Base(p.Command) != "divvy" {
					all = append(all, fmt.Sprintf("process %d of %s: %d bytes of GPU %d", p.PID, filepath.Base(p.Tenant), g.Used, g.Index))
				}
			}
		}
	}
	slices.Sort(all)
	if len(all) == 0 {
		l.t.Fatal("no process has memory of a GPU")
	}
	return all
}

// holdsAs checks that the same processes have as much memory as before.
func (l *lab) holdsAs(tenant *corev1.Pod, before []string) {
	l.t.Helper()
	if now := l.holders(tenant); !slices.Equal(now, before) {
		l.t.Errorf("memory of the GPU is held by %q, and before by %q", now, before)
	}
}
