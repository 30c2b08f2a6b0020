package cluster

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// longest bounds each test, on a busy machine.
const longest = 10 * time.Minute

// gate skips what `make e2e` alone runs, and fails where that promised a cluster.
func gate(t *testing.T) context.Context {
	t.Helper()
	if os.Getenv("DIVVY_E2E") == "" {
		t.Skip("starts a Kubernetes cluster: run `make e2e` as root")
	}
	if err := Available(""); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), longest)
	t.Cleanup(cancel)
	return ctx
}

func TestClusterRunsAPodAndLeavesNothing(t *testing.T) {
	ctx := gate(t)
	before := look(t)
	image, err := Image("gpubench")
	if err != nil {
		t.Fatal(err)
	}
	c, err := Start(ctx, Options{
		Nodes:  []Node{{Name: "n1", Machine: "a100-80g", MachineFlags: []string{"--memory", "16Gi"}}},
		Images: []string{image},
		Log:    t.Logf,
	})
	if err != nil {
		t.Fatal(err)
	}
	stopped := false
	defer func() {
		if !stopped {
			_ = c.Stop()
		}
	}()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "hello"},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "main", Image: "ghcr.io/divvy-gpu/gpubench:0.1.0", Command: []string{"sh", "-c", "echo hello; sleep infinity"},
		}}},
	}
	if _, err := c.Client().CoreV1().Pods("default").Create(ctx, pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.WaitRunning(ctx, "default", "hello"); err != nil {
		t.Fatal(err)
	}
	c.log("pod runs")
	err = until(ctx, "the pod has printed its line", func(ctx context.Context) error {
		logs, err := c.PodLogs(ctx, "default", "hello", "")
		if err == nil && logs != "hello\n" {
			err = fmt.Errorf("it has printed %q", logs)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	out, err := c.PodExec(ctx, "default", "hello", "", "sh", "-c", "nc -w 3 $KUBERNETES_SERVICE_HOST 443 </dev/null && echo reached")
	if err != nil || out != "reached\n" {
		t.Errorf("the API by the address of its service: %q, %v", out, err)
	}
	report, err := c.Nodes[0].Oracle(ctx)
	if err != nil || len(report.GPUs) != 1 {
		t.Errorf("oracle: %v, %v", report, err)
	}
	c.log("resident memory: %s", residents(t, c.Dir()))
	stopped = true
	if err := c.Stop(); err != nil {
		t.Error(err)
	}
	if left := remains(c.Dir()); len(left) > 0 {
		t.Errorf("left: %s", strings.Join(left, "\n"))
	}
	before.compare(t)
}

// residents tells what the programs of a cluster have in memory, in MiB.
func residents(t *testing.T, dir string) string {
	t.Helper()
	var text []string
	processes, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, process := range processes {
		args, _ := os.ReadFile(filepath.Join(process, "cmdline"))
		pages, _ := os.ReadFile(filepath.Join(process, "statm"))
		if fields := strings.Fields(string(pages)); strings.Contains(string(args), dir) && len(fields) > 1 {
			resident, _ := strconv.Atoi(fields[1])
			program, _, _ := strings.Cut(string(args), "\x00")
			text = append(text, fmt.Sprintf("%s %d", filepath.Base(program), resident*os.Getpagesize()>>20))
		}
	}
	return strings.Join(text, ", ")
}
