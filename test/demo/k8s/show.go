package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/test/demo/screen"
	"github.com/divvy-gpu/divvy/test/e2e/cluster"
)

const (
	gib       = 1 << 30
	namespace = corev1.NamespaceDefault
)

// show is the demonstration.
type show struct {
	*screen.Screen
	cluster *cluster.Cluster
	begun   time.Time
	limits  map[string]uint64 // of every tenant that was listed, by its id
}

// play runs the scenes in turn; an error ends the show.
func (s *show) play(ctx context.Context) error {
	s.Say("helm install divvy deploy/chart")
	if err := s.cluster.Install(ctx); err != nil {
		return err
	}
	if err := s.kubectl(ctx, "get", "pods", "-n", cluster.Namespace); err != nil {
		return err
	}
	if err := s.sharing(ctx); err != nil {
		return err
	}
	if err := s.waiting(ctx); err != nil {
		return err
	}
	if err := s.taking(ctx); err != nil {
		return err
	}
	return s.oracle(ctx)
}

// kubectl shows what kubectl prints.
func (s *show) kubectl(ctx context.Context, args ...string) error {
	out, err := s.cluster.Kubectl(ctx, args...)
	s.Table(out)
	return err
}

// apply makes a pod of docs/examples, under another name if one is given.
func (s *show) apply(ctx context.Context, example, name string) error {
	text, err := os.ReadFile(filepath.Join("docs", "examples", example+".yaml"))
	if err != nil {
		return err
	}
	manifest := strings.Replace(string(text), "\n  name: "+example+"\n", "\n  name: "+name+"\n", 1)
	return s.cluster.ApplyText(ctx, manifest)
}

// sharing starts two pods that fit on the GPU together.
func (s *show) sharing(ctx context.Context) error {
	s.Say("Two pods want 4Gi and 8Gi of the GPU: docs/examples/share.yaml and memory.yaml.")
	limits := map[string]uint64{"share": 4 * gib, "memory": 8 * gib}
	for _, name := range []string{"share", "memory"} {
		if err := s.apply(ctx, name, name); err != nil {
			return err
		}
	}
	for _, name := range []string{"share", "memory"} {
		if _, err := s.cluster.WaitRunning(ctx, namespace, name); err != nil {
			return err
		}
		total, err := s.sees(ctx, name)
		if err != nil {
			return err
		}
		s.Check(total == limits[name], "pod %s sees a GPU of %d GiB", name, total/gib)
	}
	return s.list(ctx)
}

// list shows what runs, and keeps what each tenant may have.
func (s *show) list(ctx context.Context) error {
	if err := s.kubectl(ctx, "get", "pods"); err != nil {
		return err
	}
	s.Rest()
	node := s.cluster.Nodes[0]
	out, err := node.Exec(ctx, "divvy", "ls")
	if err != nil {
		return err
	}
	s.Table("\n" + out)
	text, err := node.Exec(ctx, "divvy", "ls", "-o", "json")
	if err != nil {
		return err
	}
	var document struct {
		Agents []control.Listing `json:"agents"`
	}
	if err := json.Unmarshal([]byte(text), &document); err != nil {
		return fmt.Errorf("read list: %w", err)
	}
	for _, agent := range document.Agents {
		for _, t := range agent.Tenants {
			s.limits[t.ID] = t.Shares[0].Limit
		}
	}
	return nil
}

// sees asks the driver inside a pod how much memory its GPU has, in bytes.
func (s *show) sees(ctx context.Context, pod string) (uint64, error) {
	text, err := s.cluster.PodExec(ctx, namespace, pod, "", "gpubench", "info")
	if err != nil {
		return 0, err
	}
	var answer struct {
		Devices []struct {
			Total uint64 `json:"total_bytes"`
		} `json:"devices"`
	}
	if err := json.Unmarshal([]byte(text), &answer); err != nil {
		return 0, fmt.Errorf("read what gpubench says in pod %s: %w: %s", pod, err, text)
	}
	if len(answer.Devices) != 1 {
		return 0, fmt.Errorf("pod %s sees %d GPUs, not one", pod, len(answer.Devices))
	}
	return answer.Devices[0].Total, nil
}

// waiting starts a third pod, for which there is no room.
func (s *show) waiting(ctx context.Context) error {
	s.Say("A third pod wants 8Gi, and 4 are left: it waits, and says what for.")
	if err := s.apply(ctx, "memory", "late"); err != nil {
		return err
	}
	event, err := s.cluster.WaitEvent(ctx, namespace, "late", func(e *corev1.Event) bool { return e.Reason == "NoShareFits" })
	if err != nil {
		return err
	}
	if err := s.kubectl(ctx, "get", "pods"); err != nil {
		return err
	}
	s.Rest()
	s.Table("\nlate: " + event.Message + "\n")
	pod, err := s.cluster.Client().CoreV1().Pods(namespace).Get(ctx, "late", metav1.GetOptions{})
	if err != nil {
		return err
	}
	s.Check(pod.Status.Phase == corev1.PodPending && !strings.Contains(event.Message, "\n"), "pod late waits, with its reason in one line")
	return nil
}

// taking ends a pod, whose room the third one takes.
func (s *show) taking(ctx context.Context) error {
	s.Say("kubectl delete pod memory: its 8Gi come back, and the pod that waited starts.")
	begun := time.Now()
	if _, err := s.cluster.Kubectl(ctx, "delete", "pod", "memory", "--wait=false"); err != nil {
		return err
	}
	if _, err := s.cluster.WaitRunning(ctx, namespace, "late"); err != nil {
		return err
	}
	s.Check(true, "pod late runs %.1f s after the other was deleted", time.Since(begun).Seconds())
	total, err := s.sees(ctx, "late")
	if err != nil {
		return err
	}
	s.Check(total == 8*gib, "pod late sees a GPU of %d GiB", total/gib)
	return s.list(ctx)
}

// oracle asks the simulated driver whether anybody ever held more than the
// share allowed.
func (s *show) oracle(ctx context.Context) error {
	report, err := s.cluster.Nodes[0].Oracle(ctx)
	if err != nil {
		return err
	}
	within := 0
	for _, t := range report.Tenants {
		limit, ok := s.limits[t.Tenant]
		if ok && len(t.GPUs) == 1 && t.GPUs[0].Peak > 0 && t.GPUs[0].Peak <= limit {
			within++
		}
	}
	s.Check(within == 3 && len(s.limits) == 3,
		"the simulated driver's own record: %d of %d tenants never passed their limit", within, len(s.limits))
	return nil
}
