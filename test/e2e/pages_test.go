package e2e

import (
	"context"
	"os"
	"strings"

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
	l.must(l.ApplyText(l.ctx, asks))
	queues.Through(l.ctx, "divvy queues")
	l.beside("vision").create(holding(whole("train-0", 1)))
	queues.Rest(l.ctx)

	research.create(holding(whole("train-0", 1)))
	scheduler.Rest(l.ctx)
}
