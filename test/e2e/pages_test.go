package e2e

import (
	"context"
	"fmt"
	"os"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/divvy-gpu/divvy/test/e2e/desk"
)

// pages runs the commands of the pages on queues and on the scheduler on the eight GPUs of n3: those of docs/examples/queues.yaml
// are all that is divided.
func (l *lab) pages(queues, scheduler *desk.Desk) {
	l.t.Helper()
	text, err := os.ReadFile(l.exampleFile("queues"))
	l.must(err)
	asks, rest := "", []string{}
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		if strings.Contains(document, "\nkind: Job\n") && strings.Contains(document, "\n  namespace: speech\n") {
			asks = document
		} else {
			rest = append(rest, document)
		}
	}
	l.only(2)
	l.kubectl("uncordon", "n3")
	d := &departments{lab: l}
	defer d.close()
	research := l.beside("research")
	defer func() {
		after := *l
		after.ctx = context.WithoutCancel(l.ctx)
		after.kubectl("delete", "namespace", research.namespace, "--wait=false")
	}()

	last := len(rest) - 1 // the Job of vision
	l.must(l.ApplyText(l.ctx, strings.Join(rest[:last], "\n---\n")))
	l.observed("vision", "speech")
	l.must(l.ApplyText(l.ctx, rest[last]))
	queues.Through(l.ctx, "divvy queues")
	vision := l.beside("vision")
	vision.work(8)
	l.must(l.ApplyText(l.ctx, asks))
	queues.Through(l.ctx, "divvy queues")
	vision.create(holding(whole("train-0", 1)))
	queues.Rest(l.ctx)

	research.create(holding(whole("train-0", 1)))
	scheduler.Rest(l.ctx)
}

// work waits until so many pods of a namespace have begun their work. A program that is told to end before it listens for that is
// killed after its grace, and its Job makes another pod.
func (l *lab) work(n int) {
	l.t.Helper()
	l.eventually(fmt.Sprintf("%d pods of %s work", n, l.namespace), func() string {
		list, err := l.Client().CoreV1().Pods(l.namespace).List(l.ctx, metav1.ListOptions{})
		if err != nil {
			return err.Error()
		}
		working := 0
		for i := range list.Items {
			text, err := l.PodLogs(l.ctx, l.namespace, list.Items[i].Name, "main")
			if err != nil {
				return err.Error()
			}
			if strings.Contains(text, `"phase":"work"`) {
				working++
			}
		}
		if working != n {
			return fmt.Sprintf("%d do", working)
		}
		return ""
	})
}
